"""Two nodes of one cluster: the one that follows asks the leader on behalf of its callers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from firesteel.config import Configuration, load_configuration
from firesteel.config.sections import Role
from firesteel.entrypoint.cluster_entrypoint import ClusterEntrypoint
from firesteel.entrypoint.component import DispatcherResourceManagerComponent
from firesteel.errors import NotLeadingError
from firesteel.rest.node_identity import NodeIdentity
from firesteel.rest.security.principals import Principal
from firesteel.rest.security.tokens import TokenFile
from firesteel.stores.secrets import NodeKeys

GRAPH = {
    "name": "waits",
    "vertices": [
        {"kind": "sql", "name": "one", "query": "SELECT 1 AS x"},
        {"kind": "sink", "name": "out", "input": "one", "format": "noop", "mode": "overwrite"},
    ],
}


class Nodes:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tokens = TokenFile(directory / "tokens.json")
        self.operator = self.tokens.create("ann", Role.OPERATOR, "team-a")
        self.stranger = self.tokens.create("bob", Role.OPERATOR, "team-b")

    def configuration(self) -> Configuration:
        return load_configuration(
            overrides={
                "data.dir": str(self.directory),
                "rest.port": "0",
                # No engine ever comes up: the jobs of these tests wait, which costs nothing.
                "engine.master": "spark://127.0.0.1:9",
                "high-availability.lease-duration": "5 s",
            },
            environ={"HOME": str(self.directory)},
        )

    @contextlib.asynccontextmanager
    async def node(self) -> AsyncIterator[tuple[DispatcherResourceManagerComponent, str]]:
        async with ClusterEntrypoint(self.configuration(), rest=True).open() as component:
            rest = json.loads((self.directory / "clusters" / "default" / "rest.json").read_text())
            yield component, rest["address"]


async def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def leads(component: DispatcherResourceManagerComponent) -> bool:
    with contextlib.suppress(NotLeadingError):
        return component.epoch > 0
    return False


def as_(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def test_follower_forwards_identity_and_never_the_credential(nodes: Nodes) -> None:
    """S32: what the leader gets is who asks, signed by a node; it is good for one request of one leadership."""

    async def main() -> None:
        async with nodes.node() as (first, leader), httpx.AsyncClient() as http:
            await until(lambda: leads(first))
            async with nodes.node() as (second, follower):
                await until(lambda: (found := second.leader()) is not None and found.address == leader)
                assert not leads(second)
                submitted = await http.post(f"{follower}/jobs", json={"graph": GRAPH}, headers=as_(nodes.operator))
                assert submitted.status_code == 202, submitted.text
                job = submitted.json()["jobId"]
                assert first.dispatcher.owner_of(job) == "team-a"
                mine = await http.get(f"{follower}/v1/jobs/overview", headers=as_(nodes.operator))
                assert [j["jid"] for j in mine.json()["jobs"]] == [job]
                others = await http.get(f"{follower}/jobs/overview", headers=as_(nodes.stranger))
                assert others.json() == {"jobs": []}
                assert (await http.get(f"{follower}/jobs/{job}", headers=as_(nodes.stranger))).status_code == 404
                assert (await http.get(f"{follower}/jobs")).status_code == 401
                cancelled = await http.patch(f"{follower}/jobs/{job}", headers=as_(nodes.operator))
                assert cancelled.status_code == 202
                # The audit log of the leader names the caller, not a node.
                text = ""

                def noted() -> bool:
                    nonlocal text
                    text = (nodes.directory / "clusters/default/audit.log").read_text()
                    return text.count('"ann"') >= 4

                await until(noted)
                assert nodes.operator not in text

    asyncio.run(main())


def test_claims_of_nodes_cannot_be_forged_replayed_or_passed_on_twice(nodes: Nodes) -> None:
    async def main() -> None:
        async with nodes.node() as (first, leader), httpx.AsyncClient() as http:
            await until(lambda: leads(first))
            admin = Principal("mallory", Role.ADMIN, "*")
            store = first.dispatcher._services.graphs._store

            async def status(signing: NodeIdentity, path: str = "/jobs/overview", method: str = "GET") -> int:
                token = await signing.token(admin, first.epoch, "GET /jobs/overview")
                assert token is not None
                return (await http.request(method, f"{leader}{path}", headers=as_(token))).status_code

            assert await status(NodeIdentity(Constant(b"k" * 32))) == 401
            real = NodeIdentity(NodeKeys(store))
            assert await status(real) == 200
            # For another request, or too late, or too long, it is worth nothing.
            assert await status(real, "/jobs") == 401
            assert await status(real, "/cluster", "DELETE") == 401
            for ahead in (-7200, 3600, 1e300):
                clock = partial(_shifted, ahead)
                assert await status(NodeIdentity(NodeKeys(store), now=clock)) == 401, ahead
            # One claim is one request.
            once = await real.token(admin, first.epoch, "GET /jobs/overview")
            assert once is not None
            answers = [await http.get(f"{leader}/jobs/overview", headers=as_(once)) for _ in range(2)]
            assert [a.status_code for a in answers] == [200, 401]
            # The key of another leadership is none.
            key = await NodeKeys(store).of(first.epoch)
            assert key is not None
            assert await NodeKeys(store).of(type(first.epoch)(first.epoch + 1)) is None
            async with nodes.node() as (second, follower):
                await until(lambda: second.leader() is not None)
                # A follower that is told a request was passed on to it does not pass it on again.
                good = await real.token(admin, first.epoch, "GET /jobs/overview")
                assert good is not None
                hop = await http.get(f"{follower}/jobs/overview", headers=as_(good))
                assert hop.status_code == 401
                assert float(hop.headers["firesteel-clock"]) > 0

    asyncio.run(main())


@pytest.mark.slow
def test_a_key_is_worth_nothing_after_its_leadership(nodes: Nodes) -> None:
    """S31: whoever once read the store vouches for nobody any more."""

    async def main() -> None:
        admin = Principal("mallory", Role.ADMIN, "*")
        async with httpx.AsyncClient() as http:
            async with nodes.node() as (first, _):
                await until(lambda: leads(first))
                stolen = await NodeKeys(first.dispatcher._services.graphs._store).of(first.epoch)
                assert stolen is not None
            async with nodes.node() as (second, leader):
                await until(lambda: leads(second))
                token = await NodeIdentity(Constant(stolen)).token(admin, second.epoch, "GET /jobs/overview")
                assert token is not None
                assert (await http.get(f"{leader}/jobs/overview", headers=as_(token))).status_code == 401

    asyncio.run(main())


def test_follower_without_a_leader_says_so_and_leads_next(nodes: Nodes) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as both, httpx.AsyncClient() as http:
            leading = contextlib.AsyncExitStack()
            first, _ = await leading.enter_async_context(nodes.node())
            await until(lambda: leads(first))
            second, follower = await both.enter_async_context(nodes.node())
            await until(lambda: second.leader() is not None)
            await leading.aclose()
            statuses = set()

            async def answers() -> bool:
                got = await http.get(f"{follower}/jobs/overview", headers=as_(nodes.operator))
                statuses.add(got.status_code)
                return got.status_code == 200

            deadline = time.monotonic() + 60
            while not await answers():
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            assert statuses <= {200, 503}
            assert leads(second)
            assert (await http.get(f"{follower}/healthz")).json() == {"status": "ok"}
            announced = nodes.directory / "clusters" / "default" / "rest.json"
            # Whoever was announced is gone; the one that is left announces itself.
            await until(lambda: announced.exists() and json.loads(announced.read_text())["address"] == follower)

    asyncio.run(main())


def _shifted(ahead: float) -> float:
    return time.time() + ahead


class Constant:
    """A key that somebody made up, or found."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def own(self, epoch: object) -> list[bytes]:
        return [self._key]

    async def of(self, epoch: object) -> bytes:
        return self._key

    def forget(self, epoch: object) -> None:
        pass
