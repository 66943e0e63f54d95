"""Event streams: one for as long as it lasts, and one that is opened again whenever it breaks."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from firesteel.client.caller import ClusterCaller
from firesteel.client.endpoints import PAUSES
from firesteel.client.errors import ClusterError, ClusterUnreachableError
from firesteel.client.events import EventParser, JobEvent, job_event
from firesteel.client.requests import Request
from firesteel.client.transport import UnansweredError

_STREAM = "text/event-stream"


async def listen(
    caller: ClusterCaller,
    request: Request,
    *,
    patience: float | None = None,
    on_sign: Callable[[], None] = lambda: None,
) -> AsyncGenerator[JobEvent, None]:
    """The events of one stream until it ends or breaks (UnansweredError).

    Args:
        patience: how long to try to open it.
        on_sign: called whenever anything arrives, even a comment.
    """
    answer = await caller.open(request, patience=patience)
    try:
        kind = answer.headers.get("content-type", "")
        if not kind.startswith(_STREAM) or answer.chunks is None:
            raise ClusterError(f"GET {request.path} was answered with {kind or 'nothing'}, not with an event stream")
        parser = EventParser()
        async for chunk in answer.chunks:
            on_sign()
            for event in parser.feed(chunk):
                yield job_event(event)
    finally:
        await answer.close()


async def follow(caller: ClusterCaller, request: Request, *, ends: bool) -> AsyncGenerator[JobEvent, None]:
    """Events for as long as there are any, from whichever node sends them.

    With `ends` the stream is that of one job: it is over after the final event, and what happened while no stream was open is
    in the snapshot with which each one begins. Without, a `lost` event says that something may have happened meanwhile.

    Raises ClusterUnreachableError when no node sends anything within the caller's timeout.
    """
    pauses = PAUSES.delays()
    trouble = "the stream ended at once"
    silent_since: float | None = None

    def sign() -> None:
        nonlocal silent_since, pauses
        silent_since = None
        pauses = PAUSES.delays()

    while True:
        silent_since = silent_since or time.monotonic()
        try:
            async with aclosing(listen(caller, request, on_sign=sign)) as events:
                async for event in events:
                    yield event
                    if ends and event.final:
                        return
        except UnansweredError as error:
            trouble = str(error)
        if silent_since is not None and time.monotonic() - silent_since > caller.timeout:
            raise ClusterUnreachableError(
                f"no node sent anything on {request.path} for {time.monotonic() - silent_since:.0f} s — "
                f"{', '.join(caller.addresses)}: {trouble}"
            )
        await caller.pause(next(pauses))
        if not ends:
            yield JobEvent("lost", None, time.time(), {})
