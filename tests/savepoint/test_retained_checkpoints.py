"""A job goes on from the checkpoint of a stream that has ended: nothing is lost or done twice, and the checkpoint stays."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.savepoint.fake_query import JOB, FakeQuery, files_below

from firesteel.errors import InvalidPipelineError, SavepointError
from firesteel.savepoint import restore as restore_module
from firesteel.savepoint import take
from firesteel.savepoint.manifest import MANIFEST, NONE, SavepointRequest, SinkPlaces
from firesteel.savepoint.restore import RestoredSink, restore
from firesteel.savepoint.retained import NOTE, TRIGGER, open_position, retain
from firesteel.types import JobID

NEXT = JobID("cd" * 16)
AFTER = JobID("ef" * 16)


class CrashError(BaseException):
    pass


class Scene:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.query = FakeQuery(root)
        self.kept = str(root / "checkpoints" / JOB)

    def request(self, job: JobID = JOB, restored_from: str | None = None) -> SavepointRequest:
        request = replace(self.query.request(), job_id=job, trigger_id=TRIGGER)
        sinks = {"o": SinkPlaces(f"{self.root}/checkpoints/{job}/o", str(self.query.output))}
        settings = {"restore": {"path": restored_from}} if restored_from else {}
        return replace(request, sinks=sinks, graph={**request.graph, "settings": settings})

    def end(self) -> None:
        retain(self.kept, self.request())

    def resume(self, job: JobID = NEXT, path: str | None = None) -> list[RestoredSink]:
        places = SinkPlaces(f"{self.root}/checkpoints/{job}/o", str(self.query.output))
        return restore(path or self.kept, job, {"o": places})

    def checkpoint(self, job: JobID) -> Path:
        return self.root / "checkpoints" / job / "o"

    def rows(self) -> list[str]:
        """The files that Spark would read of the output."""
        named = [line for p in self.query.entries() for line in p.read_text().splitlines()[1:]]
        return sorted(line.partition("part-")[2].partition(".")[0] for line in named)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_job_goes_on_after_the_last_committed_batch(scene: Scene) -> None:
    scene.query.run(5)
    scene.end()
    before = files_below(scene.query.checkpoint)
    assert scene.resume() == [RestoredSink("o", 4)]
    assert {"commits/4", "offsets/4", "metadata"} <= files_below(scene.checkpoint(NEXT))
    assert files_below(scene.query.checkpoint) == before
    assert scene.rows() == ["0", "1", "2", "3", "4"]


def test_a_batch_that_had_begun_is_done_again_with_the_rows_that_it_had(scene: Scene) -> None:
    scene.query.run(3)
    scene.query.begin()
    scene.end()
    (sink,) = scene.resume()
    # What it wrote is put aside, and what it planned to read is kept: a sink that knows batches by number sees the same rows.
    assert sink.batch == 2
    assert scene.rows() == ["0", "1", "2"]
    names = files_below(scene.checkpoint(NEXT))
    assert "offsets/3" in names
    assert "commits/3" not in names


def test_a_savepoint_of_a_running_query_has_no_batch_that_has_only_begun(scene: Scene) -> None:
    scene.query.run(3)
    scene.query.begin()
    location = str(scene.root / "sp")
    take.prepare(location, scene.query.request())
    manifest = take.take(location, alive=lambda: True)
    assert "checkpoint/offsets/3" not in manifest.sinks["o"].files


def test_a_stream_that_had_only_begun_its_first_batch_can_be_gone_on_with(scene: Scene) -> None:
    scene.query.begin()
    scene.end()
    assert scene.resume()[0].batch == NONE
    assert "offsets/0" in files_below(scene.checkpoint(NEXT))
    assert scene.rows() == []


def test_the_checkpoint_of_a_job_that_has_not_ended_is_refused(scene: Scene) -> None:
    scene.query.run(3)
    with pytest.raises(InvalidPipelineError, match="has not ended"):
        scene.resume()
    assert not scene.checkpoint(NEXT).exists()


def test_a_second_job_from_the_same_checkpoint_goes_back_to_where_that_is(scene: Scene) -> None:
    """Also when the first has moved on so far that the entries it started from are compacted and gone."""
    scene.query.run(5)
    scene.end()
    scene.resume()
    scene.query.run(15)  # the first one, in the output that both have
    log = scene.query.output / "_spark_metadata"
    for n in range(9):
        (log / str(n)).unlink()
    (sink,) = scene.resume(AFTER)
    assert sink.batch == 4
    assert scene.rows() == ["0", "1", "2", "3", "4"]


def test_two_jobs_that_start_at_once_start_from_the_same(scene: Scene) -> None:
    scene.query.run(5)
    scene.end()
    found: list[Any] = []
    barrier = threading.Barrier(4)

    def one() -> None:
        barrier.wait()
        found.append(open_position(scene.kept))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(entry == found[0] for entry in found)
    assert len(list(Path(scene.kept).glob("data-*"))) == 1


def test_a_job_that_never_started_stands_where_it_was_to_start_from(scene: Scene) -> None:
    """A resumed job is refused by Spark, say; whoever resumes that one must not begin from nothing."""
    scene.query.run(5)
    scene.end()
    refused = f"{scene.root}/checkpoints/{NEXT}"
    retain(refused, scene.request(NEXT, restored_from=scene.kept))
    location, manifest = open_position(refused)
    assert (location, manifest.batches) == (scene.kept, {"o": 4})


def test_a_job_that_died_while_it_was_restored_stands_there_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.query.run(5)
    scene.end()

    def crash(*_: Any) -> None:
        raise CrashError

    with monkeypatch.context() as patched:
        patched.setattr(restore_module, "copy_files", crash)
        with pytest.raises(CrashError):
            scene.resume()
    refused = f"{scene.root}/checkpoints/{NEXT}"
    retain(refused, scene.request(NEXT, restored_from=scene.kept))
    assert scene.resume(AFTER, refused) == [RestoredSink("o", 4)]


def test_a_job_that_started_stands_where_it_came_to(scene: Scene) -> None:
    scene.query.run(5)
    scene.end()
    scene.resume()
    scene.query.checkpoint = scene.checkpoint(NEXT)
    scene.query.run(2)
    moved_on = f"{scene.root}/checkpoints/{NEXT}"
    retain(moved_on, scene.request(NEXT, restored_from=scene.kept))
    assert scene.resume(AFTER, moved_on) == [RestoredSink("o", 6)]
    assert scene.rows() == [str(n) for n in range(7)]


def test_a_checkpoint_that_the_sink_names_itself_goes_on_where_it_is(scene: Scene) -> None:
    scene.query.run(5)
    own = str(scene.query.checkpoint)
    places = SinkPlaces(own, str(scene.query.output))
    retain(scene.kept, replace(scene.request(), sinks={"o": places}))
    before = files_below(scene.query.checkpoint)
    (sink,) = restore(scene.kept, NEXT, {"o": places})
    assert (sink.batch, sink.note) == (4, "in its own checkpoint")
    assert files_below(scene.query.checkpoint) >= before
    # A savepoint, which may be of long ago, is still refused there.
    location = str(scene.root / "sp")
    take.prepare(location, replace(scene.query.request(), sinks={"o": places}))
    take.take(location, alive=None)
    with pytest.raises(InvalidPipelineError, match="already in use"):
        restore(location, AFTER, {"o": places})


def test_the_savepoint_of_an_ended_stream_carries_its_graph(scene: Scene) -> None:
    scene.query.run(1)
    scene.end()
    _, manifest = open_position(scene.kept)
    assert manifest.job_id == JOB
    assert manifest.graph["vertices"][0]["options"]["password"] == "******"
    assert (Path(scene.kept) / MANIFEST).exists()
    assert (Path(scene.kept) / NOTE).exists()


def test_a_chain_without_an_end_is_refused(scene: Scene) -> None:
    loop = f"{scene.root}/checkpoints/{NEXT}"
    retain(loop, scene.request(NEXT, restored_from=loop))
    with pytest.raises(SavepointError, match="never started"):
        open_position(loop)


@pytest.mark.parametrize("crash_at", range(12))
def test_a_crash_at_any_file_leaves_the_checkpoint_whole(
    crash_at: int, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write below fails once, as if the driver were killed there; the next attempt of the job starts the same."""
    from firesteel.savepoint.files import Place

    scene.query.run(4)
    scene.query.begin()
    scene.end()
    before = files_below(scene.query.checkpoint)
    count = 0

    def counted(name: str) -> Any:
        original = getattr(Place, name)

        def call(self: Place, *args: Any) -> Any:
            nonlocal count
            count += 1
            if count == crash_at:
                raise CrashError
            return original(self, *args)

        return call

    with monkeypatch.context() as patched:
        for name in ("write", "create", "remove", "remove_tree"):
            patched.setattr(Place, name, counted(name))
        try:
            scene.resume()
        except CrashError:
            pass
    scene.resume()
    assert files_below(scene.query.checkpoint) == before
    assert scene.rows() == ["0", "1", "2", "3"]
    assert {"commits/3", "offsets/4"} <= files_below(scene.checkpoint(NEXT))
