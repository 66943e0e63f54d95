"""What the load and the observers say is so: readers of outputs, diaries, stores and processes, each against the real thing."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.needs import missing
from tests.support import sleeper as sleeping
from tests.support.postgresql import HOW_TO_GET_IT, binaries, servers
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer

from firesteel.client.cluster import ClusterClient
from firesteel.client.errors import ClusterError, ClusterUnreachableError
from firesteel.config import Configuration, load_configuration
from firesteel.engines.launcher import remove
from firesteel.engines.record import EngineDirectory, EngineRecord, EngineSpec
from firesteel.errors import DuplicateJobError, FiresteelError, JobNotFoundError
from firesteel.ha.protocols import Epoch, HighAvailabilityServices
from firesteel.ha.services import open_high_availability
from firesteel.jobgraph import JobGraph
from firesteel.processes import ProcessIdentity
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import JobGraphStore, Submission
from firesteel.stores.job_records import JobRecordStore
from firesteel.stores.job_results import JobResult, JobResultStore
from firesteel.types import JobID
from firesteel_chaos.cluster import StagedCluster
from firesteel_chaos.history import History
from firesteel_chaos.invariants import Bounds, check
from firesteel_chaos.observer import Observer
from firesteel_chaos.report import summary
from firesteel_chaos.sightings import Drivers, Engines, Witnesses, ancestor, usage
from firesteel_chaos.sites import Site
from firesteel_chaos.store_view import StoreUnreadableError, StoreView, open_store_view
from firesteel_chaos.workload import Workload
from firesteel_chaos.workload.calls import RecordingClient
from firesteel_chaos.workload.errands import Planned
from firesteel_chaos.workload.leftovers import leftovers, look_at_savepoints
from firesteel_chaos.workload.outputs import Feeder, compare, ids_in, read_diary
from firesteel_chaos.workload.programs import (
    PROGRAM_DIGEST,
    ScriptPlan,
    batch_graph,
    digest_of,
    script_graph,
    stream_graph,
)

JOB = JobID("a" * 32)


# -- what is seen ----------------------------------------------------------------------------------------------------


def test_end_of_an_engine_is_seen_when_its_directory_is_gone(tmp_path: Path) -> None:
    directory = EngineDirectory(tmp_path)
    engines = Engines(tmp_path, tmp_path / "nothing")
    assert engines.look() == []
    assert not (tmp_path / "nothing").exists()
    with sleeping.sleeper() as process:
        directory.save(EngineRecord("e1", EngineSpec("local[1]"), "localhost", 1, process=process))
        assert engines.look() == [("e1", process, True)]
        remove(directory, "e1")
        assert engines.look() == [("e1", process, True)]
    assert engines.look() == [("e1", process, False)]
    assert engines.look() == []


# -- outputs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ([0, 1, 2], {}),
        ([0, 2], {"missing": 1}),
        ([0, 1, 1, 2], {"repeated": 1}),
        ([0, 1, 2, 3], {"strange": 1}),
        ([], {"missing": 3}),
    ],
)
def test_rows_are_compared(found: list[int], wrong: dict[str, int]) -> None:
    count = compare(found, 3)
    assert {k: v for k, v in count.to_json().items() if k in ("missing", "repeated", "strange") and v} == wrong
    assert count.good is not bool(wrong)


def write_rows(file: Path, ids: Sequence[int]) -> None:
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), file)


def test_only_committed_files_of_a_stream_count(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for name, ids in (("a", [0, 1]), ("b", [2]), ("never", [9])):
        write_rows(tmp_path / f"{name}.parquet", ids)

    def entry(name: str) -> str:
        return json.dumps({"path": f"file://{tmp_path}/{name}.parquet"})

    (log / "0.compact").write_text("v1\n" + entry("a") + "\n")
    # A compacted entry repeats what came before it.
    (log / "9.compact").write_text("v1\n" + entry("a") + "\n")
    (log / "10").write_text("v1\n" + entry("b") + "\n")
    (log / ".11.tmp").write_text("v1\n" + entry("never") + "\n")
    assert ids_in(tmp_path) == [0, 1, 2]


def test_batch_output_is_all_its_files(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.parquet", [1, 0])
    assert ids_in(tmp_path) == [0, 1]


def test_feeder_writes_whole_files(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path / "in")
    until(lambda: feeder.next >= 20, "nothing is fed")
    feeder.stop()
    files = sorted(feeder.directory.glob("*.json"))
    fed = [json.loads(line)["id"] for f in files for line in f.read_text().splitlines()]
    assert fed == list(range(feeder.next))


def test_diary_is_read(tmp_path: Path) -> None:
    diary = tmp_path / "d.jsonl"
    assert read_diary(diary) == []
    lines: list[dict[str, Any]] = [
        {"what": "began", "pid": 1, "at": 1.0, "digest": "x"},
        {"what": "began", "pid": 2, "at": 2.0, "digest": "x"},
        {"what": "ended", "pid": 1, "at": 3.0, "how": "failed"},
    ]
    diary.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"what": "en')
    first, second = read_diary(diary)
    assert (first.pid, first.began, first.ended, first.how) == (1, 1.0, 3.0, "failed")
    assert (second.pid, second.ended, second.how) == (2, None, "")


def test_plans_say_how_they_end() -> None:
    assert ScriptPlan().ends == "FINISHED"
    assert ScriptPlan(failures=2, restarts=3).ends == "FINISHED"
    assert ScriptPlan(failures=2, restarts=1).ends == "FAILED"
    assert ScriptPlan(cancel=True).ends == "CANCELED"


def test_graphs_are_valid_and_told_apart(tmp_path: Path) -> None:
    graphs = [
        batch_graph(tmp_path, 5),
        batch_graph(tmp_path, 6),
        stream_graph(tmp_path / "i", tmp_path / "o"),
        stream_graph(tmp_path / "i", tmp_path / "o", restore="/s"),
        script_graph(f"blob:{PROGRAM_DIGEST}/p.py", tmp_path / "d", ScriptPlan()),
        script_graph(f"blob:{PROGRAM_DIGEST}/p.py", tmp_path / "d", ScriptPlan(restarts=0)),
    ]
    assert len({digest_of(g) for g in graphs}) == len(graphs)
    for graph in graphs:
        # As a cluster shows it, with all defaults.
        shown = JobGraph.model_validate(graph).model_dump(mode="json", by_alias=True, exclude_none=True)
        assert digest_of(shown) == digest_of(graph)


def test_savepoints_are_looked_at(tmp_path: Path) -> None:
    content = b"offsets"
    file = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest = {"data": "data-00000000", "sinks": {"o": {"files": {"checkpoint/offsets/0": file}}}}
    for name, found in (("whole", content), ("damaged", b"offsetz"), ("half", None)):
        place = tmp_path / name / "data-00000000" / "o" / "checkpoint" / "offsets"
        place.mkdir(parents=True)
        if found is not None:
            (place / "0").write_bytes(found)
        (tmp_path / name / "_savepoint.json").write_text(json.dumps(manifest))
    (tmp_path / "without").mkdir()
    names = ("whole", "damaged", "half", "without", "gone")
    with History(tmp_path / "h.jsonl") as history:
        look_at_savepoints(history, [(JOB, str(tmp_path / n)) for n in names])
        assert [e["present"] for e in history.events()] == [True, False, False, False, False]


# -- clients ---------------------------------------------------------------------------------------------------------


class NoCluster:
    addresses = ("http://127.0.0.1:1", "http://127.0.0.1:2")
    token = "t"
    ca = None
    cluster_id = "default"

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def nodes(self) -> list[Any]:
        return []

    def client(self) -> ClusterClient:
        raise AssertionError("nothing here asks a node")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "ok"),
        (ClusterUnreachableError("nobody"), "unknown"),
        (ClusterError("500", status=500), "unknown"),
        (ClusterError("404", status=404), "refused"),
        (JobNotFoundError("no such job"), "refused"),
        (DuplicateJobError("another job"), "refused"),
    ],
)
def test_calls_are_written_down_before_and_after(tmp_path: Path, error: FiresteelError | None, outcome: str) -> None:
    with History(tmp_path / "h.jsonl") as history:
        client = RecordingClient("c", NoCluster(tmp_path), history, random.Random(1))  # type: ignore[arg-type]
        seen: list[int] = []

        def do(_: ClusterClient) -> str:
            seen.append(len(history.events()))
            if error is not None:
                raise error
            return "done"

        told = client.ask("submit", JOB, do, digest="d")
        client.close()
        assert seen == [1]
        call, answer = history.events()
        assert (call["what"], call["job"], call["args"]) == ("submit", JOB, {"digest": "d"})
        assert (answer["id"], answer["outcome"], told.outcome) == (call["id"], outcome, outcome)
        if error is not None:
            assert answer["error"].startswith(type(error).__name__)


# -- processes -------------------------------------------------------------------------------------------------------


class FakeAttempt:
    """Files as a driver leaves them; the process is a real one."""

    def __init__(self, jobs: Path, number: int, process: ProcessIdentity) -> None:
        self.root = jobs / JOB / "attempts" / str(number)
        (self.root / "output").mkdir(parents=True)
        self.names(process)

    def names(self, process: ProcessIdentity) -> None:
        (self.root / "driver.json").write_text(json.dumps({"pid": process.pid, "started": process.started}))

    def finish(self) -> None:
        (self.root / "output" / "result.json").write_text("{}")


Sleeper = Callable[[], ProcessIdentity]


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    with contextlib.ExitStack() as started:
        yield lambda: started.enter_context(sleeping.sleeper())


def test_drivers_are_seen_to_come_and_go(tmp_path: Path, sleeper: Sleeper) -> None:
    drivers = Drivers(tmp_path)
    assert drivers.look() == []
    process = sleeper()
    attempt = FakeAttempt(tmp_path, 1, process)
    [seen] = drivers.look()
    assert (seen.job, seen.attempt, seen.process.pid, seen.working) == (JOB, 1, process.pid, True)
    assert drivers.look() == []
    attempt.finish()
    [seen] = drivers.look()
    assert not seen.working
    assert drivers.look() == []
    # Ended for good, and yet there is another attempt.
    FakeAttempt(tmp_path, 2, sleeper())
    [seen] = drivers.look()
    assert (seen.attempt, seen.working) == (2, True)


def test_driver_that_goes_on_or_dies_works_no_more(tmp_path: Path, sleeper: Sleeper) -> None:
    drivers = Drivers(tmp_path)
    first = FakeAttempt(tmp_path, 1, sleeper())
    drivers.look()
    (first.root / "driver.json").unlink()
    assert [d.working for d in drivers.look()] == [False]
    process = sleeper()
    FakeAttempt(tmp_path, 2, process)
    assert [d.attempt for d in drivers.look()] == [2]
    process.signal(signal.SIGKILL)
    assert process.wait(20)
    assert [(d.attempt, d.working) for d in drivers.look()] == [(2, False)]


def test_driver_whose_place_another_took_is_seen_to_have_gone(tmp_path: Path, sleeper: Sleeper) -> None:
    drivers = Drivers(tmp_path)
    process, other = sleeper(), sleeper()
    attempt = FakeAttempt(tmp_path, 1, process)
    drivers.look()
    process.signal(signal.SIGKILL)
    assert process.wait(20)
    attempt.names(other)
    assert [(d.process.pid, d.working) for d in drivers.look()] == [(process.pid, False), (other.pid, True)]


def test_end_of_one_comes_before_the_beginning_of_the_next(tmp_path: Path, sleeper: Sleeper) -> None:
    drivers = Drivers(tmp_path)
    first = FakeAttempt(tmp_path, 1, sleeper())
    drivers.look()
    first.finish()
    FakeAttempt(tmp_path, 2, sleeper())
    assert [(d.attempt, d.working) for d in drivers.look()] == [(1, False), (2, True)]


def test_ancestors_and_usage(sleeper: Sleeper) -> None:
    process = sleeper()
    assert ancestor(process.pid, {os.getpid()}) == os.getpid()
    assert ancestor(process.pid, {process.pid, os.getpid()}) == process.pid
    assert ancestor(process.pid, set()) is None
    used = usage(os.getpid())  # the other one may only just have begun
    assert used is not None
    assert used["rss_kb"] > 1000
    assert used["threads"] >= 1
    assert used["descriptors"] >= 3
    process.signal(signal.SIGKILL)
    assert process.wait(20)
    assert usage(process.pid) is None


def test_notes_of_nodes_are_read_as_they_grow(tmp_path: Path) -> None:
    witnesses = Witnesses(tmp_path)
    with (tmp_path / "1.jsonl").open("w") as file:
        file.write('{"epoch": 1}\n{"epo')
        file.flush()
        assert witnesses.look() == [{"epoch": 1}]
        file.write('ch": 2}\n')
        file.flush()
        assert witnesses.look() == [{"epoch": 2}]
    assert witnesses.look() == []


# -- stores ----------------------------------------------------------------------------------------------------------


class Granted:
    def __init__(self) -> None:
        self.epoch: asyncio.Future[Epoch] = asyncio.get_running_loop().create_future()

    def on_grant(self, epoch: Epoch) -> None:
        self.epoch.set_result(epoch)

    def on_revoke(self) -> None:
        pass

    def on_error(self, error: Exception) -> None:
        raise error


async def tell_a_story(services: HighAvailabilityServices, view: StoreView) -> None:
    """A leader writes; what stands in the store is seen from outside after each step."""
    granted = Granted()
    election = services.election("me")
    await election.start(granted)
    epoch = await asyncio.wait_for(granted.epoch, 30)

    async def look() -> Any:
        return await asyncio.to_thread(view.look)

    seen = await look()
    assert seen.epoch == epoch
    assert seen.holder
    assert seen.jobs == {}
    graph = JobGraph.model_validate(batch_graph(Path("/tmp/x"), 5))
    await JobGraphStore(services.store).put(Submission(JOB, graph, 1.0, "digest"), epoch=epoch)
    seen = await look()
    assert seen.rows["graphs"] == 1
    assert (seen.jobs[JOB].parts, seen.jobs[JOB].digest, seen.jobs[JOB].result) == (("graphs",), "digest", None)
    await JobRecordStore(services.store).put(JOB, {"attempt": 2, "cancel_requested": True}, epoch=epoch)
    seen = (await look()).jobs[JOB]
    assert (seen.parts, seen.attempt, seen.cancel) == (("graphs", "jobs"), 2, True)
    results = JobResultStore(services.store, 10)
    ended = {"submitted_at": 1.0, "started_at": 2.0, "ended_at": 3.0, "attempts": 2, "restarts": 1, "digest": "digest"}
    await results.put_dirty(JobResult(JOB, "n", JobStatus.FINISHED, None, **ended), epoch=epoch)  # type: ignore[arg-type]
    seen = (await look()).jobs[JOB]
    assert seen.parts == ("graphs", "jobs", "results")
    assert (seen.result["status"], seen.result["dirty"], seen.result["attempts"]) == ("FINISHED", True, 2)
    await JobRecordStore(services.store).delete(JOB, epoch=epoch)
    await JobGraphStore(services.store).delete(JOB, epoch=epoch)
    await results.mark_clean(JOB, epoch=epoch)
    seen = await look()
    assert (seen.jobs[JOB].parts, seen.jobs[JOB].result["dirty"]) == (("results",), False)
    assert not seen.rows.get("graphs")
    await election.close()
    again = Granted()
    election = services.election("me again")
    await election.start(again)
    assert await asyncio.wait_for(again.epoch, 30) > epoch
    assert (await look()).epoch == again.epoch.result()
    await election.close()


def view_of(configuration: Configuration) -> StoreView:
    view = open_store_view(configuration)
    assert view is not None
    return view


def tell(overrides: dict[str, str]) -> None:
    configuration = load_configuration(overrides=overrides, environ={})
    view = view_of(configuration)

    async def play() -> None:
        services = await open_high_availability(configuration)
        try:
            await tell_a_story(services, view)
        finally:
            await services.close()

    try:
        asyncio.run(play())
    finally:
        view.close()


def test_sqlite_is_seen_from_outside(tmp_path: Path) -> None:
    tell({"data.dir": str(tmp_path)})


def test_sqlite_elsewhere_is_seen_too(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    url = f"sqlite:///{tmp_path}/sub/x y.db"
    tell({"data.dir": str(tmp_path), "high-availability.sql.url": url, "high-availability.cluster-id": "other"})


def test_store_that_is_not_there_says_so(tmp_path: Path) -> None:
    view = view_of(load_configuration(overrides={"data.dir": str(tmp_path)}, environ={}))
    with pytest.raises(StoreUnreadableError, match=r"cluster\.db"):
        view.look()
    view.close()


@pytest.mark.slow
@pytest.mark.xdist_group("zookeeper")
def test_zookeeper_is_seen_from_outside(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "server") as server:
        options = {"type": "zookeeper", "storageDir": str(tmp_path), "zookeeper.quorum": server.hosts}
        tell({"data.dir": str(tmp_path), **{f"high-availability.{k}": v for k, v in options.items()}})


@pytest.mark.integration
@pytest.mark.xdist_group("postgresql")
def test_postgresql_is_seen_from_outside(tmp_path: Path) -> None:
    if binaries() is None:
        missing("a PostgreSQL server", HOW_TO_GET_IT)
    with servers() as server:
        tell({"data.dir": str(tmp_path), "high-availability.sql.url": server.url})
        server.stop()
        view = view_of(load_configuration(overrides={"high-availability.sql.url": server.url}, environ={}))
        with pytest.raises(StoreUnreadableError):
            view.look()
        view.close()


# -- the whole -------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("chaos")
def test_a_short_run_is_judged_good(tmp_path: Path) -> None:
    """Two nodes, a stream, batch and script jobs, the leader killed in between: nothing is to be found."""
    with StagedCluster(tmp_path, nodes=2) as cluster, History(tmp_path / "history.jsonl") as history:
        observer = Observer(cluster, history, store=open_store_view(cluster.configuration))
        load = Workload(cluster, history, 3, root=tmp_path / "load", streams=1)
        observer.start()
        load.start()
        try:
            until(lambda: any(e.kind == "query" for e in history.events()), "the stream does not run", 120)
            with cluster.client() as client:
                address = client.cluster_status().leader
            leader = next(n for n in cluster.nodes() if n.address == address)
            history.record("fault", id=1, name="F1", what="kill", target=leader.name, harms=["nodes"])
            leader.kill()
            leader.start()
            history.record("healed", id=1, name="F1")
            load.pressure(2, seconds=1.0)
            until(lambda: sum(e.kind == "output" for e in history.events()) >= 2, "no job ends", 120)
            load.settle(240)
            observer.look_once()
        finally:
            load.close()
            observer.close()
        events = history.events()
    report = summary(events, check(events, bounds=Bounds(engines=1)))
    assert report.good, report.to_text()
    assert report.leaderships >= 2
    assert report.adopted >= 1
    assert report.rows > 0


def test_only_the_note_that_a_job_is_over_may_stay_in_its_output(tmp_path: Path) -> None:
    """I12, and I27: the note stops an attempt that was given up and wakes up later."""
    out = tmp_path / "out"
    (out / "_firesteel").mkdir(parents=True)
    (out / "_firesteel" / f"{JOB}-o.over").touch()
    ended = Planned(JOB, "batch", "FINISHED", out, result={"status": "FINISHED"})
    assert leftovers(Site("", tmp_path), ended) == []
    (out / "_firesteel" / f"{JOB}-o").mkdir()
    assert leftovers(Site("", tmp_path), ended) == ["_firesteel in its output"]
