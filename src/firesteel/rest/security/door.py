"""The door: every request passes through it, and nothing behind it sees a request that should be refused.

It checks in this order: the host, the sending page, secrets in the URL, the size of the body, the caller, and the rate of
requests. Cheap checks that need no secret come first. The caller is then in `scope["firesteel.principal"]`.
"""

from __future__ import annotations

import logging
import math
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firesteel.config.sections import Authentication, RestOptions, Role, SecurityOptions
from firesteel.config.values import memory_bytes
from firesteel.errors import ForbiddenError
from firesteel.log_context import log_context
from firesteel.rest.node_identity import CLOCK_HEADER
from firesteel.rest.security.addresses import network_of
from firesteel.rest.security.answers import AnswerSender, security_headers
from firesteel.rest.security.audit import AuditLog, AuditRecord, Outcome
from firesteel.rest.security.bodies import LimitedBody, check_length
from firesteel.rest.security.browsers import (
    PREFLIGHT,
    Hosts,
    Origins,
    check_content_type,
    check_own_page,
    check_query,
    cors_headers,
    is_mutating,
    is_preflight,
)
from firesteel.rest.security.connections import PROVED
from firesteel.rest.security.identities import NODE_PREFIX, CallerIdentity, Identities
from firesteel.rest.security.mtls import PEER_CERTIFICATE
from firesteel.rest.security.principals import AuthenticationUnavailableError, Principal
from firesteel.rest.security.rates import RateLimiter
from firesteel.rest.security.reach import out_of_reach
from firesteel.rest.security.refusal import RequestRefused, empty_messages, error_messages
from firesteel.rest.security.sessions import Sessions, cookie_of
from firesteel.rest.security.worker_credentials import JOIN_PREFIX, WORKER_PREFIX

logger = logging.getLogger(__name__)

PRINCIPAL = "firesteel.principal"
"""In the scope: the Principal. It is missing on public paths."""
REQUEST_ID = "firesteel.request_id"
"""In the scope: the id that is used in the answer, the log and the audit log."""
AUDIT = "firesteel.audit"
"""In the scope: a dict, into which the app may put the `job_id` that a request is about."""
LimitOf = Callable[[str], int | None]

_BEARER = re.compile(r"bearer[ ]+([A-Za-z0-9._~+/=-]+)", re.IGNORECASE)
_JOB_IN_PATH = re.compile(r"/(?:jobs|applications)/([0-9a-fA-F]{32})(?:/|$)")
_DOTS = frozenset({".", ".."})
_STREAMS = (b"text/event-stream", b"application/x-ndjson")
_REFUSED = frozenset({401, 403, 421, 429})
_WORKER_RATE, _WORKER_BURST = 500.0, 5000.0
"""Requests of one worker: each end of an attempt is one, and after an outage there may be thousands."""
_MOST_REFUSALS_WRITTEN = 10
"""The number of refusals of unknown callers per second in the audit log; a flood must not displace other records."""


class _NoLongerKnown(Exception):  # noqa: N818  # nothing is in error
    """The credential of an open stream was revoked, or has expired."""


class Door:
    """ASGI middleware around any app.

    Args:
        app: The app behind the door.
        rest, security: The options, which `check_door` has checked.
        identities: Authenticates callers.
        public: Paths that need no credential for GET and HEAD. A path that ends in `/*` stands for all paths below it.
        limit_of: The largest body of an upload path, None for all others.
        sessions: The sessions of browsers.
        audit: The log of changes and refusals; its creator closes it.
    """

    recheck_seconds = 15.0
    """Seconds between two checks of the caller of an open event stream."""
    recheck_worker_seconds = 1.0
    """The same for the command stream of a worker."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        rest: RestOptions,
        security: SecurityOptions,
        identities: Identities,
        public: Collection[str] = (),
        limit_of: LimitOf = lambda path: None,
        audit: AuditLog | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        self._app = app
        self._sessions = sessions
        self._hosts = Hosts(rest, security)
        self._origins = Origins(security)
        self._identities = identities
        self._public = frozenset(public)
        self._public_below = tuple(path.removesuffix("*") for path in public if path.endswith("/*"))
        self._limit = memory_bytes(rest.max_content_length)
        self._limit_of = limit_of
        self._timeout = rest.request_timeout
        self._how_to_enter = _how_to_enter(security)
        self._audit = audit
        # Several tables, so that unknown callers cannot displace the others, or lock out callers from the same address.
        self._callers = RateLimiter(rest.rate_limit, rest.rate_burst)
        self._strangers = RateLimiter(rest.rate_limit, rest.rate_burst)
        self._visitors = RateLimiter(rest.rate_limit, rest.rate_burst)
        self._workers = RateLimiter(_WORKER_RATE, _WORKER_BURST)
        self._refusals = RateLimiter(_MOST_REFUSALS_WRITTEN, 10 * _MOST_REFUSALS_WRITTEN)
        self._suppressed: Counter[object] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "this server has no web sockets"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _Request(scope)
        with log_context(request=request.id):
            await self._answer(request, scope, receive, send)

    async def _answer(self, request: _Request, scope: Scope, receive: Receive, send: Send) -> None:
        scope = {**scope, REQUEST_ID: request.id, AUDIT: {}}
        scope.pop(PRINCIPAL, None)
        answer = AnswerSender(send, (*security_headers(tls=request.tls), (b"x-request-id", request.id.encode())))
        try:
            origin = self._check_sender(request)
            if origin is not None:
                answer.add_headers(cors_headers(origin))
                if is_preflight(request.method, request.headers):
                    self._limit_rate(self._visitors, request.peer)
                    await answer.replace(empty_messages(204, PREFLIGHT))
                    return
            limit = self._limit_of(request.path)
            check_length(request.headers.get("content-length"), self._limit if limit is None else limit)
            principal = await self._admit(request)
            if not _DOTS.isdisjoint(request.path.split("/")):
                # Some frameworks resolve such a path to another one, which would not be the path that was checked.
                raise RequestRefused(400, "The path must not contain '.' or '..' segments.")
            if principal is not None:
                scope[PRINCIPAL] = principal
                request.proved()
            body = LimitedBody(
                receive,
                answer.refuse,
                limit=self._limit if limit is None else limit,
                timeout=self._timeout,
                upload=limit is not None,
            )
            await self._app(scope, body, self._watched(request, answer))
            await answer.finish()
        except RequestRefused as refused:
            await answer.refuse(refused)
        except _NoLongerKnown:
            answer.over = True
        except Exception as error:
            await self._answer_error(request, answer, error)
        finally:
            self._note(request, answer.status, scope[AUDIT])

    def _watched(self, request: _Request, answer: AnswerSender) -> Send:
        """End a stream of events or commands, which may be open for days, when its caller is no longer allowed."""
        if request.principal is None:
            return answer.send
        streams, looked_at = False, time.monotonic()
        # What a worker is told may hold secrets of jobs, and the leader counts on a revoked one to hear nothing any more.
        patience = self.recheck_worker_seconds if request.principal.role is Role.WORKER else self.recheck_seconds

        async def send(message: Message) -> None:
            nonlocal streams, looked_at
            if message["type"] == "http.response.start":
                streams = any(n.lower() == b"content-type" and v.startswith(_STREAMS) for n, v in message["headers"])
            elif streams and time.monotonic() - looked_at >= patience:
                looked_at = time.monotonic()
                if not await self._still_known(request):
                    await answer.send({"type": "http.response.body", "body": b"", "more_body": False})
                    raise _NoLongerKnown
            await answer.send(message)

        return send

    async def _still_known(self, request: _Request) -> bool:
        if request.bearer is not None and request.bearer.startswith(NODE_PREFIX):
            return True  # forwarded by another node, which checks its caller's credential itself
        try:
            identity = await self._identify(request)
        except RequestRefused as refused:
            return refused.status == 503  # this cannot be decided at the moment
        return identity is not None and identity.principal == request.principal

    def _check_sender(self, request: _Request) -> str | None:
        """Run the checks that need no credential. Returns the allowed foreign origin that sent this, if there is one."""
        host = self._hosts.check(request.all("host"), request.server)
        origin = self._origins.check(
            request.headers,
            host=host,
            scheme="https" if request.tls else "http",
            mutating=request.mutating,
        )
        check_query(request.query)
        return origin

    async def _admit(self, request: _Request) -> Principal | None:
        """The caller; None for a visitor of a public path."""
        if self._is_public(request):
            self._limit_rate(self._visitors, request.peer)
            return None
        identity = await self._identify(request)
        if identity is None:
            # After the credential was checked: on a shared address, an unknown caller must not lock out the others.
            self._limit_rate(self._strangers, request.peer)
            presented = bool(request.all("authorization")) or bool(request.certificate)
            how = _HOW_WORKERS_ENTER if (request.bearer or "").startswith(_OF_WORKERS) else self._how_to_enter
            refused = _unauthenticated(how, wrong=presented)
            if (request.bearer or "").startswith(NODE_PREFIX):
                refused.headers = [*refused.headers, (CLOCK_HEADER.encode(), str(time.time()).encode())]
            raise refused
        principal = request.principal = identity.principal
        limiter = self._workers if principal.role is Role.WORKER else self._callers
        self._limit_rate(limiter, (principal.owner, principal.name))
        # Here and not in routes, so that no route can forget it.
        if (why := out_of_reach(principal, request.method, request.path)) is not None:
            raise RequestRefused(403, why)
        if identity.ambient and request.mutating:
            check_content_type(
                request.headers.get("content-type", ""),
                required=request.method == "POST" and not identity.session,
                upload=self._limit_of(request.path) is not None,
            )
        if identity.session and request.mutating:
            check_own_page(request.headers)
        return principal

    async def _identify(self, request: _Request) -> CallerIdentity | None:
        sent = request.all("authorization")
        if len(sent) > 1:
            raise RequestRefused(400, "The request must have at most one Authorization header.")
        if sent:
            found = _BEARER.fullmatch(sent[0].strip())
            request.bearer = found[1] if found else ""  # another scheme counts as a wrong token
        elif (principal := self._session(request)) is not None:
            return CallerIdentity(principal, ambient=True, session=True)
        try:
            return await self._identities.identify(request.bearer, request.certificate)
        except ForbiddenError as error:
            raise RequestRefused(403, str(error)) from error
        except AuthenticationUnavailableError as error:  # its cause has been logged
            message = "Authentication is not available at the moment; see the log of the node."
            raise RequestRefused(503, message, [(b"retry-after", b"5")]) from error

    def _session(self, request: _Request) -> Principal | None:
        if self._sessions is None:
            return None
        cookie = cookie_of("; ".join(request.all("cookie")), tls=request.tls)
        return None if cookie is None else self._sessions.principal(cookie)

    def _is_public(self, request: _Request) -> bool:
        if request.method not in ("GET", "HEAD"):
            return False
        path = request.path
        if path in self._public:
            return True
        return path.startswith(self._public_below) and not re.search(r"\.\.|//|[\\%\x00]", path)

    @staticmethod
    def _limit_rate(limiter: RateLimiter, caller: object) -> None:
        wait = limiter.take(caller)
        if wait:
            seconds = max(1, math.ceil(wait))
            raise RequestRefused(
                429, f"Too many requests; try again in {seconds} s.", [(b"retry-after", str(seconds).encode())]
            )

    async def _answer_error(self, request: _Request, answer: AnswerSender, error: Exception) -> None:
        if answer.over or isinstance(error, ClientDisconnect):  # the app knows that the client is gone
            logger.debug("request %s ended early: %s", request.id, type(error).__name__)
            return
        if answer.holds_own_error():  # the app has logged it and answered before it raised the exception
            logger.debug("the app raised %s after its answer to request %s", type(error).__name__, request.id)
            await answer.finish()
            return
        logger.error("request %s (%s %r) failed", request.id, request.method, request.path, exc_info=error)
        await answer.replace(error_messages(500, f"Internal server error. Error id: {request.id}"))

    def _note(self, request: _Request, status: int | None, said: dict[str, Any]) -> None:
        """Write to the audit log each requested change and each refusal."""
        if self._audit is None or not (request.mutating or status in (401, 403)):
            return
        if _is_routine(request, status):
            return
        outcome: Outcome = "refused" if status in _REFUSED else "done" if status and status < 400 else "failed"
        suppressed = 0
        if outcome == "refused" and (crowd := _crowd(request, status)) is not _ALWAYS:
            if self._refusals.take(crowd):
                self._suppressed[crowd] += 1
                return
            suppressed = self._suppressed.pop(crowd, 0)
        job = said.get("job_id") or (found[1].lower() if (found := _JOB_IN_PATH.search(request.path)) else None)
        principal = request.principal
        self._audit.record(
            AuditRecord(
                request_id=request.id,
                peer=request.address,
                method=request.method,
                path=request.path,
                status=status,
                outcome=outcome,
                principal=principal.name if principal else None,
                role=principal.role.value if principal else None,
                owner=principal.owner if principal else None,
                job_id=job,
                suppressed=suppressed,
            )
        )


_ALWAYS = object()


def _is_routine(request: _Request, status: int | None) -> bool:
    """Frequent reports of workers are not changes for the audit log. A registration is."""
    if request.principal is None or request.principal.role is not Role.WORKER or status in _REFUSED:
        return False
    return not request.path.rstrip("/").endswith("/registration")


def _crowd(request: _Request, status: int | None) -> object:
    """The key of the bucket that limits refusals in the log. Known callers have their own: each refusal is written (S46),
    except in a flood."""
    if request.principal is None:
        return None
    return (request.principal.owner, request.principal.name) if status == 429 else _ALWAYS


def _nothing() -> None:
    pass


class _Request:
    """What the door sees of a request. It only reads the headers that it asks for by name; none but credentials identify
    the caller."""

    def __init__(self, scope: Scope) -> None:
        self.id = uuid.uuid4().hex
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope.get("query_string", b"")
        self.tls = scope.get("scheme") == "https"
        self.server: tuple[str, int | None] | None = scope.get("server")
        self.mutating = is_mutating(self.method, self.path)
        self.principal: Principal | None = None
        self.bearer: str | None = None
        self.certificate: dict[str, Any] | None = (scope.get("extensions") or {}).get(PEER_CERTIFICATE)
        self.proved: Callable[[], None] = (scope.get("extensions") or {}).get(PROVED) or _nothing
        client = scope.get("client")
        self.address: str = client[0] if client else ""
        self._headers: list[tuple[str, str]] = [
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]
        ]
        self.headers: dict[str, str] = {}
        for name, value in self._headers:  # a repeated header is joined, so that it differs from a single one
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value

    def all(self, name: str) -> list[str]:
        return [value for n, value in self._headers if n == name]

    @property
    def peer(self) -> str:
        """The peer's network, for counting."""
        return network_of(self.address)


_OF_WORKERS = (WORKER_PREFIX, JOIN_PREFIX)
_HOW_WORKERS_ENTER = "A worker joins with a token of 'firesteel worker token', once and before it expires."


def _unauthenticated(how: str, *, wrong: bool) -> RequestRefused:
    if wrong:
        challenge = b'Bearer error="invalid_token"'
        return RequestRefused(
            401,
            f"The credential is unknown, expired or revoked. {how}",
            [(b"www-authenticate", challenge)],
        )
    return RequestRefused(401, f"No credential was given. {how}", [(b"www-authenticate", b"Bearer")])


def _how_to_enter(security: SecurityOptions) -> str:
    ways = {
        Authentication.TOKEN: "a token from 'firesteel cluster token create'",
        Authentication.OIDC: f"a token of {security.oidc_issuer}",
    }
    bearers = [text for method, text in ways.items() if method in security.authentication]
    said = [f"Send 'Authorization: Bearer <token>' with {' or '.join(bearers)}"] if bearers else []
    if Authentication.MTLS in security.authentication:
        said.append("show a client certificate" if said else "Show a client certificate")
    return f"{', or '.join(said)}." if said else ""


__all__ = ["AUDIT", "PRINCIPAL", "REQUEST_ID", "Door", "LimitOf"]
