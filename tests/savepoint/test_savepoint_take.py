"""Savepoints are taken whole or not at all, while the query goes on, and twice is once."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.savepoint.fake_query import JOB, QUERY, FakeQuery, files_below

from firesteel.errors import InvalidRequestError, SavepointError
from firesteel.savepoint import files, take
from firesteel.savepoint.files import Place
from firesteel.savepoint.manifest import MANIFEST, MARK, NONE, REQUEST, Manifest, SavedFile
from firesteel.savepoint.naming import savepoint_location, savepoint_name
from firesteel.types import JobID


@pytest.fixture
def query(tmp_path: Path) -> FakeQuery:
    return FakeQuery(tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "sp" / "s1"


def taken(query: FakeQuery, place: Path, **how: Any) -> Manifest:
    take.prepare(str(place), query.request())
    return take.take(str(place), **({"alive": lambda: True, "pause": lambda _: None} | how))


def checkpoint_files(place: Path, manifest: Manifest) -> set[str]:
    return files_below(place / manifest.data / "o" / "checkpoint")


def test_place_is_derived_from_job_and_wish() -> None:
    name = savepoint_name(JOB, "t1")
    assert name == savepoint_name(JOB, "t1")
    assert name.startswith("savepoint-ababab-")
    assert len(name) == len("savepoint-ababab-") + 12
    assert len({name, savepoint_name(JOB, "t2"), savepoint_name(JobID("ab" * 15 + "00"), "t1")}) == 3
    assert savepoint_location("/x/", JOB, "t1") == savepoint_location("file:///x", JOB, "t1") == f"/x/{name}"
    assert savepoint_location("s3a://b/x", JOB, "t1") == f"s3a://b/x/{name}"
    with pytest.raises(InvalidRequestError, match="'x' is not absolute"):
        savepoint_location("x", JOB, "t1")


def test_savepoint_of_a_running_query(query: FakeQuery, place: Path) -> None:
    query.run(5)
    query.begin()  # batch 5 is under way
    manifest = taken(query, place)
    assert manifest.batches == {"o": 4}
    assert manifest.sinks["o"].query_id == QUERY
    assert checkpoint_files(place, manifest) == {
        "metadata",
        *(f"{log}/{n}" for log in ("offsets", "commits") for n in (3, 4)),
        *(f"sources/0/{n}" for n in range(6)),
        *(f"state/0/0/{n}" for n in ("3.zip", "3.changelog", "4.changelog", "5.changelog", "SSTs/000002-uuid.sst")),
        "state/0/_metadata/metadata",
        "state/0/0/_metadata/schema",
    }
    assert files_below(place / manifest.data / "o" / "sink-log") == {str(n) for n in range(5)}
    assert set(os.listdir(place)) == {MANIFEST, manifest.data}


def test_manifest_says_what_is_in_it(query: FakeQuery, place: Path) -> None:
    query.run(12)
    manifest = taken(query, place)
    assert take.find(str(place)) == manifest
    assert (manifest.job_id, manifest.job_name, manifest.trigger_id) == (JOB, "numbers", "t1")
    data = place / manifest.data / "o"
    assert set(manifest.sinks["o"].files) == files_below(data)
    for name, file in manifest.sinks["o"].files.items():
        assert file == Place.at(str(data), "").sum(name)
    assert {"sink-log/9.compact", "sink-log/10", "sink-log/11"} < set(manifest.sinks["o"].files)
    assert manifest.graph["vertices"][0]["options"] == {"password": "******", "rows": "1"}
    assert "hunter2" not in (place / MANIFEST).read_text()


def test_files_are_linked_where_that_is_possible(
    query: FakeQuery, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.run(2)
    linked = taken(query, place)
    source = query.checkpoint / "offsets" / "1"
    assert os.path.samefile(source, place / linked.data / "o" / "checkpoint" / "offsets" / "1")

    link = os.link

    def refused(source: str, target: str, **how: Any) -> None:
        if place.parent not in Path(source).parents:
            raise OSError(errno.EXDEV, "another file system")
        link(source, target, **how)

    monkeypatch.setattr(os, "link", refused)
    other = place.with_name("s2")
    take.prepare(str(other), query.request())
    copied = take.take(str(other), alive=lambda: True)
    assert not os.path.samefile(source, other / copied.data / "o" / "checkpoint" / "offsets" / "1")
    assert copied.sinks["o"].files == linked.sinks["o"].files


def test_savepoint_on_another_store(query: FakeQuery) -> None:
    import fsspec

    query.run(3)
    location = f"memory://savepoints-{os.getpid()}/s1"
    take.prepare(location, query.request())
    manifest = take.take(location, alive=None)
    assert take.find(location) == manifest
    for name, file in manifest.sinks["o"].files.items():
        assert Place.at(f"{location}/{manifest.data}/o", "").sum(name) == file
    fsspec.filesystem("memory").rm(f"/savepoints-{os.getpid()}", recursive=True)


def test_taking_it_again_answers_the_one_that_is_there(query: FakeQuery, place: Path) -> None:
    query.run(3)
    first = taken(query, place)
    query.run(3)
    assert taken(query, place) == first
    assert take.take(str(place), alive=lambda: False) == first


def test_crashed_try_is_done_anew(query: FakeQuery, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class CrashError(BaseException):
        pass

    query.run(3)
    take.prepare(str(place), query.request())
    with monkeypatch.context() as patch:
        patch.setattr(Place, "create", lambda *_: (_ for _ in ()).throw(CrashError()))
        patch.setattr(Place, "remove_tree", lambda *_: None)
        with pytest.raises(CrashError):
            take.take(str(place), alive=None)
    left = set(os.listdir(place))
    assert len(left) == 2, "the request, and what was copied"
    with pytest.raises(SavepointError, match=rf"is not complete: it has no {MANIFEST}"):
        take.find(str(place))
    query.run(2)
    manifest = take.take(str(place), alive=None)
    assert manifest.batches == {"o": 4}
    assert set(os.listdir(place)) == {MANIFEST, manifest.data}


def test_file_that_vanishes_means_a_newer_batch(query: FakeQuery, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The maintenance of the query removes old versions while they are copied."""
    query.run(5)
    original = files.copy_files
    tries: list[Sequence[str]] = []

    def slow(source: Place, target: Place, names: Sequence[str]) -> dict[str, SavedFile | None]:
        tries.append(names)
        if len(tries) < 3:
            query.run(1)
            (Path(source.location.root) / f"offsets/{query.batch - 1}").unlink()
        return original(source, target, names)

    monkeypatch.setattr(take, "copy_files", slow)
    manifest = taken(query, place)
    assert len(tries) == 4, "two that were torn, then the checkpoint and the log of the sink"
    assert manifest.batches == {"o": 6}
    assert "offsets/6" in checkpoint_files(place, manifest)
    assert not {"offsets/4", "offsets/5"} & checkpoint_files(place, manifest)


def test_checkpoint_that_is_never_whole(query: FakeQuery, place: Path) -> None:
    query.run(5)
    (query.checkpoint / "state/0/0/5.changelog").unlink()
    with pytest.raises(SavepointError, match=r"damaged: state/0/0: version 5 .*minBatchesToRetain"):
        taken(query, place)
    assert set(os.listdir(place)) == {REQUEST}


def test_job_that_ends_while_its_checkpoint_is_copied(query: FakeQuery, place: Path) -> None:
    query.run(5)
    (query.checkpoint / "state/0/0/5.changelog").unlink()
    with pytest.raises(SavepointError, match="ended while its savepoint was being taken"):
        taken(query, place, alive=lambda: False)


def test_checkpoint_that_was_removed_is_not_an_empty_savepoint(query: FakeQuery, place: Path) -> None:
    """A job that ended is cleaned up; a query that has not begun looks the same."""
    with pytest.raises(SavepointError, match="ended while its savepoint was being taken"):
        taken(query, place, alive=lambda: False)
    assert taken(query, place).batches == {"o": NONE}


def test_checkpoint_that_is_just_being_made_is_not_taken(query: FakeQuery, place: Path) -> None:
    query.run(3)
    mark = query.checkpoint / MARK
    for text in ('{"state": "copying"}', "{"):
        mark.write_text(text)
        with pytest.raises(SavepointError, match="is still being made from a savepoint; try again when its query runs"):
            taken(query, place)
    mark.write_text('{"state": "done"}')
    manifest = taken(query, place)
    assert manifest.batches == {"o": 2}
    assert MARK not in checkpoint_files(place, manifest)


def test_first_batch_is_committed_while_files_are_listed(
    query: FakeQuery, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Place.files

    def slow(self: Place) -> list[str]:
        if query.batch < 0:
            query.run(2)
        return original(self)

    monkeypatch.setattr(Place, "files", slow)
    assert taken(query, place).batches == {"o": 1}


def test_two_leaders_at_once(query: FakeQuery, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was believed dead comes second, and leaves what is there as it is."""
    query.run(3)
    original = Place.create
    winners: list[Manifest] = []

    def paused(self: Place, name: str, data: bytes) -> bool:
        if name == MANIFEST and not winners:
            winners.append(Manifest.from_bytes(data, ""))
            query.run(1)
            winners[0] = take.take(str(place), alive=None)
        return original(self, name, data)

    monkeypatch.setattr(Place, "create", paused)
    assert taken(query, place) == winners[0]
    assert winners[0].batches == {"o": 3}
    assert set(os.listdir(place)) == {MANIFEST, winners[0].data}


def test_place_of_another_savepoint_is_refused(query: FakeQuery, place: Path) -> None:
    query.run(1)
    take.prepare(str(place), query.request("t1"))
    with pytest.raises(SavepointError, match=f"belongs to the savepoint t1 of job {JOB}"):
        take.prepare(str(place), query.request("t2"))
    with pytest.raises(SavepointError, match="was never prepared"):
        take.take(str(place.with_name("other")), alive=None)


def test_directory_that_cannot_be_written_to(query: FakeQuery, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SavepointError, match=r"could not be taken: .*Not a directory"):
        take.prepare(str(tmp_path / "file" / "s1"), query.request())


def test_abandoned_savepoint_leaves_nothing(query: FakeQuery, place: Path) -> None:
    query.run(1)
    take.prepare(str(place), query.request())
    take.abandon(str(place))
    assert not place.exists()
    manifest = taken(query, place)
    take.abandon(str(place))
    assert take.find(str(place)) == manifest


def test_what_is_no_savepoint_is_called_so(tmp_path: Path) -> None:
    with pytest.raises(SavepointError, match=rf"there is no savepoint at {tmp_path}/x: no such directory"):
        take.find(f"{tmp_path}/x")
    (tmp_path / "note.txt").write_text("")
    with pytest.raises(SavepointError, match=f"no savepoint at {tmp_path}: the directory has no {MANIFEST}"):
        take.find(str(tmp_path))
    with pytest.raises(SavepointError, match="only Spark can read that file system"):
        take.find("weird://host/x")


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"data": "../elsewhere"},
        {"sinks": {"../o": {}}},
        {"sinks": {"o": {"batch": 1, "query_id": None, "places": {}, "files": {}}}},
        {"graph": 3},
    ],
)
def test_manifest_that_cannot_be_trusted(query: FakeQuery, place: Path, change: dict[str, Any]) -> None:
    query.run(1)
    taken(query, place)
    file = place / MANIFEST
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(SavepointError, match=r"cannot be read|has version 2, this Firesteel reads up to 1"):
        take.find(str(place))


def test_names_in_a_manifest_stay_in_their_directory(query: FakeQuery, place: Path) -> None:
    query.run(1)
    taken(query, place)
    file = place / MANIFEST
    data = json.loads(file.read_text())
    data["sinks"]["o"]["files"]["checkpoint/../../../x"] = {"size": 1, "sha256": ""}
    file.write_text(json.dumps(data))
    with pytest.raises(SavepointError, match=r"'\.\.' is not a file name"):
        take.find(str(place))
