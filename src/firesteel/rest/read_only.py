"""Refuses changes on a server that only shows data."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from firesteel.rest.answers import errors

_READING = ("GET", "HEAD", "OPTIONS")


class ReadOnly:
    """ASGI middleware that refuses requests that would change something, with `why`."""

    def __init__(self, app: ASGIApp, why: str) -> None:
        self._app = app
        self._why = why

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in _READING:
            await errors(405, [self._why])(scope, receive, send)
        else:
            await self._app(scope, receive, send)
