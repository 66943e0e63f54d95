"""What callers name is opened by processes of the owners: in the owner's sandbox, for a limited time, and never by the node."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import graph_of
from tests.jobmaster.local_attempts import Leader, leading, prepared, stream, taken, until
from tests.savepoint.fake_query import JOB, FakeQuery
from tests.support.sleeper import sleeper

from firesteel.config import Configuration, load_configuration
from firesteel.dispatcher.outputs import OutputCleaner
from firesteel.errors import FiresteelError, SavepointError, SupersededError
from firesteel.fs.generations import current
from firesteel.jobgraph.admission import digest_of
from firesteel.jobgraph.model import SaveMode
from firesteel.processes import ProcessIdentity
from firesteel.sandbox import landlock
from firesteel.sandbox.owners import below, job_directory
from firesteel.savepoint.manifest import MANIFEST, SavepointRequest
from firesteel.sinks import StagedFileSink
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.worker import sandboxing
from firesteel.worker.errands import Errands, ErrandTookTooLongError
from firesteel.worker.pool import DriverPool

OWNERS = ["", "alice"]
"""The node's own user, and somebody else."""

needs_landlock = pytest.mark.skipif(
    landlock.version() < landlock.LEAST_VERSION, reason="needs Landlock: Linux 6.2 or later"
)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverPool]:
    with DriverPool(log=tmp_path_factory.mktemp("pool") / "drivers.log") as made:
        yield made


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that other users can enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="firesteel-errands-") as made:
        Path(made).chmod(0o711)
        yield Path(made)


class Scene:
    """The directories of a node and of two owners, and a query of alice's that has ended."""

    def __init__(self, root: Path, pool: DriverPool, timeout: str = "1 min", **security: str) -> None:
        self._pool = pool
        self.shared = root / "shared"
        self.shared.mkdir()
        self.configuration: Configuration = load_configuration(
            overrides={
                "data.dir": str(root / "data"),
                "security.sandbox.write-paths": str(self.shared),
                "execution.checkpointing.timeout": timeout,
                **{f"security.{key}": value for key, value in security.items()},
            },
            environ={},
        )
        self.jobs = self.configuration.data.dir / "clusters" / "default" / "jobs"
        self.query = FakeQuery(self.shared)
        self.query.run(3)

    def savepoints(self, owner: str) -> str:
        return below(self.configuration.state.savepoints_dir, owner)

    async def prepared(self, leader: Leader, location: str, owner: str) -> None:
        graph = graph_of(
            {"kind": "source", "name": "s", "format": "rate"},
            {"kind": "sink", "name": "o", "input": "s", "format": "parquet", "path": str(self.query.output)},
            mode="streaming",
        )
        request = SavepointRequest.of(graph, JOB, "t1", {"o": str(self.query.checkpoint)})
        await leader.executor.prepare_savepoint(location, request, owner=owner)

    async def taken(self, leader: Leader, location: str, owner: str) -> dict[str, int]:
        await self.prepared(leader, location, owner)
        return await leader.executor.savepoint(location, None, stopped=True, owner=owner)

    def play(self, main: Any) -> None:
        async def scene() -> None:
            async with leading(self.configuration, self.jobs, self._pool) as leader:
                await main(leader)

        asyncio.run(scene())


def below_it(directory: str) -> list[Path]:
    return list(Path(directory).rglob("*"))


def is_there(*path: str) -> bool:
    return Path(*path).exists()


async def until_empty(directory: Path) -> None:
    async def empty() -> bool:
        return not os.listdir(directory)

    await until(empty)


async def refused(errand: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises(FiresteelError, match=r"[Pp]ermission denied"):
        await errand


@pytest.mark.parametrize("owner", OWNERS)
def test_a_savepoint_is_taken_measured_and_removed(tmp_path: Path, pool: DriverPool, owner: str) -> None:
    scene = Scene(tmp_path, pool)

    async def main(leader: Leader) -> None:
        location = f"{scene.savepoints(owner)}/savepoint-1"
        assert await scene.taken(leader, location, owner) == {"o": 2}
        assert await leader.executor.savepoint(location, None, owner=owner) == {"o": 2}
        assert (await leader.executor.savepoint_sizes(location, owner=owner))["o"] > 0
        await leader.executor.abandon_savepoint(location, owner=owner)
        assert is_there(location, MANIFEST)
        await leader.executor.dispose_savepoint(location, owner=owner)
        assert not is_there(location)
        with pytest.raises(SavepointError, match="there is no savepoint"):
            await leader.executor.savepoint_sizes(location, owner=owner)
        answers = scene.jobs / ".errands"
        await until_empty(answers)

    scene.play(main)


@pytest.mark.parametrize("owner", OWNERS)
def test_a_pipe_in_a_checkpoint_holds_no_thread_of_the_node(tmp_path: Path, pool: DriverPool, owner: str) -> None:
    """S42: whoever opens it waits for one who writes, for ever."""
    scene = Scene(tmp_path, pool, "2 s")
    os.mkfifo(scene.query.checkpoint / "sources" / "0" / "3")

    async def main(leader: Leader) -> None:
        location = f"{scene.savepoints(owner)}/savepoint-1"
        await scene.prepared(leader, location, owner)
        before = set(threading.enumerate())
        asked = time.monotonic()
        errand = leader.executor.savepoint(location, None, stopped=True, owner=owner)
        with pytest.raises(SavepointError, match=r"within 2 s.*execution\.checkpointing\.timeout"):
            await asyncio.wait_for(errand, 30)
        assert time.monotonic() - asked < 20
        assert not [t for t in threading.enumerate() if t not in before and "savepoint" in t.name]
        assert not is_there(location, MANIFEST)

    scene.play(main)


def test_an_errand_ends_with_the_one_who_waits_for_it(tmp_path: Path, pool: DriverPool) -> None:
    scene = Scene(tmp_path, pool, "5 min")
    pipe = scene.query.checkpoint / "sources" / "0" / "3"
    os.mkfifo(pipe)

    async def main(leader: Leader) -> None:
        location = f"{scene.savepoints('')}/savepoint-1"
        await scene.prepared(leader, location, "")
        errand = asyncio.create_task(leader.executor.savepoint(location, None, stopped=True))

        async def waits() -> bool:
            return any(name.startswith("data-") for name in os.listdir(location))

        await until(waits)
        processes = [p for p in map(ProcessIdentity.of, errand_pids(scene)) if p is not None]
        assert processes
        errand.cancel()
        with pytest.raises(asyncio.CancelledError):
            await errand
        assert all(p.wait(20) for p in processes)

    scene.play(main)


def endless(scene: Scene) -> dict[str, Any]:
    """A checkpoint with a batch that has begun, and that nobody commits."""
    (scene.shared / "offsets").mkdir()
    (scene.shared / "offsets" / "1").touch()
    return {"attempt": str(scene.shared), "driver": None, "name": "x", "checkpoints": {"o": str(scene.shared)}}


def errand_pids(scene: Scene) -> list[int]:
    """Whose output is an answer."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*/fd/1"):
        try:
            if os.readlink(entry).startswith(f"{scene.jobs}/.errands/"):
                pids.append(int(entry.parts[2]))
        except OSError:
            continue
    return pids


@needs_landlock
@pytest.mark.parametrize("place", ["{bob}/planted", "{data}/planted", "{jobs}/planted", "/etc/firesteel-planted"])
def test_a_savepoint_goes_nowhere_where_its_owner_may_not_write(tmp_path: Path, pool: DriverPool, place: str) -> None:
    scene = Scene(tmp_path, pool)
    location = spelled(scene, place)

    async def main(leader: Leader) -> None:
        await refused(scene.prepared(leader, location, "alice"))
        assert not is_there(location)

    scene.play(main)


@needs_landlock
@pytest.mark.parametrize("place", ["{bob}/kept", "{data}/kept", "{jobs}/kept"])
def test_a_savepoint_that_its_owner_may_not_read_is_not_read(tmp_path: Path, pool: DriverPool, place: str) -> None:
    scene = Scene(tmp_path, pool)
    location = spelled(scene, place)

    async def main(leader: Leader) -> None:
        await scene.taken(leader, location, "")
        await refused(leader.executor.savepoint(location, None, owner="alice"))
        await refused(leader.executor.savepoint(location, None, stopped=True, owner="alice"))
        await refused(leader.executor.savepoint_sizes(location, owner="alice"))
        await leader.executor.abandon_savepoint(location, owner="alice")
        assert await leader.executor.savepoint(location, None) == {"o": 2}

    scene.play(main)


def spelled(scene: Scene, place: str) -> str:
    bob = Path(scene.savepoints("bob"))
    bob.mkdir(parents=True, exist_ok=True)
    data = scene.configuration.data.dir
    return place.format(bob=bob, data=data, jobs=scene.jobs)


@needs_landlock
@pytest.mark.parametrize("place", ["{data}/kept", "{jobs}/kept", "{elsewhere}/kept"])
def test_an_admin_disposes_of_savepoints_of_owners_and_of_nothing_elsewhere(
    tmp_path: Path, pool: DriverPool, place: str
) -> None:
    """Elsewhere stands for /etc: no directory that anybody allowed."""
    scene = Scene(tmp_path, pool)
    elsewhere = tmp_path / "elsewhere"
    location = spelled(scene, place.replace("{elsewhere}", str(elsewhere)))

    async def main(leader: Leader) -> None:
        assert await scene.taken(leader, location, "") == {"o": 2}
        await refused(leader.executor.dispose_savepoint(location, owner="carol"))
        assert is_there(location, MANIFEST)
        of_bob = f"{scene.savepoints('bob')}/savepoint-1"
        assert await scene.taken(leader, of_bob, "bob") == {"o": 2}
        await leader.executor.dispose_savepoint(of_bob, owner="carol")
        assert not is_there(of_bob)

    scene.play(main)


@needs_landlock
def test_a_checkpoint_that_its_owner_may_not_read_is_not_read(tmp_path: Path, pool: DriverPool) -> None:
    scene = Scene(tmp_path, pool)
    of_bob = Path(below(scene.configuration.state.checkpoints_dir, "bob")) / "b"
    (of_bob / "o" / "commits").mkdir(parents=True)
    (of_bob / "o" / "commits" / "7").touch()
    (tmp_path / "jobs").mkdir()

    async def main(leader: Leader) -> None:
        with sleeper() as driver:
            graph = stream(tmp_path, files=0)
            attempt = prepared(leader, graph, None, checkpoints=str(of_bob), owner="alice")
            taken(leader, attempt, driver)
            await refused(leader.executor.checkpoint(attempt))
            mine = prepared(leader, graph, None, checkpoints=str(scene.shared), owner="alice")
            taken(leader, mine, driver)
            assert await leader.executor.checkpoint(mine) == {"o": -1}

    scene.play(main)


@needs_landlock
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_where_owners_are_users_a_savepoint_is_removed_by_the_user_it_belongs_to(
    open_path: Path, pool: DriverPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxing, "closed_way", lambda path: None)
    nobody = pwd.getpwnam("nobody")
    scene = Scene(open_path, pool, **{"sandbox": "user", "sandbox.users": f"carol={nobody.pw_name}"})

    async def main(leader: Leader) -> None:
        theirs, roots = (f"{scene.savepoints('bob')}/savepoint-{n}" for n in (1, 2))
        for location in (theirs, roots):
            assert await scene.taken(leader, location, "") == {"o": 2}
        for path in (Path(theirs).parent, Path(theirs), *below_it(theirs)):
            os.chown(path, nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)
        with pytest.raises(SavepointError, match="belongs to root"):
            await leader.executor.dispose_savepoint(roots, owner="carol")
        await leader.executor.dispose_savepoint(theirs, owner="carol")
        assert not is_there(theirs)
        assert is_there(roots, MANIFEST)

    scene.play(main)


def ended_job(path: Path, owner: str) -> tuple[Submission, JobResult]:
    graph = graph_of(
        {"kind": "sql", "name": "q", "query": "SELECT 1 AS id"},
        {"kind": "sink", "name": "o", "input": "q", "format": "parquet", "path": str(path), "mode": "append"},
    )
    submission = Submission(JOB, graph, 1.0, digest_of(graph), owner=owner)
    ended = JobResult(JOB, "x", JobStatus.CANCELED, None, 1.0, 1.0, 2.0, attempts=1, restarts=0, digest="")
    return submission, ended


@pytest.mark.parametrize("owner", OWNERS)
def test_clean_up_after_a_job_removes_its_staging(tmp_path: Path, pool: DriverPool, owner: str) -> None:
    scene = Scene(tmp_path, pool)
    staging = scene.shared / "out" / "_firesteel"

    async def main(leader: Leader) -> None:
        cleaner = OutputCleaner(scene.configuration, leader.executor.errands)
        (staging / f"{JOB}-o").mkdir(parents=True)
        for _ in range(2):
            await cleaner.clear(*ended_job(scene.shared / "out", owner))
        assert not staging.exists()

    scene.play(main)


def test_clean_up_after_an_attempt_that_was_given_up_locks_it_out(tmp_path: Path, pool: DriverPool) -> None:
    """I27: of a batch job by a note in its output, of a stream by taking its checkpoint over, whether that is kept or not."""
    scene = Scene(tmp_path, pool)

    async def main(leader: Leader) -> None:
        cleaner = OutputCleaner(scene.configuration, leader.executor.errands)
        submission, ended = ended_job(scene.shared / "out", "")
        ended = replace(ended, given_up=1)
        for _ in range(2):
            await cleaner.clear(submission, ended)
        assert [f.name for f in (scene.shared / "out" / "_firesteel").iterdir()] == [f"{JOB}-o.over"]
        with pytest.raises(SupersededError, match="attempt 1 was given up and its job has ended"):
            StagedFileSink(str(scene.shared / "out"), JOB, "o", mode=SaveMode.APPEND).begin(1)

        rate = {"kind": "source", "name": "r", "format": "rate"}
        sink = {"kind": "sink", "name": "o", "input": "r", "format": "parquet", "path": str(scene.shared / "s")}
        stream = replace(submission, graph=graph_of(rate, sink, mode="streaming"))
        place = Path(job_directory(scene.configuration.state.checkpoints_dir, "", JOB)) / "o"
        for kept in (True, False):
            place.parent.mkdir(parents=True, exist_ok=True)
            if kept:
                (place / "commits").mkdir(parents=True)
                (place / "commits" / "0").write_text("v1")
            for _ in range(2):
                await cleaner.clear(stream, replace(ended, checkpoint=str(place.parent) if kept else ""))
            assert place.is_file(), "nothing can be begun or continued there"
            assert is_there(current(str(place)), "commits", "0") == kept

    scene.play(main)


def test_clean_up_at_a_place_that_never_answers_is_ended(tmp_path: Path, pool: DriverPool) -> None:
    scene = Scene(tmp_path, pool, "2 s")

    async def main(leader: Leader) -> None:
        errands: Errands = leader.executor.errands
        args = endless(scene)
        with pytest.raises(ErrandTookTooLongError):
            await errands.run_often("alice", "checkpoint", args, seconds=1)
        # Whoever comes next gets a process that is at nothing else.
        cleaner = OutputCleaner(scene.configuration, errands)
        await cleaner.clear(*ended_job(scene.shared / "out", "alice"))

    scene.play(main)


def test_one_owner_has_a_share_and_leaves_the_others_theirs(tmp_path: Path, pool: DriverPool) -> None:
    scene = Scene(tmp_path, pool, "5 min")

    async def main(leader: Leader) -> None:
        errands: Errands = leader.executor.errands
        args = endless(scene)
        waiting = [asyncio.create_task(errands.run("alice", "checkpoint", args, seconds=300)) for _ in range(20)]
        location = f"{scene.savepoints('bob')}/savepoint-1"
        assert await asyncio.wait_for(scene.taken(leader, location, "bob"), 60) == {"o": 2}
        assert len(errand_pids(scene)) == 4
        for errand in waiting:
            errand.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    scene.play(main)


def test_an_errand_that_dies_says_how(tmp_path: Path, pool: DriverPool) -> None:
    scene = Scene(tmp_path, pool, "5 min")

    async def main(leader: Leader) -> None:
        args = endless(scene)
        errand = asyncio.create_task(leader.executor.errands.run("", "checkpoint", args, seconds=300))

        async def there() -> bool:
            return bool(errand_pids(scene))

        await until(there)
        for pid in errand_pids(scene):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(FiresteelError, match="ended by signal 9 and left no answer"):
            await asyncio.wait_for(errand, 30)

    scene.play(main)
