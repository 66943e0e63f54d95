"""`flink run` is refused before it has sent its program."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from firesteel.rest.flink_programs import FLINK_PROGRAM, RefusesFlinkPrograms

FORM = "multipart/form-data; boundary=x"


def ask(method: str, path: str, kind: str) -> tuple[int, Any, bool]:
    """Status, body, and whether it came from behind; nothing of the request's body may be asked for."""
    sent: list[Message] = []
    passed: list[str] = []

    async def behind(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append(scope["path"])
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": b"null"})

    async def receive() -> Message:
        pytest.fail("the body was asked for")

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "http", "method": method, "path": path, "headers": [(b"content-type", kind.encode())]}
    asyncio.run(RefusesFlinkPrograms(behind)(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"]), bool(passed)


@pytest.mark.parametrize("path", ["/jobs", "/v1/jobs", "/v1/jobs/"])
@pytest.mark.parametrize("kind", [FORM, "Multipart/Form-Data"])
def test_a_program_is_refused_in_words_and_unread(path: str, kind: str) -> None:
    assert ask("POST", path, kind) == (400, {"errors": [FLINK_PROGRAM]}, False)


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", "/jobs", "application/json"),
        ("POST", "/jobs", ""),
        ("GET", "/jobs", FORM),
        ("POST", "/jars/upload", FORM),
        ("POST", f"/jobs/{'a' * 32}/savepoints", FORM),
    ],
)
def test_everything_else_passes(method: str, path: str, kind: str) -> None:
    assert ask(method, path, kind) == (202, None, True)
