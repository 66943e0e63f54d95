"""What workers ask of the leader: to be registered, for commands, and to be heard. Nobody else gets here; see the door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from firesteel.config.sections import Role
from firesteel.errors import ForbiddenError, InvalidRequestError, Problem
from firesteel.rest.context import CallerPrincipal, Context
from firesteel.rest.native.events import EventStream
from firesteel.rest.security.principals import Principal
from firesteel.rpc.messages import CONTENT_TYPE, Message, Registration, WorkerReport, decode, encode

router = APIRouter(tags=["workers"], include_in_schema=False)

WorkerParam = Annotated[str, Path(alias="worker", pattern=r"^w[0-9a-f]{16}$")]
KEEP_ALIVE = b"\n"


@router.post("/workers/{worker}/registration")
async def register(request: Request, context: Context, principal: CallerPrincipal, worker: WorkerParam) -> Response:
    _check(principal, worker)
    registration = _read(await request.body(), Registration)
    if registration.info.worker != worker:
        raise ForbiddenError(f"worker {worker} speaks for itself, and not for {registration.info.worker}")
    return _answer(encode(await context.gateway.sessions.register(registration)))


@router.get("/workers/{worker}/commands")
async def commands(
    context: Context, principal: CallerPrincipal, worker: WorkerParam, incarnation: Annotated[str, Query(max_length=64)]
) -> Response:
    _check(principal, worker)
    sessions = context.gateway.sessions
    stream = _kept_alive(sessions.commands(worker, incarnation), sessions.heartbeat)
    return EventStream(stream, lambda: None, content_type=CONTENT_TYPE)


@router.post("/workers/{worker}/reports")
async def report(request: Request, context: Context, principal: CallerPrincipal, worker: WorkerParam) -> Response:
    _check(principal, worker)
    return _answer(encode(context.gateway.sessions.report(worker, _read(await request.body(), WorkerReport))))


def _check(principal: Principal, worker: str) -> None:
    """The door has checked it too; this is for doors that are put together otherwise (S47)."""
    if principal.role is not Role.WORKER or principal.name != worker:
        raise ForbiddenError(f"{principal.name} is not worker {worker}")


def _read(body: bytes, kind: type[Message]) -> Message:
    try:
        return decode(body, kind)
    except ValueError as error:
        raise InvalidRequestError([Problem(str(error), "use a worker of the nodes' version")]) from error


def _answer(content: bytes) -> Response:
    return Response(content, media_type="application/json")


async def _kept_alive(lines: AsyncIterator[bytes], interval: float) -> AsyncGenerator[bytes, None]:
    """The lines, and an empty one when none has come for a while: so both sides know that the connection holds."""
    upcoming = asyncio.ensure_future(anext(lines, None))
    try:
        yield KEEP_ALIVE
        while True:
            await asyncio.wait([upcoming], timeout=interval)
            if not upcoming.done():
                yield KEEP_ALIVE
                continue
            line = upcoming.result()
            if line is None:
                return
            yield line
            upcoming = asyncio.ensure_future(anext(lines, None))
    finally:
        upcoming.cancel()
        await asyncio.wait([upcoming])
        if isinstance(lines, AsyncGenerator):
            await lines.aclose()
