"""An application cluster: the program runs once, its jobs are its own, and everything ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.client.application import derived_id
from firesteel.client.cluster import AsyncClusterClient
from firesteel.config import Configuration, load_configuration
from firesteel.dispatcher.bootstrap import NOTHING_SUBMITTED
from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.entrypoint.application_status import ApplicationStatus
from firesteel.entrypoint.cluster_entrypoint import ClusterEntrypoint
from firesteel.entrypoint.wiring import NodeParts
from firesteel.errors import ForbiddenError, NotLeadingError
from firesteel.failure import Failure, FailureKind
from firesteel.ha.services import DATABASE, open_high_availability
from firesteel.jobgraph import parse_graph
from firesteel.jobgraph.admission import digest_of
from firesteel.jobgraph.application import ApplicationConfiguration
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.executor import Deployment
from firesteel.layout import APPLICATION_VARIABLE, ClusterLayout
from firesteel.status import JobStatus
from firesteel.stores.applications import ApplicationState
from firesteel.stores.job_graphs import Submission
from firesteel.testing.fakes import FakeEngines, FakeExecutor, Outcome
from firesteel.types import JobID, new_job_id

SECONDS = 20.0
FINISHED = AttemptResult(AttemptState.FINISHED, ended_at=1.0)
FAILED = AttemptResult(AttemptState.FAILED, Failure(FailureKind.USER_CODE, "ValueError: no"), 1.0)
CANCELED = AttemptResult(AttemptState.CANCELED, ended_at=1.0)


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def program(tmp_path: Path, api: str = "none") -> ApplicationConfiguration:
    file = tmp_path / "program.py"
    file.write_text("import firesteel\nfiresteel.connect()\n")
    vertex = {"kind": "script", "name": "script", "file": str(file), "api": api}
    return ApplicationConfiguration(new_job_id(), parse_graph({"name": "app", "vertices": [vertex]}))


def job(name: str) -> JobGraph:
    return parse_graph({"name": name, "vertices": [{"kind": "script", "name": "s", "file": "/x.py", "api": "connect"}]})


def configured(tmp_path: Path, **more: str) -> Configuration:
    settings = {
        "data.dir": str(tmp_path / "data"),
        "rest.port": "0",
        "jobmanager.archive.fs.dir": str(tmp_path / "old"),
    }
    settings |= {"high-availability.cluster-id": "application-1"}
    settings |= {k.replace("__", "."): v for k, v in more.items()}
    return load_configuration(overrides=settings, environ={"HOME": str(tmp_path)}, cwd=tmp_path)


class ApplicationNode:
    """A node of an application cluster in this process, whose attempts are names."""

    def __init__(
        self,
        configuration: Configuration,
        application: ApplicationConfiguration | None,
        executor: FakeExecutor,
        *,
        rest: bool = False,
        engines: FakeEngines | None = None,
    ) -> None:
        self.executor = executor
        parts = NodeParts(executor=executor, engines=engines or FakeEngines())
        self.entrypoint = ClusterEntrypoint(configuration, rest=rest, application=application, parts=parts)
        self.running = asyncio.ensure_future(self.entrypoint.run())

    @property
    def dispatcher(self) -> Dispatcher:
        component = self.entrypoint._component
        if component is None:
            raise NotLeadingError("not yet")
        return component.dispatcher

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS):
            while True:
                with contextlib.suppress(NotLeadingError, IndexError):
                    if condition():
                        return
                assert not self.running.done(), "the node has ended"
                await asyncio.sleep(0.01)

    async def started(self, count: int) -> Deployment:
        await self.until(lambda: len(self.executor.started) >= count)
        return self.executor.started[count - 1]

    async def submit(self, application: ApplicationConfiguration, name: str) -> JobID:
        """As the program would."""
        graph = job(name)
        job_id = derived_id(application.application_id, name, 1)
        await self.dispatcher.submit_job(Submission(job_id, graph, 1.0, digest_of(graph)))
        return job_id

    async def ended(self) -> ApplicationStatus:
        async with asyncio.timeout(SECONDS):
            return await self.running


def rows_left(configuration: Configuration) -> list[tuple[str, int]]:
    with contextlib.closing(sqlite3.connect(configuration.data.dir / DATABASE)) as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        counts = {t: database.execute(f"select count(*) from {t}").fetchone()[0] for t in tables}
    return [(t, n) for t, n in counts.items() if n and not t.startswith("sqlite_")]


async def left_in_store(configuration: Configuration) -> list[str]:
    ha = await open_high_availability(configuration)
    try:
        prefixes = ("graphs", "jobs", "results", "operations", "parked", "uploads", "cluster", "applications")
        return [path for prefix in prefixes for path in await ha.store.paths(prefix)]
    finally:
        await ha.close()


def end_note(configuration: Configuration) -> dict[str, object]:
    said: dict[str, object] = json.loads(ClusterLayout.of(configuration).application_end.read_text())
    return said


def only_program(outcome: AttemptResult | None) -> Outcome:
    """The program does what is said, all other jobs run until they are told to end."""
    return lambda deployment: outcome if deployment.graph.name == "app" else None


def test_application_of_one_job_ends_with_it_and_leaves_only_its_logs(tmp_path: Path) -> None:
    configuration, application = configured(tmp_path), program(tmp_path, "connect")

    async def main() -> ApplicationStatus:
        node = ApplicationNode(configuration, application, FakeExecutor(only_program(None)))
        deployment = await node.started(1)
        assert deployment.attempt.job_id == application.application_id
        await node.until(lambda: (a := node.dispatcher.application) and a.state is ApplicationState.RUNNING)
        assert {p.partition("/")[0] for p in await left_in_store(configuration)} >= {"graphs", "applications"}
        node.executor.end(application.application_id, FINISHED)
        return await node.ended()

    assert asyncio.run(main()) is ApplicationStatus.SUCCEEDED
    assert rows_left(configuration) == [("firesteel_meta", 1)]  # which version the tables are of
    assert asyncio.run(left_in_store(configuration)) == []
    assert not ClusterLayout.of(configuration).blobs.exists()
    assert end_note(configuration)["status"] == "SUCCEEDED"
    assert [p.name for p in (tmp_path / "old").rglob("*") if application.application_id in p.name]


def test_program_is_shipped_and_not_read_from_where_it_was(tmp_path: Path) -> None:
    configuration, application = configured(tmp_path), program(tmp_path)

    async def main() -> None:
        node = ApplicationNode(configuration, application, FakeExecutor(only_program(None)))
        deployment = await node.started(1)
        assert deployment.graph.script is not None
        assert deployment.graph.script.file.startswith("blob:")
        assert deployment.engine is None
        node.executor.end(application.application_id, FINISHED)
        await node.ended()

    asyncio.run(main())


def test_program_that_does_not_exist_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    configuration, application = configured(tmp_path), program(tmp_path)
    (tmp_path / "program.py").unlink()

    async def main() -> ApplicationStatus:
        return await ApplicationNode(configuration, application, FakeExecutor()).ended()

    assert asyncio.run(main()) is ApplicationStatus.START_FAILED
    assert [p for p in asyncio.run(left_in_store(configuration)) if not p.startswith("cluster/")] == []
    assert not ClusterLayout.of(configuration).blobs.exists()


def test_exception_in_the_program_is_failed_and_cancels_its_jobs(tmp_path: Path) -> None:
    configuration, application = configured(tmp_path), program(tmp_path)

    async def main() -> tuple[ApplicationStatus, JobStatus]:
        node = ApplicationNode(configuration, application, FakeExecutor(only_program(None)))
        await node.started(1)
        job_id = await node.submit(application, "one")
        await node.started(2)
        node.executor.end(application.application_id, FAILED)
        await node.until(lambda: node.dispatcher.application.state is not ApplicationState.RUNNING)  # type: ignore[union-attr]
        result = await node.dispatcher.request_job_result(job_id)
        return await node.ended(), result.status

    assert asyncio.run(main()) == (ApplicationStatus.FAILED, JobStatus.CANCELED)
    assert end_note(configuration)["exit_code"] == 1


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        (FINISHED, ApplicationStatus.SUCCEEDED),
        (FAILED, ApplicationStatus.FAILED),
    ],
)
def test_application_ends_when_all_its_jobs_have_ended(
    tmp_path: Path, ends: AttemptResult, status: ApplicationStatus
) -> None:
    configuration, application = configured(tmp_path), program(tmp_path)

    async def main() -> ApplicationStatus:
        node = ApplicationNode(configuration, application, FakeExecutor(only_program(None)))
        await node.started(1)
        first, second = await node.submit(application, "one"), await node.submit(application, "two")
        await node.started(3)
        node.executor.end(application.application_id, FINISHED)
        node.executor.end(first, FINISHED)
        await node.until(lambda: first not in node.dispatcher.unfinished_jobs())
        assert not node.running.done()
        node.executor.end(second, ends)
        return await node.ended()

    assert asyncio.run(main()) is status
    if status is ApplicationStatus.FAILED:
        assert "(two) has failed" in str(end_note(configuration)["failure"])


def test_cancel_of_the_application_cancels_all_its_jobs(tmp_path: Path) -> None:
    configuration, application = configured(tmp_path), program(tmp_path)

    async def main() -> ApplicationStatus:
        node = ApplicationNode(configuration, application, FakeExecutor(only_program(None)))
        await node.started(1)
        await node.submit(application, "one")
        await node.started(2)
        await node.dispatcher.cancel_application()
        return await node.ended()

    status = asyncio.run(main())
    assert (status, status.exit_code) == (ApplicationStatus.CANCELED, 130)


def test_jobs_whose_program_has_ended_can_be_cancelled_too(tmp_path: Path) -> None:
    configuration, application = configured(tmp_path), program(tmp_path)

    async def main() -> ApplicationStatus:
        node = ApplicationNode(configuration, application, FakeExecutor(only_program(None)))
        await node.started(1)
        await node.submit(application, "one")
        await node.started(2)
        node.executor.end(application.application_id, FINISHED)
        await node.until(lambda: application.application_id not in node.dispatcher.unfinished_jobs())
        await node.dispatcher.cancel_application()
        return await node.ended()

    assert asyncio.run(main()) is ApplicationStatus.CANCELED


def test_program_that_submits_nothing_is_an_error_that_says_so(tmp_path: Path) -> None:
    configuration, application = configured(tmp_path), program(tmp_path)

    async def main() -> ApplicationStatus:
        return await ApplicationNode(configuration, application, FakeExecutor()).ended()

    assert asyncio.run(main()) is ApplicationStatus.FAILED
    assert end_note(configuration)["failure"] == NOTHING_SUBMITTED


def test_signal_from_outside_is_unknown_and_the_next_node_goes_on(tmp_path: Path) -> None:
    configuration, application = configured(tmp_path), program(tmp_path)
    executor = FakeExecutor(only_program(None))

    async def main() -> tuple[ApplicationStatus, ApplicationStatus]:
        engines = FakeEngines()
        node = ApplicationNode(configuration, application, executor, engines=engines)
        await node.started(1)
        job_id = await node.submit(application, "one")
        await node.started(2)
        os.kill(os.getpid(), signal.SIGTERM)
        first = await node.ended()
        (tmp_path / "program.py").unlink()
        # Nothing says to this node that it is an application's, only the store.
        node = ApplicationNode(configuration, None, executor, engines=engines)
        await node.until(lambda: node.dispatcher.application is not None)
        # The program does again what it did; the job that runs is its job.
        assert await node.submit(application, "one") == job_id
        executor.end(job_id, FINISHED)
        executor.end(application.application_id, FINISHED)
        return first, await node.ended()

    first, second = asyncio.run(main())
    assert (first, first.exit_code) == (ApplicationStatus.UNKNOWN, 3)
    assert second is ApplicationStatus.SUCCEEDED
    assert [d.attempt.number for d in executor.started] == [1, 1]
    assert asyncio.run(left_in_store(configuration)) == []


def test_leader_that_died_before_it_had_started_the_program_is_made_up_for(tmp_path: Path) -> None:
    """Between the two writes: the application is accepted, and its program is not submitted."""
    configuration, application = configured(tmp_path), program(tmp_path)
    executor = FakeExecutor(only_program(None))

    async def main() -> ApplicationStatus:
        node = ApplicationNode(configuration, application, executor)

        async def dies(_self: Dispatcher, _submission: Submission) -> None:
            node.entrypoint.end(ApplicationStatus.FATAL_ERROR)
            await asyncio.Event().wait()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Dispatcher, "submit_job", dies)
            assert await node.ended() is ApplicationStatus.FATAL_ERROR
        assert executor.started == ()
        again = ApplicationNode(configuration, None, executor)
        await again.started(1)
        await again.submit(application, "one")
        await again.started(2)
        executor.end(application.application_id, FINISHED)
        executor.end(derived_id(application.application_id, "one", 1), FINISHED)
        return await again.ended()

    assert asyncio.run(main()) is ApplicationStatus.SUCCEEDED


# -- at its door ------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def at_the_door(
    tmp_path: Path,
) -> AsyncIterator[tuple[ApplicationNode, ApplicationConfiguration, AsyncClusterClient, Deployment]]:
    configuration, application = configured(tmp_path), program(tmp_path)
    node = ApplicationNode(configuration, application, FakeExecutor(only_program(None)), rest=True)
    deployment = await node.started(1)
    from firesteel.client.discovery import connect_async

    client = await asyncio.to_thread(connect_async, configuration)
    async with client:
        yield node, application, client, deployment
    node.executor.end(application.application_id, FAILED)
    await node.ended()


def test_foreign_submissions_and_uploads_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with at_the_door(tmp_path) as (_, application, client, _deployment):
            with pytest.raises(ForbiddenError, match=f"lives for application {application.application_id} alone"):
                await client.submit(job("other"), upload=False)
            with pytest.raises(ForbiddenError, match="takes no other jobs or files"):
                await client.upload(b"bytes")
            assert [j.job_id for j in await client.jobs()] == [application.application_id]

    asyncio.run(main())


def test_program_submits_with_what_its_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with at_the_door(tmp_path) as (node, application, _, deployment):
            environment = deployment.environment
            assert environment[APPLICATION_VARIABLE] == application.application_id
            mine = load_configuration(environ={"HOME": str(tmp_path), **environment}, cwd=tmp_path)
            monkeypatch.setenv(APPLICATION_VARIABLE, application.application_id)
            from firesteel.client.application import OF_THIS_PROCESS
            from firesteel.client.discovery import connect_async

            for _ in range(2):  # a program that runs again counts from the beginning
                OF_THIS_PROCESS._count.clear()
                async with await asyncio.to_thread(connect_async, mine) as client:
                    submitted = await client.submit(job("one"), upload=False)
                    assert submitted.job_id == derived_id(application.application_id, "one", 1)
            async with await asyncio.to_thread(connect_async, mine) as client:
                who = await client.whoami()
            assert who.name == f"application-{application.application_id}"
            await node.started(2)
            assert len(node.executor.started) == 2

    asyncio.run(main())


# -- how it comes to be -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0.0, 0.5, 0.99])
def test_client_that_dies_while_it_deploys_leaves_nothing(tmp_path: Path, cut: float) -> None:
    """The node gets all of the application, or it does not start."""
    definitions = {"data.dir": str(tmp_path / "data"), "rest.port": "0"}
    whole = json.dumps({"definitions": definitions, "application": program(tmp_path).to_json()}).encode()
    ended = subprocess.run(
        [sys.executable, "-m", "firesteel.entrypoint", "--application-from-stdin"],
        input=whole[: int(len(whole) * cut)],
        capture_output=True,
        env={**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")},
        check=False,
    )
    assert ended.returncode == ApplicationStatus.START_FAILED.exit_code
    assert b"the process that started this node is gone" in ended.stderr
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "state").exists()
