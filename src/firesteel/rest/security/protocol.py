"""HTTP/1.1 under uvicorn, with what the ASGI app cannot do itself.

It puts the client's certificate into the scope, and closes connections that send the head of a request too slowly, send a
head that is too large, or keep sending a body after the answer (S24).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from firesteel.rest.answers import JSON, error_body
from firesteel.rest.security.answers import security_headers
from firesteel.rest.security.connections import PROVED, Connections
from firesteel.rest.security.mtls import PEER_CERTIFICATE

MAX_HEAD = 64 * 1024
"""Bytes of request line and headers together."""
LINGER = 5.0
"""Seconds for which the rest of a body is still read after the answer: if closed at once, the client would lose the answer."""
_logger = logging.getLogger(__name__)
_logger.setLevel(logging.ERROR)
"""Malformed requests of strangers are not logged one by one, or they would fill the disk."""


def _refusal(status: str, message: str) -> bytes:
    """An answer to a malformed request, which no app sees."""
    body = error_body([message])
    head = [
        f"HTTP/1.1 {status}".encode(),
        b"connection: close",
        f"content-type: {JSON}".encode(),
        b"content-length: " + str(len(body)).encode(),
        *(name + b": " + value for name, value in security_headers(tls=False)),
    ]
    return b"\r\n".join([*head, b"", body])


_TOO_LARGE = _refusal("431 Request Header Fields Too Large", "The head of the request is too large.")
_NO_REQUEST = _refusal("400 Bad Request", "This is not an HTTP request.")


class DoorProtocol(HttpToolsProtocol):
    """One connection."""

    head_timeout = 30.0
    """Seconds from the connection, or from the first byte of a request, until its head must be complete."""

    counted: Connections | None = None
    """The table that counts this connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _logger
        self._peer_certificate: dict[str, Any] | None = None
        self._descriptor = -1
        self._reading_head = True
        self._progress = False
        self._quiet_bytes = 0
        """Bytes since the parser's last event: it keeps an unfinished header of any length."""
        self._body_complete = True
        self._last = False
        """The connection ends after this answer."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._peer_certificate = tls.getpeercert() or None  # empty when the client has none
        connected = transport.get_extra_info("socket")
        self._descriptor = -1 if connected is None else connected.fileno()
        self._watch_head()

    def _prove(self) -> None:
        if self.counted is not None:
            self.counted.prove(self._descriptor)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(self._head_timer)
        self._end(self._linger_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._progress = False
        super().data_received(data)
        self._quiet_bytes = 0 if self._progress else self._quiet_bytes + len(data)
        if self._quiet_bytes > MAX_HEAD and not self.transport.is_closing():
            if self._reading_head:
                self.transport.write(_TOO_LARGE)
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self.transport.write(_NO_REQUEST)
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading_head = True
        self._body_complete = False
        self._watch_head()
        extensions = self.scope.setdefault("extensions", {})
        assert extensions is not None
        extensions[PEER_CERTIFICATE] = self._peer_certificate  # type: ignore[assignment]
        extensions[PROVED] = self._prove  # type: ignore[assignment]

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading_head:  # trailers arrive after the door has checked the headers, and would be added to them
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._progress = True
        self._reading_head = False
        self._end(self._head_timer)
        self._head_timer = None
        super().on_headers_complete()
        # uvicorn would close such a connection with the answer, although the client may still be sending, which would lose
        # the answer. It ends with the body instead, or when that takes too long.
        self._last = not self.cycle.keep_alive
        self.cycle.keep_alive = True

    def on_body(self, body: bytes) -> None:
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._progress = True
        self._body_complete = True
        self._end(self._linger_timer)
        self._linger_timer = None
        super().on_message_complete()
        if self._last and self.cycle.response_complete:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.cycle.response_complete:
            return  # that was the previous one
        if not self._body_complete and self._linger_timer is None:
            self._linger_timer = self.loop.call_later(LINGER, self.transport.close)
        if self._body_complete and self._last:
            self.transport.close()

    def _watch_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_timeout, self.transport.close)

    @staticmethod
    def _end(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def protocol_with(head_timeout: float, connections: Connections | None = None) -> type[DoorProtocol]:
    """The protocol in the form that uvicorn expects: a class that it instantiates itself."""
    return type("DoorProtocol", (DoorProtocol,), {"head_timeout": head_timeout, "counted": connections})
