"""The dashboard at `/`, and the sign-in of browsers: with a link that works once, or with a token that is entered once.

Every node serves it itself, before requests are forwarded to the leader: links, sessions and files are the node's own.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firesteel.rest.answers import answer, errors
from firesteel.rest.dashboard_files import BuiltDashboard
from firesteel.rest.flink_dashboard import FLINK, FlinkFiles, below_flink, without_prefix
from firesteel.rest.security.answers import POLICY
from firesteel.rest.security.principals import Principal
from firesteel.rest.security.sessions import LINK_SECONDS, Sessions, cookie_of, forget_cookie, set_cookie

LINKS = "/dashboard/links"
SESSION = "/dashboard/session"
ENTER = "/dashboard/enter/"
ASSETS = "/assets/"
PUBLIC = ("/", "/favicon.svg", f"{ASSETS}*", f"{ENTER}*")
"""Paths that a browser may load before sign-in: the dashboard itself, which holds no secret."""
NOT_BUILT = (
    "This installation has no dashboard; run `make dashboard` in the checkout that it was installed from, "
    "which needs Node 20.19 or newer, and restart the node."
)
_FOR_EVER = "public, max-age=31536000, immutable"
"""The names of assets contain a hash of their content."""


class Dashboard:
    """ASGI middleware behind the door. `address` is the node's. `flink` is served below `/flink/`."""

    def __init__(
        self,
        app: ASGIApp,
        built: BuiltDashboard | None,
        sessions: Sessions,
        *,
        address: Callable[[], str],
        flink: FlinkFiles | None = None,
    ) -> None:
        self._app = app
        self._built = built
        self._flink = flink
        self._sessions = sessions
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response = self._answer(scope)
        if response is None and self._flink is not None and (path := below_flink(scope["path"])) is not None:
            response = await self._flink.answer(path) if scope["method"] in ("GET", "HEAD") else None
            if response is not None:
                await response(scope, receive, _with_policy(send, self._flink.policy))
                return
            scope = without_prefix(scope)
        await (response or self._app)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        method, path = scope["method"], scope["path"]
        match path.removeprefix("/v1"), method:
            case "/dashboard/links", "POST":
                return self._link(scope)
            case "/dashboard/session", "POST":
                return self._sign_in(scope)
            case "/dashboard/session", "DELETE":
                return self._sign_out(scope)
        if path.startswith(ENTER):
            return self._enter(scope)
        if method not in ("GET", "HEAD"):
            return None
        if path == FLINK and self._flink is not None:
            return Response(status_code=308, headers={"location": "flink/"})
        if path in ("/", "/favicon.svg") or path.startswith(ASSETS):
            return self._file(scope)
        return None

    def _link(self, scope: Scope) -> Response:
        if self._built is None and self._flink is None:
            return errors(404, [NOT_BUILT])
        principal: Principal = scope["firesteel.principal"]
        link = f"{self._address()}{ENTER}{self._sessions.link(principal)}"
        return answer({"link": link, "seconds": LINK_SECONDS}, 201)

    def _enter(self, scope: Scope) -> Response:
        if scope["method"] != "GET":
            return errors(405, ["Open a link with GET."])
        cookie = self._sessions.begin(scope["path"].removeprefix(ENTER))
        if cookie is None:
            return errors(403, ["This link was already used or has expired; run `firesteel dashboard` for a new one."])
        # Relative, for proxies that serve this node below a path.
        home = "../../" if self._built is not None else "../../flink/"
        return Response(status_code=303, headers={"location": home, "set-cookie": set_cookie(cookie, tls=_tls(scope))})

    def _sign_in(self, scope: Scope) -> Response:
        """Start a session. The door has verified the token. A session cannot start another one, or it would last forever."""
        if not any(name.lower() == b"authorization" for name, _ in scope["headers"]):
            return errors(400, ["Send a token as 'Authorization: Bearer <token>' to start a session."])
        cookie = self._sessions.start(scope["firesteel.principal"])
        return Response(status_code=204, headers={"set-cookie": set_cookie(cookie, tls=_tls(scope))})

    def _sign_out(self, scope: Scope) -> Response:
        header = "; ".join(v.decode("latin-1") for n, v in scope["headers"] if n.lower() == b"cookie")
        cookie = cookie_of(header, tls=_tls(scope))
        if cookie is not None:
            self._sessions.end(cookie)
        return Response(status_code=204, headers={"set-cookie": forget_cookie(tls=_tls(scope))})

    def _file(self, scope: Scope) -> Response:
        path: str = scope["path"]
        if self._built is None:
            return Response(f"{NOT_BUILT}\n", 404, {"content-type": "text/plain; charset=utf-8"})
        file = self._built.find(path)
        if file is None:
            return errors(404, ["The dashboard has no such file."])
        headers = {"content-type": file.kind}
        if path.startswith(ASSETS):
            headers["cache-control"] = _FOR_EVER
        if file.packed is None:
            return Response(file.content, headers=headers)
        headers["vary"] = "Accept-Encoding"
        if not _takes_gzip(scope):
            return Response(file.content, headers=headers)
        return Response(file.packed, headers={**headers, "content-encoding": "gzip"})


def _tls(scope: Scope) -> bool:
    return bool(scope.get("scheme") == "https")


def _takes_gzip(scope: Scope) -> bool:
    accepted = b",".join(value for name, value in scope["headers"] if name.lower() == b"accept-encoding")
    parts = (part.partition(b";") for part in accepted.split(b","))
    return any(n.strip().lower() == b"gzip" and q.replace(b" ", b"") not in (b"q=0", b"q=0.0") for n, _, q in parts)


def _with_policy(send: Send, policy: bytes) -> Send:
    async def with_policy(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, POLICY: policy}
        await send(message)

    return with_policy
