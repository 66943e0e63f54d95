"""A history server over HTTP: the API and the dashboard, through the same door as a node's (S19)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.history.archived import GRAPH, job, put

from firesteel.config import load_configuration
from firesteel.config.sections import Role
from firesteel.errors import InvalidConfigError, ServiceStartError
from firesteel.history.server import HistoryServer
from firesteel.rest.security.tokens import TokenFile
from firesteel.status import JobStatus
from firesteel.stores.operations import Operation, OperationKind, OperationStatus

PROGRESS = {
    "sinks": {"out": {"state": "committed"}},
    "rows": {"raw": 10, "out": 3},
    "operators": {"out": {"operators": [{"id": 1, "name": "Scan csv", "rows": 10}], "edges": []}},
}


class Served:
    def __init__(self, address: str, tokens: TokenFile) -> None:
        self.address = address
        self._tokens = tokens

    def client(self, owner: str, role: Role = Role.OPERATOR) -> httpx.AsyncClient:
        token = self._tokens.create(f"{owner}'s", role, owner)
        headers = {"authorization": f"Bearer {token}"}
        return httpx.AsyncClient(base_url=self.address, headers=headers, timeout=30, trust_env=False)


@contextlib.asynccontextmanager
async def serving(root: Path, **options: str) -> AsyncIterator[Served]:
    configuration = load_configuration(
        environ={"HOME": str(root)},
        overrides={
            "data.dir": str(root / "data"),
            "historyserver.archive.fs.dir": str(root / "archive"),
            "historyserver.archive.fs.refresh-interval": "50 ms",
            "historyserver.web.port": "0",
            **options,
        },
    )
    async with HistoryServer(configuration).open() as address:
        yield Served(address, TokenFile(configuration.security.tokens_file))


def served(root: Path, main: Callable[[Served], Awaitable[None]], **options: str) -> None:
    async def run() -> None:
        async with serving(root, **options) as server:
            await main(server)

    asyncio.run(run())


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + 30
    while not await condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def listed(client: httpx.AsyncClient, **query: Any) -> list[str]:
    return [row["jid"] for row in (await client.get("/history", params=query)).json()["jobs"]]


def test_archived_job_is_answered_as_a_node_answered_it(tmp_path: Path) -> None:
    put(tmp_path / "archive", 1, progress=PROGRESS)

    async def main(server: Served) -> None:
        async with server.client("alice") as alice:
            await until(lambda: _has(alice, job(1)))
            shown = (await alice.get(f"/jobs/{job(1)}")).json()
            assert (shown["name"], shown["state"]) == ("orders", "FINISHED")
            vertices = {v["name"]: v for v in shown["vertices"]}
            assert vertices["raw"]["metrics"]["write-records"] == 10
            assert (await alice.get(f"/v1/jobs/{job(1)}/story")).json()["chapters"]
            lineage = (await alice.get(f"/jobs/{job(1)}/lineage")).json()
            assert [c["name"] for c in lineage["inputs"][0]["columns"]] == ["id", "amount"]
            operators = (await alice.get(f"/jobs/{job(1)}/operators")).json()
            assert operators["sinks"][0]["operators"][0]["name"] == "Scan csv"
            assert (await alice.get("/jobs/overview")).json()["jobs"][0]["jid"] == job(1)
            assert (await alice.get("/jobs/list")).json()["jobs"][0]["id"] == job(1)
            assert (await alice.get("/taskmanagers")).json() == {"taskmanagers": []}
            assert (await alice.get(f"/jobs/{job(1)}/exceptions")).status_code == 200
            assert (await alice.get(f"/jobs/{job(2)}")).status_code == 404
            assert (await alice.get("/whoami")).json()["serves"] == "history"

    served(tmp_path, main)


def test_others_see_nothing_and_nobody_changes_anything(tmp_path: Path) -> None:
    put(tmp_path / "archive", 1)
    put(tmp_path / "archive", 2, owner="bob")

    async def main(server: Served) -> None:
        async with server.client("alice") as alice, server.client("*", Role.ADMIN) as admin:
            await until(lambda: _has(admin, job(2)))
            assert await listed(admin) == [job(2), job(1)]
            assert await listed(alice) == [job(1)]
            assert [j["id"] for j in (await alice.get("/jobs/list")).json()["jobs"]] == [job(1)]
            for path in ("", "/exceptions", "/lineage", "/execution-graph", "/story", "/logs"):
                assert (await alice.get(f"/jobs/{job(2)}{path}")).status_code == 404, path
            for request in (
                admin.post("/jobs", json={"graph": GRAPH}),
                admin.patch(f"/jobs/{job(1)}?mode=cancel"),
                admin.put("/blobs", content=b"x"),
                admin.delete("/cluster"),
                admin.post("/cluster/handover", json={}),
                admin.post(f"/jobs/{job(1)}/savepoints", json={}),
            ):
                answer = await request
                assert (answer.status_code, "history server" in answer.text) == (405, True), answer.request.url
        async with httpx.AsyncClient(base_url=server.address, trust_env=False) as nobody:
            for path in ("/jobs/overview", "/history", f"/jobs/{job(1)}", "/metrics", "/cluster/status"):
                assert (await nobody.get(path)).status_code == 401, path
            assert (await nobody.get("/healthz")).status_code == 200
            assert (await nobody.post("/jobs", json={"graph": GRAPH})).status_code == 401

    served(tmp_path, main)


def test_pages_search_and_state(tmp_path: Path) -> None:
    for number in range(1, 6):
        put(tmp_path / "archive", number, name=f"orders {number}", status=_status(number))

    async def main(server: Served) -> None:
        async with server.client("alice") as alice:
            await until(lambda: _has(alice, job(5)))
            await until(lambda: _has(alice, job(1)))
            page = (await alice.get("/history?limit=2")).json()
            assert [r["jid"] for r in page["jobs"]] == [job(5), job(4)]
            assert await listed(alice, limit=2, before=page["next"]) == [job(3), job(2)]
            assert await listed(alice, search="ORDERS 3") == [job(3)]
            assert await listed(alice, search=job(2)[:32]) == [job(2)]
            assert await listed(alice, state="failed,canceled") == [job(4), job(2)]
            assert await listed(alice, search="3 4") == []

    served(tmp_path, main)


def test_new_archive_is_found_and_told_to_those_who_listen(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()

    async def main(server: Served) -> None:
        async with server.client("alice") as alice, alice.stream("GET", "/events") as events:
            assert events.status_code == 200
            put(tmp_path / "archive", 1)
            async for line in events.aiter_lines():
                if line.startswith("data:") and job(1) in line:
                    break
            assert await listed(alice) == [job(1)]

    served(tmp_path, main)


def test_savepoints_of_an_archived_stream(tmp_path: Path) -> None:
    stream = {
        "name": "s",
        "mode": "streaming",
        "vertices": [
            {"kind": "source", "name": "raw", "format": "rate"},
            {"kind": "sink", "name": "out", "input": "raw", "format": "noop", "mode": "append"},
        ],
    }
    done = Operation(
        job(1), "t1", OperationKind.SAVEPOINT, 1.0, {}, "/sp/1", OperationStatus.COMPLETED, 2.0, {"location": "/sp/1"}
    )
    put(tmp_path / "archive", 1, operations=(done,), graph=stream)

    async def main(server: Served) -> None:
        async with server.client("alice") as alice:
            await until(lambda: _has(alice, job(1)))
            shown = (await alice.get(f"/jobs/{job(1)}/checkpoints")).json()
            assert shown["latest"]["savepoint"]["external_path"] == "/sp/1"

    served(tmp_path, main)


def test_it_has_to_be_told_where_archives_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"historyserver\.archive\.fs\.dir"):
        served(tmp_path, _nothing, **{"historyserver.archive.fs.dir": ""})


def test_open_to_the_network_without_tls_it_does_not_start(tmp_path: Path) -> None:
    with pytest.raises((ServiceStartError, InvalidConfigError), match=r"security\.ssl"):
        served(tmp_path, _nothing, **{"historyserver.web.address": "0.0.0.0"})


async def _nothing(_server: Served) -> None:
    raise AssertionError("it started")


async def _has(client: httpx.AsyncClient, job_id: str) -> bool:
    return (await client.get(f"/jobs/{job_id}")).status_code == 200


def _status(number: int) -> JobStatus:
    return {2: JobStatus.FAILED, 4: JobStatus.CANCELED}.get(number, JobStatus.FINISHED)


@pytest.mark.slow
def test_the_command_serves_until_a_signal_ends_it(tmp_path: Path) -> None:
    put(tmp_path / "archive", 1)
    command = [sys.executable, "-c", "from firesteel.cli.main import main; main()", "history-server"]
    settings = {
        "data.dir": tmp_path / "data",
        "historyserver.archive.fs.dir": tmp_path / "archive",
        "historyserver.web.port": 0,
    }
    command += [f"-D{key}={value}" for key, value in settings.items()]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert str(tmp_path / "archive") in said
        address = said.rpartition(" ")[2].strip().rstrip(".")
        assert httpx.get(f"{address}/healthz", trust_env=False).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()
