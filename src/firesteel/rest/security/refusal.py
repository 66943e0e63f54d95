"""Answers of the door itself."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import Message

from firesteel.rest.answers import JSON, error_body

Headers = Sequence[tuple[bytes, bytes]]


class RequestRefused(Exception):  # noqa: N818  # the request is refused; nothing is in error
    """The request is refused. The message is sent to the caller."""

    def __init__(self, status: int, message: str, headers: Headers = ()) -> None:
        self.status = status
        self.message = message
        self.headers = headers
        super().__init__(message)

    def messages(self) -> tuple[Message, Message]:
        """The answer as ASGI messages, in the form of the contract."""
        return error_messages(self.status, self.message, self.headers)


def error_messages(status: int, message: str, headers: Headers = ()) -> tuple[Message, Message]:
    body = error_body([message])
    start: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": [
            (b"content-type", JSON.encode()),
            (b"content-length", str(len(body)).encode()),
            *headers,
        ],
    }
    return start, {"type": "http.response.body", "body": body, "more_body": False}


def empty_messages(status: int, headers: Headers) -> tuple[Message, Message]:
    return (
        {"type": "http.response.start", "status": status, "headers": list(headers)},
        {"type": "http.response.body", "body": b"", "more_body": False},
    )
