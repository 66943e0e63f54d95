"""A node that does not lead asks the leader on behalf of its caller, once: a request that was passed on is never passed on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from firesteel.errors import NotLeadingError
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.rest.answers import errors
from firesteel.rest.errors import RETRY_AFTER
from firesteel.rest.node_identity import NODE_PREFIX, NodeIdentity
from firesteel.rest.security.principals import Principal

logger = logging.getLogger(__name__)

LOCAL_PATHS = frozenset({"/healthz", "/openapi.json", "/docs"})
"""What every node answers for itself."""

_NOT_PASSED_ON = frozenset(
    {"host", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "expect"}
    | {"authorization", "cookie", "proxy-authorization", "x-forwarded-for", "forwarded", "origin", "referer"}
)
_NOT_PASSED_BACK = frozenset({"connection", "keep-alive", "transfer-encoding", "server", "date", "x-request-id"})


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads, as this node sees it."""

    own: Callable[[], Epoch]
    """The epoch in which this node leads; raises NotLeadingError."""
    current: Callable[[], LeaderInformation | None]


class Forwarding:
    """ASGI middleware behind the door: requests go to the application here, or to the leader."""

    def __init__(
        self,
        app: ASGIApp,
        leadership: Leadership,
        identity: NodeIdentity,
        client: httpx.AsyncClient,
        *,
        patience: float = 30.0,
    ) -> None:
        """`patience`: seconds that the leader may take from the end of a request to the head of its answer."""
        self._app = app
        self._patience = patience
        self._leadership = leadership
        self._identity = identity
        self._client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].removeprefix("/v1") in LOCAL_PATHS:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        passed_on = request.headers.get("authorization", "").partition(" ")[2].strip()
        try:
            epoch = self._leadership.own()
        except NotLeadingError:
            is_second_hop = passed_on.startswith(NODE_PREFIX)
            answer = _no_leader() if is_second_hop else await self._ask_leader(request)
            await answer(scope, receive, send)
            return
        if passed_on.startswith(NODE_PREFIX):
            # The door has let it in; whether it was meant for this leadership and for this request is looked at here.
            claim = await self._identity.read(passed_on)
            if claim is None or claim.target != _target(request):
                await errors(401, ["the request was passed on for something else, or too long ago"])(
                    scope, receive, send
                )
                return
            if claim.epoch != epoch:
                await _no_leader()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _ask_leader(self, request: Request) -> Response:
        leader = self._leadership.current()
        if leader is None or not leader.address.startswith(("http://", "https://")):
            return _no_leader()
        asked = _target(request).partition(" ")[2]
        if not asked.startswith("/"):
            return errors(400, [f"'{asked[:100]}' is no path"])
        limit = asyncio.timeout(None)

        async def body() -> AsyncIterator[bytes]:
            async for chunk in request.stream():
                yield chunk
            # An upload takes as long as it takes; from here on it is the leader's turn.
            limit.reschedule(asyncio.get_running_loop().time() + self._patience)

        headers = {k: v for k, v in request.headers.items() if k not in _NOT_PASSED_ON}
        passing = self._client.build_request(request.method, leader.address + asked, headers=headers, content=body())
        principal: Principal = request.scope["firesteel.principal"]
        # What is signed is what is sent: the client may spell an odd path in its own way.
        target = f"{request.method} {passing.url.raw_path.decode('ascii')}"
        passing.headers["authorization"] = f"Bearer {await self._identity.token(principal, leader.epoch, target)}"
        try:
            async with limit:
                answer = await self._client.send(passing, stream=True, follow_redirects=False)
        except (httpx.TransportError, TimeoutError) as error:
            logger.info("the leader at %s does not answer: %r", leader.address, error)
            return _no_leader()
        if answer.status_code == 401:  # it is us whom it did not believe; the caller is known
            await answer.aclose()
            return _no_leader()
        back = {k: v for k, v in answer.headers.items() if k not in _NOT_PASSED_BACK}
        return StreamingResponse(_body(answer), answer.status_code, back)


def _target(request: Request) -> str:
    query = request.scope["query_string"].decode("latin-1")
    path = request.scope["raw_path"].decode("latin-1")
    return f"{request.method} {path}" + (f"?{query}" if query else "")


async def _body(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    finally:
        await answer.aclose()


def _no_leader() -> Response:
    return errors(
        503,
        ["Service temporarily unavailable: the cluster has no leader at the moment, or it is changing. Ask again."],
        {"retry-after": RETRY_AFTER},
    )
