"""Limits on the size and the slowness of request bodies (S24).

The app reads a body as usual. When a limit is exceeded, the door answers in its place and the app is told that the client
has disconnected, which every framework understands; an exception would be handled differently by each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.types import Message, Receive

from firesteel.rest.security.refusal import RequestRefused

SLOWEST_UPLOAD = 16 * 1024
"""Bytes per second, on average, below which an upload is given up."""


class LimitedBody:
    """The `receive` of one request."""

    def __init__(
        self,
        receive: Receive,
        refuse: Callable[[RequestRefused], Awaitable[None]],
        *,
        limit: int,
        timeout: float,
        upload: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._receive = receive
        self._refuse = refuse
        self._limit = limit
        self._timeout = timeout
        self._upload = upload
        self._clock = clock
        self._received = 0
        self._waited = 0.0
        """Seconds spent waiting for the client, without the time that the app takes."""
        self._complete = False
        self._refused = False

    async def __call__(self) -> Message:
        if self._refused:
            return {"type": "http.disconnect"}
        if self._complete:
            return await self._receive()  # waits until the client disconnects, without a limit
        patience = self._patience() - self._waited
        if patience <= 0:
            return await self._stop(_too_slow())
        began = self._clock()
        try:
            async with asyncio.timeout(patience):
                message = await self._receive()
        except TimeoutError:
            return await self._stop(_too_slow())
        finally:
            self._waited += self._clock() - began
        if message["type"] != "http.request":
            self._complete = True
            return message
        self._received += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._received > self._limit:
            return await self._stop(too_large(self._limit))
        return message

    def _patience(self) -> float:
        """The time allowed: an upload gets more as it progresses; any other body has to arrive as a whole in time."""
        return self._timeout + (self._received / SLOWEST_UPLOAD if self._upload else 0.0)

    async def _stop(self, refused: RequestRefused) -> Message:
        self._refused = True
        await self._refuse(refused)
        return {"type": "http.disconnect"}


def _too_slow() -> RequestRefused:
    return RequestRefused(408, "The body of the request did not arrive in time; send it again.")


def too_large(limit: int) -> RequestRefused:
    return RequestRefused(413, f"The body of the request is larger than {limit} bytes, the limit for this path.")


def check_length(content_length: str | None, limit: int) -> None:
    """Refuse a body at once whose Content-Length is too large."""
    if content_length is None:
        return
    if not content_length.isascii() or not content_length.isdigit():
        raise RequestRefused(400, "The Content-Length is not a number.")
    if len(content_length) > 18 or int(content_length) > limit:
        raise too_large(limit)
