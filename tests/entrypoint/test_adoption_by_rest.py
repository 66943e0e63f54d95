"""A node that comes to lead serves while it takes jobs over, and tells which ones it has not come to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from tests.conftest import graph_of
from tests.support.sleeper import sleeper

from firesteel.attempts.attempt import AttemptDirectory, AttemptSpec
from firesteel.client.local_token import ask_for_token
from firesteel.config import Configuration, load_configuration
from firesteel.engines.record import EngineDirectory, EngineRecord, EngineSpec
from firesteel.entrypoint.cluster_entrypoint import ClusterEntrypoint
from firesteel.entrypoint.component import DispatcherResourceManagerComponent
from firesteel.errors import NotLeadingError
from firesteel.fs.files import private_dir, write_json
from firesteel.ha.protocols import Epoch
from firesteel.ha.services import open_high_availability
from firesteel.hosts import this_host
from firesteel.jobgraph.admission import digest_of
from firesteel.jobmaster import master
from firesteel.jobmaster.machine import JobState
from firesteel.processes import ProcessIdentity
from firesteel.stores.job_graphs import JobGraphStore, Submission
from firesteel.stores.job_records import JobRecordStore
from firesteel.types import AttemptId, JobID, new_job_id
from firesteel.worker.engines import LocalEngineProvider


@pytest.fixture
def process() -> Iterator[ProcessIdentity]:
    """In place of a driver and of an engine: something that runs."""
    with sleeper() as found:
        yield found


class EarlierLife:
    """What a leader left behind that was killed while its jobs ran."""

    def __init__(self, directory: Path, process: ProcessIdentity) -> None:
        self.process = process
        self.home = private_dir(directory / "clusters" / "default")
        self.configuration = configuration(directory)
        self.engine = EngineRecord("e1", EngineSpec("local[2]", "1g"), "localhost", 1, process=process, started_at=1e9)
        EngineDirectory(self.home).save(self.engine)
        self.jobs: list[JobID] = []

    async def leave(self, *workers: str) -> None:
        """A running job on each worker; empty is that of this node."""
        services = await open_high_availability(self.configuration)
        try:
            election = services.election("earlier")
            granted: asyncio.Future[Epoch] = asyncio.get_running_loop().create_future()
            await election.start(Listener(granted))
            epoch = await asyncio.wait_for(granted, 30)
            for worker in workers:
                await self._leave(JobGraphStore(services.store), JobRecordStore(services.store), epoch, worker)
            await election.close()
        finally:
            await services.close()

    async def _leave(self, graphs: JobGraphStore, records: JobRecordStore, epoch: Epoch, worker: str) -> None:
        job_id = new_job_id()
        graph = graph_of(
            {"kind": "source", "name": "i", "format": "rate"},
            {"kind": "sink", "name": "o", "input": "i", "format": "noop", "trigger": "30 s"},
            mode="streaming",
        )
        await graphs.put(Submission(job_id, graph, time.time(), digest_of(graph)), epoch=epoch)
        state = JobState(graph.settings.restart, attempt=1, deployed=True, engine_id="e1", worker=worker)
        await records.put(job_id, state.record(), epoch=epoch)
        self.jobs.append(job_id)
        if not worker:
            directory = AttemptDirectory(self.home / "jobs" / job_id / "attempts" / "1")
            directory.prepare(AttemptSpec(AttemptId(job_id, 1), graph, self.engine, host=str(this_host())))
            write_json(directory.driver, {"pid": self.process.pid, "started": self.process.started})


class Listener:
    def __init__(self, granted: asyncio.Future[Epoch]) -> None:
        self._granted = granted

    def on_grant(self, epoch: Epoch) -> None:
        self._granted.set_result(epoch)

    def on_revoke(self) -> None: ...

    def on_error(self, error: Exception) -> None:
        self._granted.set_exception(error)


def configuration(directory: Path) -> Configuration:
    return load_configuration(
        overrides={"data.dir": str(directory), "rest.port": "0", "engine.reuse": "false"},
        environ={"HOME": str(directory)},
    )


@contextlib.asynccontextmanager
async def node(life: EarlierLife) -> AsyncIterator[tuple[DispatcherResourceManagerComponent, httpx.AsyncClient]]:
    async with ClusterEntrypoint(life.configuration, rest=True).open() as component:
        told = json.loads((life.home / "rest.json").read_text())
        headers = {"Authorization": f"Bearer {ask_for_token(told['socket'])}"}
        async with httpx.AsyncClient(base_url=told["address"], headers=headers) as http:
            async with asyncio.timeout(60):
                while not leads(component):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            yield component, http


def leads(component: DispatcherResourceManagerComponent) -> bool:
    with contextlib.suppress(NotLeadingError):
        return component.epoch > 0
    return False


async def until(http: httpx.AsyncClient, job_id: JobID, state: str) -> None:
    async with asyncio.timeout(60):
        while await told(http, job_id) != state:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def told(http: httpx.AsyncClient, job_id: JobID) -> str:
    rows = (await http.get("/jobs/overview")).raise_for_status().json()["jobs"]
    [state] = [row["state"] for row in rows if row["jid"] == job_id]
    assert isinstance(state, str)
    return state


def test_job_is_told_as_reconciling_while_its_engine_is_looked_for(
    tmp_path: Path, process: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        life = EarlierLife(tmp_path, process)
        await life.leave("")
        [job] = life.jobs
        looked = asyncio.Event()
        there = LocalEngineProvider.there

        async def slowly(provider: LocalEngineProvider, record: EngineRecord) -> bool:
            await looked.wait()
            return await there(provider, record)

        monkeypatch.setattr(LocalEngineProvider, "there", slowly)
        async with node(life) as (_, http):
            assert await told(http, job) == "RECONCILING"
            details = (await http.get(f"/jobs/{job}")).json()
            assert details["state"] == "RECONCILING"
            looked.set()
            # The engine answers nothing, as it is none; the job is taken over all the same, as what runs there runs on.
            await until(http, job, "RUNNING")
            attempts = sorted(p.name for p in (life.home / "jobs" / job / "attempts").iterdir())
            assert attempts == ["1"]
        assert process.alive

    asyncio.run(main())


def test_job_of_a_worker_that_has_not_come_is_told_with_what_to_do(
    tmp_path: Path, process: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master, "AWAITED_SECONDS", 0.1)

    async def main() -> None:
        life = EarlierLife(tmp_path, process)
        await life.leave("", "w00000000000000ff")
        here, elsewhere = life.jobs
        async with node(life) as (_, http):
            await until(http, here, "RUNNING")
            assert await told(http, elsewhere) == "RECONCILING"
            async with asyncio.timeout(60):
                while "w00000000000000ff" not in (await http.get(f"/jobs/{elsewhere}/exceptions")).text:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            shown = (await http.get(f"/jobs/{elsewhere}/exceptions")).raise_for_status().text
            assert "firesteel worker list" in shown
            assert not (life.home / "jobs" / elsewhere / "attempts").exists()

    asyncio.run(main())
