"""Requests at a node that does not lead, while leadership changes hands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, cast

import httpx
import jwt
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from firesteel.config.sections import Role
from firesteel.errors import NotLeadingError
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.ha.retrieval import Absence
from firesteel.rest.forwarding import ABSENCE, NOT_LEADING_HEADER, Forwarding
from firesteel.rest.node_identity import CLOCK_HEADER, NodeIdentity
from firesteel.rest.node_view import NodeView
from firesteel.rest.security.identities import NODE_PREFIX
from firesteel.rest.security.mtls import PEER_CERTIFICATE
from firesteel.rest.security.principals import Principal

WHO = Principal("ann", Role.OPERATOR, "team-a")
ONE = LeaderInformation(Epoch(1), "http://one")
TWO = LeaderInformation(Epoch(2), "http://two")
HERE = "http://here"


class Keys:
    """One for each leadership. What this node has drawn, all have read."""

    def __init__(self) -> None:
        self.drawn = {Epoch(n): bytes([n]) * 32 for n in range(1, 9)}
        self.forgotten: list[Epoch] = []

    def own(self, epoch: Epoch) -> list[bytes]:
        return [self.drawn[epoch]] if epoch in self.drawn else []

    async def of(self, epoch: Epoch) -> bytes | None:
        return self.drawn.get(epoch)

    def forget(self, epoch: Epoch) -> None:
        self.forgotten.append(epoch)


class Network(httpx.AsyncBaseTransport):
    """As the real one, it connects before it reads the body."""

    def __init__(self, node: Callable[[httpx.Request], Awaitable[httpx.Response]]) -> None:
        self._node = node

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._node(request)


class World:
    """This node, and the others as they answer."""

    def __init__(self, *, hold: float = 20.0) -> None:
        self.own: Epoch | None = None
        self.known: LeaderInformation | None = None
        self.absence: Absence | None = None
        self.news = asyncio.Event()
        self.nodes: dict[str, Callable[[httpx.Request], Awaitable[httpx.Response]]] = {}
        self.asked: list[tuple[str, bytes]] = []
        self.client = httpx.AsyncClient(transport=Network(self._node))
        self.answering = asyncio.Event()
        self.answering.set()
        self.scopes: list[Scope] = []
        self.keys = Keys()
        self.identity = NodeIdentity(self.keys)
        self.forwarding = Forwarding(self._app, cast("NodeView", self), self.identity, self.client, hold=hold)
        self.forwarding.address = HERE

    def learn(self, known: LeaderInformation | None) -> None:
        self.known = known
        self.news.set()
        self.news = asyncio.Event()

    @property
    def epoch(self) -> Epoch:
        if self.own is None:
            raise NotLeadingError("another one")
        return self.own

    def leader(self) -> LeaderInformation | None:
        return self.known

    async def leader_changed(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        try:
            async with asyncio.timeout(timeout):
                await self.news.wait()
        except TimeoutError:
            pass

    async def _node(self, request: httpx.Request) -> httpx.Response:
        host = f"http://{request.url.host}"
        handler = self.nodes.get(host)
        if handler is None:
            raise httpx.ConnectError("refused")
        self.asked.append((host, await request.aread()))
        return await handler(request)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        body = await Request(scope, receive).body()
        await self.answering.wait()
        await Response(b"here:" + body)(scope, receive, send)

    async def ask(
        self,
        method: str = "GET",
        path: str = "/jobs",
        body: bytes | AsyncIterator[bytes] = b"",
        token: str = "",
        headers: Sequence[tuple[bytes, bytes]] = (),
        certificate: dict[str, Any] | None = None,
    ) -> httpx.Response:
        async def inside(scope: Scope, receive: Receive, send: Send) -> None:
            extensions = {PEER_CERTIFICATE: certificate}
            await self.forwarding({**scope, "firesteel.principal": WHO, "extensions": extensions}, receive, send)

        transport = httpx.ASGITransport(inside)
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
            sent = [(b"authorization", f"Bearer {token}".encode()), *headers]
            return await client.request(method, path, content=body, headers=sent)


async def well(_: httpx.Request) -> httpx.Response:
    async def content() -> AsyncIterator[bytes]:
        yield b"well"

    return httpx.Response(200, content=content())


async def not_leading(_: httpx.Request) -> httpx.Response:
    return httpx.Response(503, headers={NOT_LEADING_HEADER: "true"}, json={"errors": ["no"]})


def play(main: Callable[[World], Awaitable[Any]], **more: Any) -> None:
    async def inside() -> None:
        world = World(**more)
        try:
            async with asyncio.timeout(60):
                await main(world)
        finally:
            await world.client.aclose()

    asyncio.run(inside())


async def settled(world: World, count: int) -> None:
    """Until so many nodes were asked, and what they said was taken in."""
    while len(world.asked) < count:  # noqa: ASYNC110 - of a transport that has no event
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)


def test_headers_go_on_as_they_came() -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def looking(request: httpx.Request) -> httpx.Response:
        seen.extend(request.headers.raw)
        return await well(request)

    async def main(world: World) -> None:
        world.known, world.nodes["http://one"] = ONE, looking
        answer = await world.ask(headers=[(b"x-odd", b"caf\xe9 \xff"), (b"cookie", b"secret")])
        assert answer.content == b"well"

    play(main)
    assert (b"x-odd", b"caf\xe9 \xff") in seen
    assert b"secret" not in [value for _, value in seen]


@pytest.mark.parametrize("first", ["nobody", "dead", "leads no more", "itself"])
def test_request_waits_for_the_next_leader_and_is_sent_there_whole(first: str) -> None:
    async def main(world: World) -> None:
        match first:
            case "dead":
                world.known = ONE
            case "leads no more":
                world.known = ONE
                world.nodes["http://one"] = not_leading
            case "itself":
                world.known = LeaderInformation(Epoch(1), HERE)  # not known yet that it was given away
        asking = asyncio.ensure_future(world.ask("POST", "/jobs", b"graph"))
        await asyncio.sleep(0.1)
        assert not asking.done()
        world.nodes["http://two"] = well
        world.learn(TWO)
        answer = await asking
        assert (answer.status_code, answer.content) == (200, b"well")
        assert world.asked[-1] == ("http://two", b"graph")
        assert [host for host, _ in world.asked].count("http://one") == (first == "leads no more")

    play(main)


def test_node_that_comes_to_lead_itself_answers_what_waited() -> None:
    async def main(world: World) -> None:
        world.known = ONE
        world.nodes["http://one"] = not_leading
        asking = asyncio.ensure_future(world.ask("POST", "/jobs", b"graph"))
        await settled(world, 1)
        world.own = Epoch(2)
        world.learn(LeaderInformation(Epoch(2), HERE))
        assert (await asking).content == b"here:graph", "also what was sent elsewhere before"

    play(main)


def test_what_may_have_been_done_is_not_sent_again() -> None:
    async def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("gone in the middle")

    async def main(world: World) -> None:
        world.known = ONE
        world.nodes = {"http://one": broken, "http://two": well}
        answer = await world.ask("POST", "/jobs", b"graph")
        assert answer.status_code == 503
        assert answer.headers["firesteel-degraded"] == "the leader at http://one does not answer"
        assert len(world.asked) == 1

    play(main)


def test_body_that_was_not_kept_is_not_sent_again() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 200_000

    async def main(world: World) -> None:
        world.known = ONE
        world.nodes["http://one"] = not_leading
        answer = await world.ask("POST", "/blobs", chunks())
        assert answer.status_code == 503
        # One that was never begun can be.
        world.nodes.clear()
        asking = asyncio.ensure_future(world.ask("POST", "/blobs", chunks()))
        await asyncio.sleep(0.1)
        world.nodes["http://two"] = well
        world.learn(TWO)
        assert (await asking).content == b"well"
        assert world.asked[-1] == ("http://two", b"x" * 600_000)

    play(main)


def test_nobody_waits_for_long_for_what_does_not_come() -> None:
    async def main(world: World) -> None:
        began = time.monotonic()
        answer = await world.ask()
        assert time.monotonic() - began >= 0.3
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert len(answer.json()["errors"]) == 2

    play(main, hold=0.3)


def test_nobody_waits_who_comes_when_there_has_been_no_leader_for_long() -> None:
    async def main(world: World) -> None:
        world.absence = Absence("no quorum at zk-1,\nzk-2 é away", time.time() - 3600, ONE)
        world.known = ONE
        answer = await world.ask()  # would take an hour
        assert answer.status_code == 503
        assert answer.headers["firesteel-degraded"] == "no quorum at zk-1, zk-2 ? away"
        assert "degraded since" in answer.json()["errors"][1]
        assert "no quorum at zk-1" in answer.json()["errors"][1]

    play(main, hold=3600.0)


def test_nobody_waits_at_a_node_that_ends_and_has_no_successor() -> None:
    async def main(world: World) -> None:
        asking = asyncio.ensure_future(world.ask())
        await asyncio.sleep(0.05)
        world.forwarding.give_up()
        assert (await asking).status_code == 503
        assert (await world.ask()).status_code == 503

    play(main, hold=3600.0)


@pytest.mark.parametrize("path", ["/cluster/status", "/v1/cluster/status/"])
@pytest.mark.parametrize("leader", ["none", "dead", "broken", "not leading"])
def test_status_is_answered_here_at_once_when_there_is_nobody_to_ask(path: str, leader: str) -> None:
    async def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("gone in the middle")

    async def main(world: World) -> None:
        world.known = None if leader == "none" else ONE
        if leader in {"broken", "not leading"}:
            world.nodes["http://one"] = broken if leader == "broken" else not_leading
        answer = await world.ask("GET", path)
        assert answer.content == b"here:"
        absence: Absence = world.scopes[0][ABSENCE]
        assert absence.reason
        assert absence.last_leader == world.known
        # A leader that answers is asked.
        world.nodes["http://two"] = well
        world.learn(TWO)
        assert (await world.ask("GET", path)).content == b"well"

    play(main, hold=3600.0)


def test_request_that_was_passed_on_is_told_at_once_that_nothing_was_done() -> None:
    async def main(world: World) -> None:
        world.known = TWO
        world.nodes["http://two"] = well
        token = await world.identity.token(WHO, Epoch(1), "GET /jobs")
        assert token is not None
        hop = await world.ask(token=token)
        assert (hop.status_code, NOT_LEADING_HEADER in hop.headers) == (503, True)
        world.own = Epoch(2)  # it leads, but was meant in another leadership
        hop = await world.ask(token=token)
        assert (hop.status_code, NOT_LEADING_HEADER in hop.headers) == (503, True)
        assert world.asked == []
        world.own = Epoch(1)
        assert (await world.ask(token=token)).content == b"here:"
        replayed = await world.ask(token=token)
        assert (replayed.status_code, CLOCK_HEADER in replayed.headers) == (401, True)

    play(main, hold=3600.0)


def test_a_leader_that_does_not_believe_is_asked_again_with_what_it_said() -> None:
    """Its key was drawn anew, or its clock is another: neither costs the caller an error."""
    untils: list[float] = []

    async def wary(request: httpx.Request) -> httpx.Response:
        text = request.headers["authorization"].partition(NODE_PREFIX)[2]
        untils.append(jwt.decode(text, options={"verify_signature": False})["until"])
        if len(untils) == 1:
            return httpx.Response(401, headers={CLOCK_HEADER: str(time.time() + 3600)}, json={"errors": ["no"]})
        return await well(request)

    async def main(world: World) -> None:
        world.known, world.nodes["http://one"] = ONE, wary
        assert (await world.ask("POST", body=b"graph")).content == b"well"
        assert world.keys.forgotten == [ONE.epoch]
        assert [body for _, body in world.asked] == [b"graph", b"graph"]
        assert (await world.ask()).content == b"well"
        assert len(untils) == 3

    play(main)
    assert untils[0] < time.time() + 60
    assert min(untils[1:]) > time.time() + 3500


def test_a_leader_whose_key_is_not_there_yet_is_waited_for() -> None:
    async def main(world: World) -> None:
        world.known, world.nodes["http://one"] = ONE, well
        key = world.keys.drawn.pop(ONE.epoch)
        asyncio.get_running_loop().call_later(0.1, world.keys.drawn.setdefault, ONE.epoch, key)
        assert (await world.ask()).content == b"well"

    play(main)


@pytest.mark.parametrize(
    ("certificate", "status"),
    [(None, 401), ("team-a", 401), ("node-2.example.org", 200)],
)
def test_where_callers_have_certificates_nodes_show_theirs(certificate: str | None, status: int) -> None:
    """S30: the key alone vouches for nobody."""
    shown = None if certificate is None else {"subject": ((("commonName", certificate),),)}

    async def main(world: World) -> None:
        world.own = Epoch(1)
        world.forwarding._callers = {"team-a": WHO}
        token = await world.identity.token(WHO, Epoch(1), "GET /jobs")
        assert token is not None
        assert (await world.ask(token=token, certificate=shown)).status_code == status

    play(main)


def test_finish_waits_for_what_was_accepted_and_not_for_streams() -> None:
    async def main(world: World) -> None:
        world.own = Epoch(1)
        await world.forwarding.finish()
        world.answering.clear()
        asking = asyncio.ensure_future(world.ask("POST", "/jobs", b"graph"))
        while not world.scopes:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        finishing = asyncio.ensure_future(world.forwarding.finish())
        await asyncio.sleep(0.05)
        assert not finishing.done()
        world.answering.set()
        await finishing
        assert (await asking).status_code == 200

    play(main)


def test_finish_does_not_wait_for_ever() -> None:
    async def main(world: World) -> None:
        world.own = Epoch(1)
        world.answering.clear()
        asking = asyncio.ensure_future(world.ask())
        while not world.scopes:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await world.forwarding.finish()
        assert not asking.done()
        world.answering.set()
        await asking
        await world.forwarding.finish()

    play(main)


def test_finish_does_not_wait_for_an_open_stream() -> None:
    async def main(world: World) -> None:
        over = asyncio.Event()
        sent: list[str] = []

        async def events() -> AsyncIterator[bytes]:
            yield b": hello\n\n"
            await over.wait()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await StreamingResponse(events())(scope, receive, send)

        async def send(message: Any) -> None:
            sent.append(message["type"])

        async def receive() -> Any:
            await over.wait()
            return {"type": "http.disconnect"}

        world.own = Epoch(1)
        world.forwarding._app = app
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/events",
            "raw_path": b"/events",
            "query_string": b"",
            "headers": [],
            "firesteel.principal": WHO,
        }
        streaming = asyncio.ensure_future(world.forwarding(scope, receive, send))
        while "http.response.body" not in sent:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert world.forwarding._unanswered == 0
        over.set()
        await streaming

    play(main)
