"""A door in front of an API server, which passes requests on, fails them, loses their answers, or lets them wait."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from tests.support.kubernetes import KubernetesServer


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str
    watch: bool
    since: str
    """The version that a watch begins at; empty for how it is now."""

    def is_put_of(self, name: str) -> bool:
        return self.method == "PUT" and self.path.endswith(f"/{name}")


@dataclass(frozen=True, slots=True)
class Refuse:
    """The server answers with this, and does nothing."""

    code: int
    message: str = "made up by the test"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """It is done, and then the connection breaks."""


@dataclass(frozen=True, slots=True)
class HoldBack:
    """It is sent on only when the event comes, whether or not the caller is waiting still."""

    until: asyncio.Event


@dataclass(frozen=True, slots=True)
class Say:
    """A watch that says this and ends."""

    lines: str


Answer = Refuse | LoseAnswer | HoldBack | Say | None


class Door:
    """`rule` decides about each request; None passes it on."""

    def __init__(self, server: KubernetesServer) -> None:
        self._server = server
        self.rule: Callable[[Asked], Answer] = lambda _: None
        self.asked: list[Asked] = []
        self.late: list[asyncio.Task[object]] = []
        self.address = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        asked = Asked(request.method, request.path, "watch" in query, query.get("resourceVersion", ""))
        self.asked.append(asked)
        raw = await request.read()
        match self.rule(asked):
            case Refuse(code, message, headers):
                status = {"kind": "Status", "message": message, "code": code}
                return web.Response(status=code, text=json.dumps(status), headers=headers)
            case LoseAnswer():
                await self._ask(request, raw)
                return self._break(request)
            case HoldBack(until):
                return await self._hold_back(request, raw, until)
            case Say(lines):
                return web.Response(text=lines)
            case None if asked.watch:
                return await self._pass_watch(request)
        status_code, body = await self._ask(request, raw)
        return web.Response(status=status_code, body=body, content_type="application/json")

    async def _hold_back(self, request: web.Request, raw: bytes, until: asyncio.Event) -> web.StreamResponse:
        async def later() -> tuple[int, bytes]:
            await until.wait()
            return await self._ask(request, raw)

        task = asyncio.create_task(later())
        self.late.append(task)
        code, body = await asyncio.shield(task)
        return web.Response(status=code, body=body, content_type="application/json")

    @staticmethod
    def _break(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def _ask(self, request: web.Request, raw: bytes) -> tuple[int, bytes]:
        async with self._session() as session, session.request(request.method, self._url(request), data=raw) as answer:
            return answer.status, await answer.read()

    async def _pass_watch(self, request: web.Request) -> web.StreamResponse:
        async with self._session() as session, session.get(self._url(request)) as answer:
            passed = web.StreamResponse(status=answer.status)
            await passed.prepare(request)
            try:
                async for chunk in answer.content.iter_any():
                    await passed.write(chunk)
            except (aiohttp.ClientError, ConnectionError):
                pass
            finally:
                # The server would go on sending, and so not say goodbye when it is told to.
                if answer.connection is not None and answer.connection.transport is not None:
                    answer.connection.transport.abort()
            return passed

    def _url(self, request: web.Request) -> str:
        return self._server.address + str(request.rel_url)

    def _session(self) -> aiohttp.ClientSession:
        context = ssl.create_default_context(cafile=self._server.authority)
        headers = {"Authorization": f"Bearer {self._server.token}", "Content-Type": "application/json"}
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), headers=headers)


@contextlib.asynccontextmanager
async def door_to(server: KubernetesServer) -> AsyncIterator[Door]:
    door = Door(server)
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] = door.answer  # type: ignore[assignment]
    # The second is how long it waits for watches, which do not end by themselves.
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    door.address = f"http://{host}:{port}"
    try:
        yield door
    finally:
        for task in door.late:
            task.cancel()
        await asyncio.gather(*door.late, return_exceptions=True)
        await runner.cleanup()
