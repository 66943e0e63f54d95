"""A node that does not lead forwards requests to the leader. A forwarded request is never forwarded again.

While leadership changes hands, a request waits a moment for the next leader. It is only sent again if the first leader has
certainly done nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firesteel.errors import NotLeadingError
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.ha.retrieval import Absence
from firesteel.rest.answers import errors
from firesteel.rest.errors import RETRY_AFTER
from firesteel.rest.node_identity import CLOCK_HEADER, NodeIdentity
from firesteel.rest.node_view import NodeView
from firesteel.rest.security.identities import NODE_PREFIX
from firesteel.rest.security.mtls import PEER_CERTIFICATE, common_name
from firesteel.rest.security.principals import Principal

logger = logging.getLogger(__name__)

LOCAL_PATHS = frozenset({"/healthz", "/metrics", "/openapi.json", "/docs"})
"""Paths that every node answers itself."""
STATUS_PATH = "/cluster/status"
"""Paths that every node answers itself when there is no leader."""
ABSENCE = "firesteel.absence"
"""In the scope of a request that is answered here because there is no leader: the reason."""
DEGRADED_HEADER = "firesteel-degraded"
NOT_LEADING_HEADER = "firesteel-not-leading"
"""Marks an answer to a node: nothing was done, and another leader may be asked."""

HOLD_SECONDS = 3.0
"""How long a request waits for a leader. A hand-over is shorter; clients that want to wait longer retry."""
_SLICE_SECONDS = 0.25
_KEY_DELAYS = (0.05, 0.1, 0.2, 0.4)
FINISH_SECONDS = 1.0
_KEPT_BYTES = 256 * 1024
"""Bodies up to this size are kept, so that they can be sent again."""

_NOT_PASSED_ON = frozenset(
    {"host", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "expect"}
    | {"authorization", "cookie", "proxy-authorization", "x-forwarded-for", "forwarded", "origin", "referer"}
)
_NOT_PASSED_BACK = frozenset({"connection", "keep-alive", "transfer-encoding", "server", "date", "x-request-id"})


class Forwarding:
    """ASGI middleware behind the door: requests go to the application here, or to the leader."""

    def __init__(
        self,
        app: ASGIApp,
        node: NodeView,
        identity: NodeIdentity,
        client: httpx.AsyncClient,
        *,
        patience: float = 30.0,
        hold: float = HOLD_SECONDS,
        callers: Collection[str] | None = None,
    ) -> None:
        """
        Args:
            patience: Seconds that the leader may take from the end of a request to the head of its answer.
            callers: Names in the certificates of callers, if those are used. Other names are those of nodes.
        """
        self._callers = callers
        self._app = app
        self._patience = patience
        self._node = node
        self.address = ""
        """The address of this node, once it serves. As the leader's address it is stale while this node does not lead."""
        self._identity = identity
        self._client = client
        self._hold = hold
        self._unanswered = 0
        """The number of requests that this node has accepted as the leader and not answered yet."""
        self._finished = asyncio.Event()

    def give_up(self) -> None:
        """Do not wait for a leader any more, as no other node will lead in place of this one."""
        self._hold = 0.0

    async def finish(self) -> None:
        """Return when all requests that were accepted here are answered, or take too long."""
        deadline = time.monotonic() + FINISH_SECONDS
        while self._unanswered and (left := deadline - time.monotonic()) > 0:
            self._finished.clear()
            try:
                async with asyncio.timeout(left):
                    await self._finished.wait()
            except TimeoutError:
                logger.warning("%d requests take longer than %g s and are cut off", self._unanswered, FINISH_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].removeprefix("/v1") in LOCAL_PATHS:
            await self._app(scope, receive, send)
            return
        request = _Passing(Request(scope, receive))
        deadline = time.monotonic() + self._hold
        failed: _Failed | None = None
        while True:
            try:
                epoch = self._node.epoch
            except NotLeadingError:
                pass
            else:
                if not request.begun:
                    await self._serve(request, epoch, send)
                    return
            if request.is_second_hop:
                await _not_leading()(scope, receive, send)
                return
            leader = self._to_ask()
            if leader is not None and (failed is None or failed.leader != leader) and not request.begun:
                outcome = await self._ask(request, leader)
                if isinstance(outcome, Response):
                    try:
                        await outcome(scope, receive, send)
                    except httpx.TransportError as error:
                        # It is too late for another answer: the connection is closed, and the caller retries.
                        logger.info("the leader at %s did not complete its answer: %r", leader.address, error)
                    return
                failed = outcome
                continue
            if request.is_status:
                scope = {**scope, ABSENCE: self._absence(failed)}
                await self._app(scope, request.receive, send)
                return
            left = self._left(deadline)
            if left <= 0 or request.begun:
                await _no_leader(self._absence(failed))(scope, receive, send)
                return
            await self._node.leader_changed(min(left, _SLICE_SECONDS))

    def _to_ask(self) -> LeaderInformation | None:
        leader = self._node.leader()
        if leader is None or not leader.address.startswith(("http://", "https://")):
            return None
        return None if leader.address == self.address else leader

    def _left(self, deadline: float) -> float:
        absence = self._node.absence
        if absence is not None:
            # If there has been no leader for long, there is no point in waiting.
            deadline = min(deadline, time.monotonic() + absence.since + self._hold - time.time())
        return deadline - time.monotonic() if self._hold else 0.0

    def _absence(self, failed: _Failed | None) -> Absence:
        absence = self._node.absence
        if absence is not None:
            return absence
        leader = self._node.leader()
        if failed is not None:
            return Absence(f"the leader at {failed.leader.address} {failed.why}", time.time(), failed.leader)
        return Absence("this node has just lost leadership, and the new leader is not known yet", time.time(), leader)

    async def _serve(self, request: _Passing, epoch: Epoch, send: Send) -> None:
        scope = request.scope
        if request.is_second_hop:
            # The door has accepted it; here it is checked that it is meant for this leadership and this request.
            claim = await self._identity.read(request.claim)
            if claim is None or claim.target != _target(request.request) or not self._is_node(scope):
                await _not_believed("the request was forwarded for another purpose, or too long ago")(
                    scope, request.receive, send
                )
                return
            if claim.epoch != epoch:
                await _not_leading()(scope, request.receive, send)
                return
            if not self._identity.is_first_use(claim):
                await _not_believed("the request was forwarded before")(scope, request.receive, send)
                return
        counted = True
        self._unanswered += 1

        def answered() -> None:
            nonlocal counted
            if counted:
                counted = False
                self._unanswered -= 1
                if not self._unanswered:
                    self._finished.set()

        async def noticing(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered()  # the rest of the answer, say an event stream, is not waited for
            await send(message)

        try:
            await self._app(scope, request.receive, noticing)
        finally:
            answered()

    def _is_node(self, scope: Scope) -> bool:
        """Whether the certificate is a node's: where callers use certificates, nodes have others than callers."""
        if self._callers is None:
            return True
        certificate = (scope.get("extensions") or {}).get(PEER_CERTIFICATE)
        return bool(certificate) and (common_name(certificate or {}) or "") not in self._callers

    async def _token(self, principal: Principal, leader: LeaderInformation, target: str) -> str | None:
        """The token for the leader. It has drawn its key before its leadership is published, but the store may lag."""
        for delay in (*_KEY_DELAYS, None):
            token = await self._identity.token(principal, leader.epoch, target)
            if token is not None or delay is None or self._node.leader() != leader:
                return token
            await asyncio.sleep(delay)
        return None

    async def _ask(self, request: _Passing, leader: LeaderInformation, *, again: bool = True) -> Response | _Failed:
        """The leader's answer; _Failed when it has certainly done nothing, so that `request` may be sent again."""
        asked = _target(request.request).partition(" ")[2]
        if not asked.startswith("/"):
            return errors(400, [f"'{asked[:100]}' is not a valid path"])
        limit = asyncio.timeout(None)

        async def body() -> AsyncIterator[bytes]:
            async for chunk in request.body():
                yield chunk
            # An upload may take any time; the timeout for the leader starts here.
            limit.reschedule(asyncio.get_running_loop().time() + self._patience)

        # Unchanged: the leader judges bytes that are not ASCII.
        headers = [(k, v) for k, v in request.scope["headers"] if k.decode("latin-1").lower() not in _NOT_PASSED_ON]
        method = request.request.method
        passing = self._client.build_request(method, leader.address + asked, headers=headers, content=body())
        principal: Principal = request.scope["firesteel.principal"]
        # The signed path is the one that is sent: the HTTP client may normalise an odd path.
        target = f"{method} {passing.url.raw_path.decode('ascii')}"
        token = await self._token(principal, leader, target)
        if token is None:
            return _Failed(leader, "no longer leads, or has not drawn its key")
        passing.headers["authorization"] = f"Bearer {token}"
        try:
            async with limit:
                answer = await self._client.send(passing, stream=True, follow_redirects=False)
        except (httpx.TransportError, TimeoutError) as error:
            logger.info("the leader at %s does not answer: %r", leader.address, error)
            failed = _Failed(leader, "does not answer")
            never_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            if never_sent or request.is_status:
                return failed
            return _no_leader(self._absence(failed))
        if answer.status_code == 503 and NOT_LEADING_HEADER in answer.headers:
            await answer.aclose()
            return _Failed(leader, "no longer leads")
        if answer.status_code == 401:  # it rejected our claim; the caller is authenticated
            await answer.aclose()
            self._identity.was_not_believed(leader.epoch, answer.headers.get(CLOCK_HEADER))
            if again and not request.begun:  # nothing was done
                return await self._ask(request, leader, again=False)
            return _Failed(leader, "rejects the claim of this node")
        back = {k: v for k, v in answer.headers.items() if k not in _NOT_PASSED_BACK}
        return StreamingResponse(_body(answer), answer.status_code, back)


@dataclass(frozen=True, slots=True)
class _Failed:
    leader: LeaderInformation
    why: str


class _Passing:
    """A request on its way to the leader, with what is needed to send it again."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.scope = request.scope
        self.claim = request.headers.get("authorization", "").partition(" ")[2].strip()
        self._kept: bytes | None = None
        self._begun = False
        """A part of the body was sent and not kept."""

    @property
    def begun(self) -> bool:
        return self._begun

    @property
    def is_second_hop(self) -> bool:
        return self.claim.startswith(NODE_PREFIX)

    @property
    def is_status(self) -> bool:
        path: str = self.scope["path"]
        return self.request.method == "GET" and path.removeprefix("/v1").rstrip("/") == STATUS_PATH

    async def body(self) -> AsyncIterator[bytes]:
        if self._kept is None and self._is_small:
            self._kept = b"".join([chunk async for chunk in self.request.stream()])
        if self._kept is not None:
            if self._kept:
                yield self._kept
            return
        self._begun = True
        async for chunk in self.request.stream():
            yield chunk

    async def receive(self) -> Message:
        """The `receive` for the application here; after a try elsewhere it replays the kept body."""
        if self._kept is not None:
            kept, self._kept = self._kept, None
            return {"type": "http.request", "body": kept, "more_body": False}
        return await self.request.receive()

    @property
    def _is_small(self) -> bool:
        length = self.request.headers.get("content-length")
        if length is None:
            return "transfer-encoding" not in self.request.headers
        return length.isdecimal() and int(length) <= _KEPT_BYTES


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


def _not_believed(why: str) -> Response:
    """The answer to a node that forwarded a request: nothing was done."""
    return errors(401, [why], {CLOCK_HEADER: str(time.time())})


def _not_leading() -> Response:
    """The answer to a node that forwarded a request: nothing was done."""
    message = "Service temporarily unavailable: this node does not lead, or no longer in the expected epoch. Try again."
    return errors(503, [message], {"retry-after": RETRY_AFTER, NOT_LEADING_HEADER: "true"})


def _no_leader(absence: Absence) -> Response:
    since = datetime.fromtimestamp(absence.since, UTC).isoformat(timespec="seconds")
    return errors(
        503,
        [
            "Service temporarily unavailable: the cluster has no leader at the moment, or it is changing. Try again.",
            f"The cluster is degraded since {since}: {absence.reason}. Running jobs continue.",
        ],
        {"retry-after": RETRY_AFTER, DEGRADED_HEADER: _as_header(absence.reason)},
    )


def _as_header(text: str) -> str:
    """Any text on one line, in characters that a header may have."""
    return " ".join(text.split()).encode("ascii", "replace").decode()[:200]
