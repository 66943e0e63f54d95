"""Counting and timing of requests by class: ASGI middleware around everything else, including the door."""

from __future__ import annotations

import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firesteel.metrics.declarations import OPEN_REQUESTS, REQUESTS
from firesteel.metrics.registry import MetricRegistry

_PROBES = frozenset({"/healthz", "/metrics"})
_SUBMITS = re.compile(r"/jobs(?:/[0-9a-fA-F]{32}/resume)?|/jars/[^/]+/run")
_STREAM = b"text/event-stream"
_PAGE = b"text/html"


class MeasuredRequests:
    """The classes are few and fixed, so that invented paths add no series (S24)."""

    def __init__(self, app: ASGIApp, metrics: MetricRegistry) -> None:
        self._app = app
        self._metrics = metrics
        self._open = 0
        metrics.set(OPEN_REQUESTS, 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, content = time.monotonic(), 0, b""

        async def noting(message: Message) -> None:
            nonlocal status, content
            if message["type"] == "http.response.start":
                status = message["status"]
                content = next((v for n, v in message.get("headers", ()) if n.lower() == b"content-type"), b"")
            await send(message)

        self._opened(1)
        try:
            await self._app(scope, receive, noting)
        finally:
            self._opened(-1)
            kind = class_of(scope["method"], scope["path"], content)
            # A request without an answer was cancelled by its caller.
            shown = f"{status // 100}xx" if status else "none"
            self._metrics.observe(REQUESTS, time.monotonic() - began, kind, shown)

    def _opened(self, by: int) -> None:
        self._open += by
        self._metrics.set(OPEN_REQUESTS, self._open)


def class_of(method: str, path: str, content: bytes) -> str:
    """The class of a request, by its method, its path and the type of its answer."""
    path = path.removeprefix("/v1").rstrip("/")
    if path in _PROBES:
        return "probe"
    if content.startswith(_STREAM):
        return "stream"
    if method == "POST" and _SUBMITS.fullmatch(path):
        return "submit"
    if method not in ("GET", "HEAD", "OPTIONS"):
        return "change"
    return "page" if content.startswith(_PAGE) else "read"
