"""A job starts from a savepoint once, whole or not at all, and never in the way of another one."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.savepoint.fake_query import QUERY, FakeQuery, files_below

from firesteel.errors import FiresteelError, InvalidPipelineError
from firesteel.savepoint import restore as module
from firesteel.savepoint import take, writer
from firesteel.savepoint.files import Place, copy_files
from firesteel.savepoint.manifest import MANIFEST, MARK, NONE, SinkPlaces
from firesteel.savepoint.restore import RestoredSink, restore
from firesteel.types import JobID

NEW = JobID("cd" * 16)


class CrashError(BaseException):
    pass


class Scene:
    """A query with a savepoint, and a new job."""

    def __init__(self, root: Path) -> None:
        self.query = FakeQuery(root)
        self.savepoint = str(root / "sp" / "s1")
        self.checkpoint = root / "checkpoints" / NEW / "o"
        self.output = root / "new-out"
        self.root = root

    def save(self, batches: int = 5) -> None:
        self.query.run(batches)
        take.prepare(self.savepoint, self.query.request())
        self.manifest = take.take(self.savepoint, alive=None)

    @property
    def data(self) -> Path:
        return Path(self.savepoint) / self.manifest.data / "o"

    def restore(self, *, in_place: bool = False, **more: Any) -> list[RestoredSink]:
        path = str(self.query.output if in_place else self.output)
        return restore(self.savepoint, NEW, {"o": SinkPlaces(str(self.checkpoint), path)}, **more)

    def restored(self) -> set[str]:
        return files_below(self.checkpoint) - {MARK}

    def log(self, output: Path) -> set[str]:
        return {p.name for p in (output / "_spark_metadata").iterdir() if not p.name.startswith(".")}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def refused(scene: Scene, match: str, **how: Any) -> None:
    before = files_below(scene.root)
    with pytest.raises(InvalidPipelineError, match=match):
        scene.restore(**how)
    assert files_below(scene.root) == before, "nothing was changed"


def test_files_of_the_savepoint_become_the_checkpoint(scene: Scene) -> None:
    scene.save()
    assert scene.restore() == [RestoredSink("o", 4)]
    assert scene.restored() == files_below(scene.data / "checkpoint")
    for name in scene.restored() - {"metadata"}:
        assert (scene.checkpoint / name).read_bytes() == (scene.data / "checkpoint" / name).read_bytes()


def test_query_gets_an_id_of_its_own(scene: Scene) -> None:
    """Two queries of one id cannot run in one engine, and the other one may still run."""
    scene.save()
    scene.restore()
    mine = json.loads((scene.checkpoint / "metadata").read_text())
    assert mine["id"] != QUERY
    assert json.loads((scene.data / "checkpoint" / "metadata").read_text())["id"] == QUERY


def test_manifest_itself_may_be_named(scene: Scene) -> None:
    scene.save()
    scene.savepoint = f"file://{scene.savepoint}/{MANIFEST}"
    assert scene.restore() == [RestoredSink("o", 4)]


def test_it_is_done_once(scene: Scene) -> None:
    """Later attempts go on from where the first ones came to, also when the savepoint is gone by then."""
    scene.save()
    scene.restore()
    (scene.checkpoint / "offsets" / "5").write_text("of the first attempt")
    Path(scene.savepoint, MANIFEST).unlink()
    assert scene.restore() == []
    assert (scene.checkpoint / "offsets" / "5").exists()


def test_mark_that_came_to_nothing_is_no_checkpoint_in_use(scene: Scene) -> None:
    """A driver that is killed between the temporary file of its mark and the mark leaves the former."""
    scene.save()
    scene.checkpoint.mkdir(parents=True)
    (scene.checkpoint / f"{MARK}.4711-0badcafe.tmp").write_text('{"state": "copying"')
    assert scene.restore() == [RestoredSink("o", 4)]


def test_mark_that_finds_no_space_leaves_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.save()

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises((OSError, FiresteelError)):
            scene.restore()
    assert files_below(scene.checkpoint) == set()
    assert scene.restore() == [RestoredSink("o", 4)]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("step", range(12))
def test_half_copied_checkpoint_is_made_anew(
    scene: Scene, step: int, in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.save(12)
    scene.query.run(3)
    left = step

    def count() -> None:
        nonlocal left
        if left == 0:
            raise CrashError
        left -= 1

    def half(source: Place, target: Place, names: list[str]) -> Any:
        copy_files(source, target, names[: len(names) // 2])
        count()
        return copy_files(source, target, names)

    with monkeypatch.context() as patch:
        patch.setattr(module, "copy_files", half)
        for name in ("write", "remove", "names"):
            original = getattr(Place, name)

            def counted(self: Place, *args: Any, original: Any = original) -> Any:
                count()
                return original(self, *args)

            patch.setattr(Place, name, counted)
        try:
            scene.restore(in_place=in_place)
        except CrashError:
            pass
    scene.restore(in_place=in_place)
    assert scene.restored() == files_below(scene.data / "checkpoint")
    assert scene.restore(in_place=in_place) == []
    if in_place:
        assert scene.log(scene.query.output) == {*map(str, range(9)), "9.compact", "10", "11"}
        shown = {p.name for p in scene.query.output.glob("*.parquet")}
        assert shown == {f"part-{n}.parquet" for n in range(12)}
    else:
        assert scene.log(scene.output) == {"11.compact"}


def test_damage_is_noticed(scene: Scene) -> None:
    scene.save()
    file = scene.data / "checkpoint" / "state/0/0/3.zip"
    original = file.read_bytes()
    file.unlink()  # it is linked to the query's own
    refused(scene, r"is damaged: .*/3\.zip is missing")
    file.write_bytes(original + b"x")
    refused(scene, r"is damaged: .*/3\.zip has changed since it was written")


def test_half_written_savepoint_is_refused(scene: Scene) -> None:
    scene.save()
    Path(scene.savepoint, MANIFEST).unlink()
    refused(scene, f"the savepoint {scene.savepoint} is not complete: it has no {MANIFEST}")


def test_what_is_no_savepoint_is_named(scene: Scene) -> None:
    scene.query.run(1)
    scene.savepoint = str(scene.root / "nowhere")
    refused(scene, f"there is no savepoint at {scene.savepoint}")
    scene.savepoint = "relative/path"
    refused(scene, "'relative/path' cannot be used: it is not absolute")


def test_state_that_nobody_takes_over_needs_consent(scene: Scene) -> None:
    scene.save()
    other = {"renamed": SinkPlaces(str(scene.root / "checkpoints" / NEW / "renamed"))}
    with pytest.raises(
        InvalidPipelineError, match=r"has the state of a sink 'o', which this job does not have .*allow"
    ):
        restore(scene.savepoint, NEW, other)
    assert restore(scene.savepoint, NEW, other, allow_non_restored_state=True) == [RestoredSink("renamed", NONE)]
    assert restore(scene.savepoint, NEW, other) == []


def test_sink_that_the_savepoint_lacks_starts_from_nothing(scene: Scene) -> None:
    scene.save()
    added = SinkPlaces(str(scene.root / "checkpoints" / NEW / "added"))
    sinks = {"o": SinkPlaces(str(scene.checkpoint), str(scene.output)), "added": added}
    assert restore(scene.savepoint, NEW, sinks) == [RestoredSink("o", 4), RestoredSink("added", NONE)]


def test_checkpoint_in_use_is_refused(scene: Scene) -> None:
    scene.save()
    scene.checkpoint.mkdir(parents=True)
    (scene.checkpoint / "metadata").write_text("{}")
    refused(scene, r"its checkpoint .* is already in use")
    (scene.checkpoint / MARK).write_text(json.dumps({"state": "done", "job_id": "another"}))
    refused(scene, r"its checkpoint .* is already in use")


def test_table_of_files_goes_on_as_the_same_table(scene: Scene) -> None:
    scene.save()
    places = SinkPlaces(str(scene.checkpoint), table="t2")
    with pytest.raises(
        InvalidPipelineError, match=r"vertex 'o': it writes to the table t2, and the savepoint's query wrote to"
    ):
        restore(scene.savepoint, NEW, {"o": places})


# -- outputs --------------------------------------------------------------------------------------------------------


def test_new_output_gets_a_log_that_can_be_compacted(scene: Scene) -> None:
    scene.save(26)
    scene.restore()
    assert scene.log(scene.output) == {"9.compact", "19.compact", *map(str, range(20, 26))}
    assert {(scene.output / "_spark_metadata" / n).read_bytes() for n in scene.log(scene.output)} == {b"v1"}


def test_same_output_is_cut_back_to_the_savepoint(scene: Scene) -> None:
    scene.save(12)
    scene.query.run(10)
    (scene.query.output / "not-ours.txt").write_text("stays")
    (found,) = scene.restore(in_place=True)
    aside = scene.query.output / "_rolled_back" / NEW
    assert found.note == f"10 files that were written after the savepoint were moved to {aside}"
    assert {p.name for p in aside.glob("*.parquet")} == {f"part-{n}.parquet" for n in range(12, 22)}
    assert {p.name for p in (aside / "_log").iterdir()} == {*map(str, range(12, 19)), "19.compact", "20", "21"}
    assert {p.name for p in scene.query.output.glob("*.parquet")} == {f"part-{n}.parquet" for n in range(12)}
    assert (scene.query.output / "not-ours.txt").exists()
    assert max(int(n.partition(".")[0]) for n in scene.log(scene.query.output)) == 11
    listed = [json.loads(x)["path"] for e in scene.query.entries() for x in e.read_text().splitlines()[1:]]
    assert {Path(p).name for p in listed} == {f"part-{n}.parquet" for n in range(12)}


def test_same_output_of_a_stopped_query_stays_as_it_is(scene: Scene) -> None:
    scene.save(12)
    before = files_below(scene.query.output)
    assert scene.restore(in_place=True) == [RestoredSink("o", 11)]
    assert files_below(scene.query.output) == before


def test_same_output_that_was_emptied_is_a_new_one(scene: Scene) -> None:
    scene.save(12)
    for file in sorted(scene.query.output.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    scene.restore(in_place=True)
    assert scene.log(scene.query.output) == {"11.compact"}


def test_output_of_before_the_first_batch_is_cut_back_to_nothing(scene: Scene) -> None:
    scene.save(0)
    scene.query.run(2)
    scene.restore(in_place=True)
    assert scene.log(scene.query.output) == set()
    assert not list(scene.query.output.glob("*.parquet"))


def test_output_of_another_query_is_refused(scene: Scene) -> None:
    scene.save(5)
    log = scene.output / "_spark_metadata"
    log.mkdir(parents=True)
    (log / "0").write_text("v1")
    refused(scene, "has the output of another streaming query")
    (scene.query.output / "_spark_metadata" / "4").write_text("v1\n")
    refused(scene, "has the output of another streaming query", in_place=True)


# -- who writes -----------------------------------------------------------------------------------------------------


def test_live_writer_of_an_output_is_known(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    writer.claim(out, NEW)
    assert not os.path.exists(out), "Spark makes it, perhaps elsewhere"
    os.makedirs(f"{out}/_spark_metadata")
    writer.claim(out, NEW)
    assert writer.live_writer(out, NEW) is None, "it is me"
    assert writer.live_writer(out, JobID("ef" * 16)) == NEW
    writer.release(out, JobID("ef" * 16))
    assert writer.live_writer(out, JobID("ef" * 16)) == NEW
    writer.release(out, NEW)
    assert writer.live_writer(out, JobID("ef" * 16)) is None


def test_attempt_that_was_given_up_leaves_the_note_of_the_next_one(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    writer.claim(str(tmp_path), NEW)
    note = json.loads((log / writer.NOTE).read_text())
    (log / writer.NOTE).write_text(json.dumps({**note, "host": "elsewhere"}))
    writer.release(str(tmp_path), NEW)
    assert (log / writer.NOTE).exists()


def test_writer_that_is_gone_is_none(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    writer.claim(str(tmp_path), NEW)
    note = json.loads((log / writer.NOTE).read_text())
    other = JobID("ef" * 16)
    for changed in ({"started": "long ago"}, {"host": "elsewhere"}, {"pid": None}):
        (log / writer.NOTE).write_text(json.dumps(note | changed))
        assert writer.live_writer(str(tmp_path), other) is None
    (log / writer.NOTE).write_text("{")
    assert writer.live_writer(str(tmp_path), other) is None
