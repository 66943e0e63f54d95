"""`GET /jobs/{jobid}/events` and `GET /events`: changes of jobs as server-sent events.

A stream is not a record: a client first gets the current state (`snapshot`) and then the changes. When the connection or the
leadership is lost, a client reconnects and starts anew.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from firesteel.config.sections import Role
from firesteel.errors import FiresteelError, JobNotFoundError
from firesteel.jobmaster.events import LOST, RESULT, STATE, JobEvent
from firesteel.masking import mask
from firesteel.rest.answers import encode
from firesteel.rest.context import Caller, CallerParam, Context, RestContext
from firesteel.rest.native.event_source import END, Listener
from firesteel.rest.params import JobIdParam
from firesteel.status import JobStatus
from firesteel.types import JobID

router = APIRouter(tags=["events"])

SNAPSHOT = "snapshot"
KEEP_ALIVE = b": keep-alive\n\n"
HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # a proxy that buffers the whole answer would wait forever
}
_DESCRIBED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events, each with `id`, `event` and `data` (JSON), until the job ends or the connection breaks.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get(
    "/jobs/{jobid}/events",
    summary="Events of a job, as they happen",
    response_class=StreamingResponse,
    responses=_DESCRIBED,
)
async def job_events(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    logs: Annotated[bool, Query(description="Include the log lines of the running attempt.")] = False,
) -> Response:
    """The first event is `snapshot`; then come `state`, `progress`, `log` and `lost`. The last one is the final `state`."""
    return _open(context, caller, job_stream(context, caller.read(job_id), logs=logs))


@router.get(
    "/events",
    summary="Changes of the state of jobs, as they happen",
    response_class=StreamingResponse,
    responses=_DESCRIBED,
)
async def all_events(context: Context, caller: CallerParam) -> Response:
    """The events `state` and `lost` of all jobs that the caller may see."""
    return _open(context, caller, cluster_stream(context, caller))


def _open(context: RestContext, caller: Caller, stream: AsyncGenerator[bytes, None]) -> Response:
    principal = caller.principal
    key = (principal.owner, principal.name)
    limit = context.configuration.rest.max_listeners
    context.events.admit(limit, key, privileged=principal.role is Role.ADMIN)
    return EventStream(stream, lambda: context.events.leave(key))


class EventStream(StreamingResponse):
    """Releases the resources of the stream as soon as it ends, in any way."""

    def __init__(
        self,
        stream: AsyncGenerator[bytes, None],
        on_end: Callable[[], None],
        content_type: str = "text/event-stream; charset=utf-8",
    ) -> None:
        super().__init__(stream, headers={**HEADERS, "content-type": content_type})
        self._stream = stream
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
            await self._stream.aclose()


async def job_stream(context: RestContext, job_id: JobID, *, logs: bool) -> AsyncGenerator[bytes, None]:
    gateway, source = context.gateway, context.events
    lines = Numbered()
    # Listening starts first, and the Dispatcher reads the state before it awaits anything: nothing is missed or sent twice.
    with gateway.events(job_id) as subscription, source.listening(Listener(subscription, logs=logs)) as listener:
        job = await gateway.request_job(job_id)
        yield lines.event(SNAPSHOT, snapshot(job))
        if JobStatus(job["status"]).terminal:
            yield lines.event(STATE, final_state(job))
            return
        async with source.following(job_id, context.logs, listener, job["progress"]) as watch:
            while (event := await listener.next(source.keep_alive)) is None or event.kind != END:
                if event is None:
                    if (over := await _ended(context, job_id)) is None:
                        yield KEEP_ALIVE
                        continue
                    if over:
                        yield lines.event(STATE, final_state(over))
                    return
                if event.final:
                    # The last lines are sent before the end.
                    await watch.look(over=True)
                    listener.end()
                    while (late := await listener.next(source.keep_alive)) is not None and late.kind != END:
                        yield lines.of(late)
                    yield lines.of(event)
                    return
                yield lines.of(event)


async def cluster_stream(context: RestContext, caller: Caller) -> AsyncGenerator[bytes, None]:
    gateway, source = context.gateway, context.events
    lines = Numbered()
    with gateway.events() as subscription, source.listening(Listener(subscription)) as listener:
        yield KEEP_ALIVE  # tells the client that it is connected
        while (event := await listener.next(source.keep_alive)) is None or event.kind != END:
            if event is None:
                if not _leads(context):
                    return
                yield KEEP_ALIVE
            elif event.kind == LOST or (event.kind == STATE and _sees(context, caller, event.job_id)):
                yield lines.of(event)


async def _ended(context: RestContext, job_id: JobID) -> dict[str, Any] | None:
    """None while the job runs and this node leads; the job once it has ended; empty when this node does not lead."""
    try:
        if not (await context.gateway.request_job_status(job_id)).terminal:
            return None
        return await context.gateway.request_job(job_id)
    except FiresteelError:
        return {}


def _leads(context: RestContext) -> bool:
    try:
        context.gateway.events().close()  # refuses listeners when it no longer leads
    except FiresteelError:
        return False
    return True


def _sees(context: RestContext, caller: Caller, job_id: JobID) -> bool:
    try:
        return caller.sees(context.gateway.owner_of(job_id))
    except JobNotFoundError:
        return False


class Numbered:
    """The events of one stream on the wire."""

    def __init__(self) -> None:
        self._last = 0

    def of(self, event: JobEvent) -> bytes:
        if event.kind == LOST:
            return self.event(LOST, dict(event.data))
        data = (
            mask(dict(event.data)) if event.kind == STATE else event.data
        )  # log lines were masked when they were read
        return self.event(event.kind, {"job_id": event.job_id, "at": event.at, **data})

    def event(self, kind: str, data: Mapping[str, Any]) -> bytes:
        self._last += 1
        return b"id: %d\nevent: %s\ndata: %s\n\n" % (self._last, kind.encode(), encode(data))


def snapshot(job: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "job_id": job["job_id"],
        "status": job["status"],
        "attempt": job["attempt"],
        "progress": job["progress"],
        "at": time.time(),
    }


def final_state(job: Mapping[str, Any]) -> dict[str, Any]:
    """The last event of a job that ended before the client connected: like `end_event`, but made from its details."""
    data = {"job_id": job["job_id"], "status": job["status"], "at": job["ended_at"], "attempt": job["attempt"]}
    if job["failure"]:
        data["failure"] = job["failure"]
    return mask({**data, "result": {name: job[name] for name in RESULT if name in job}})
