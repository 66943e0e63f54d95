"""A tiny app behind a door, in this process or behind a real uvicorn on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Scope

from firesteel.config.sections import Authentication, RestOptions, Role, SecurityOptions
from firesteel.rest.security.connections import Connections
from firesteel.rest.security.door import AUDIT, PRINCIPAL, Door
from firesteel.rest.security.identities import Identities
from firesteel.rest.security.mtls import ssl_context
from firesteel.rest.security.principals import Principal
from firesteel.rest.security.protocol import protocol_with
from firesteel.rest.server import serving

T = TypeVar("T")
JOB = "0123456789abcdef0123456789abcdef"
UPLOAD_LIMIT = 100_000


def rest(**options: Any) -> RestOptions:
    return RestOptions(**{"port": 0, **options})


def security(tokens: Path = Path("/nonexistent/tokens.json"), **options: Any) -> SecurityOptions:
    return SecurityOptions(**{"tokens_file": tokens, **options})


class OneToken:
    """Knows one bearer token. Counts how often it was asked."""

    GOOD = "fst_0123456789abcdef_good"

    def __init__(self, principal: Principal | None = None) -> None:
        self.principal = principal or Principal("alice's laptop", Role.OPERATOR, "alice")
        self.asked = 0

    async def authenticate(self, token: str) -> Principal | None:
        self.asked += 1
        return self.principal if token == self.GOOD else None


BEARER = {"authorization": f"Bearer {OneToken.GOOD}"}


async def _who(request: Request) -> Response:
    principal: Principal | None = request.scope.get(PRINCIPAL)
    if principal is None:
        return JSONResponse({"name": None})
    return JSONResponse({"name": principal.name, "role": principal.role, "owner": principal.owner})


async def _read_body(request: Request) -> Response:
    return JSONResponse({"received": len(await request.body())}, 202)


async def _submit(request: Request) -> Response:
    request.scope[AUDIT]["job_id"] = JOB
    return JSONResponse({}, 202)


async def _boom(request: Request) -> Response:
    raise RuntimeError("canary-in-the-stack")


async def _forbidden(request: Request) -> Response:
    return JSONResponse({"errors": ["no"]}, 403)


async def _deliberate(request: Request) -> Response:
    return JSONResponse({"errors": ["unknown job"]}, 500)


async def _styled(request: Request) -> Response:
    headers = {"cache-control": "max-age=60", "server": "tiny", "x-frame-options": "ALLOWALL"}
    return PlainTextResponse("page", headers={**headers, "access-control-allow-origin": "*"})


async def _events(request: Request) -> Response:
    async def lines() -> AsyncIterator[bytes]:
        for number in range(3):
            yield f"data: {number}\n\n".encode()
            await asyncio.sleep(0)

    return StreamingResponse(lines(), media_type="text/event-stream")


def tiny_app() -> Starlette:
    change = ["POST", "PUT", "PATCH", "DELETE"]
    return Starlette(
        routes=[
            Route("/who", _who, methods=["GET", *change]),
            Route("/healthz", _who, methods=["GET", *change]),
            Route("/web/{path:path}", _who),
            Route("/body", _read_body, methods=["GET", *change]),
            Route("/upload", _read_body, methods=change),
            Route("/jobs", _submit, methods=["POST"]),
            Route("/jobs/{job}", _who, methods=["GET", *change]),
            Route("/jobs/{job}/yarn-cancel", _who),
            Route("/boom", _boom, methods=["GET", *change]),
            Route("/forbidden", _forbidden),
            Route("/deliberate", _deliberate),
            Route("/styled", _styled),
            Route("/events", _events),
        ]
    )


def make_door(app: ASGIApp | None = None, **given: Any) -> Door:
    options: dict[str, Any] = {
        "rest": rest(),
        "security": security(),
        "identities": Identities(tokens=OneToken()),
        "public": ("/healthz", "/web/*"),
        "limit_of": lambda path: UPLOAD_LIMIT if path == "/upload" else None,
    }
    return Door(app or tiny_app(), **{**options, **given})


def open_door(**given: Any) -> Door:
    """Nobody has to say who they are."""
    principal = Principal("anonymous", Role.VIEWER, "anonymous")
    given.setdefault("security", security(authentication=(Authentication.NONE,)))
    return make_door(identities=Identities(anonymous=principal), **given)


@contextlib.asynccontextmanager
async def client_of(door: ASGIApp, base_url: str = "http://localhost:8081") -> AsyncIterator[httpx.AsyncClient]:
    # What comes out of the door would be an error of the server, so it is one of the test.
    transport = httpx.ASGITransport(door, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url=base_url) as client:
        yield client


def ask(
    door: ASGIApp,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    content: Any = None,
    **given: Any,
) -> httpx.Response:
    """One request, with the good token unless it has an Authorization header of its own or `anonymous=True`."""
    anonymous = given.pop("anonymous", False)
    sent = {**({} if anonymous else BEARER), **(headers or {})}

    async def request() -> httpx.Response:
        async with client_of(door, given.pop("base_url", "http://localhost:8081")) as client:
            return await client.request(method, path, headers=sent, content=content, **given)

    return asyncio.run(request())


def errors_of(response: httpx.Response) -> list[str]:
    """The messages of an answer in the contract's form."""
    assert response.headers["content-type"] == "application/json; charset=UTF-8"
    body = response.json()
    assert list(body) == ["errors"]
    return [str(message) for message in body["errors"]]


def http_scope(path: str = "/who", method: str = "GET", headers: Mapping[str, str] | None = None) -> Scope:
    sent = {"host": "localhost:8081", **BEARER, **(headers or {})}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "server": ("127.0.0.1", 8081),
        "client": ("127.0.0.1", 5),
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
    }


async def never() -> Message:
    """A client that says nothing more."""
    await asyncio.Event().wait()
    raise AssertionError


@contextlib.contextmanager
def served(
    door: ASGIApp, rest: RestOptions, security: SecurityOptions, connections: Connections | None = None
) -> Iterator[int]:
    """The node's own server around `door`, on a loop in a thread of its own; gives its port."""
    started: Future[tuple[int, asyncio.Event, asyncio.AbstractEventLoop]] = Future()

    async def serve() -> None:
        context = ssl_context(security) if security.ssl_enabled else None
        protocol = protocol_with(rest.request_timeout, connections)
        ended = asyncio.Event()
        async with serving(
            door,
            host=rest.bind_address,
            port=rest.port,
            context=context,
            protocol=protocol,
            connections=connections,
        ) as port:
            started.set_result((port, ended, asyncio.get_running_loop()))
            await ended.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, name="test-server", daemon=True)
    thread.start()
    port, ended, loop = started.result(30)
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        assert not thread.is_alive()


def until(condition: Callable[[], T], timeout: float = 30.0) -> T:
    """What `condition` gives once it is true."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.01)
    return found


async def until_async(condition: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(30):
        while not (found := await condition()):  # noqa: ASYNC110  # what is waited for happens in a thread or a file
            await asyncio.sleep(0.01)
    return found
