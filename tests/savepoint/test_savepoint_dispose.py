"""A savepoint is removed, and nothing else ever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.savepoint.fake_query import FakeQuery, files_below

from firesteel.errors import SavepointError
from firesteel.savepoint import take
from firesteel.savepoint.dispose import dispose
from firesteel.savepoint.files import Place
from firesteel.savepoint.manifest import DISPOSING, MANIFEST


@pytest.fixture
def place(tmp_path: Path) -> Path:
    query = FakeQuery(tmp_path)
    query.run(4)
    place = tmp_path / "sp" / "s1"
    take.prepare(str(place), query.request())
    take.take(str(place), alive=None)
    return place


def test_savepoint_goes_and_its_query_does_not_notice(place: Path, tmp_path: Path) -> None:
    before = files_below(tmp_path / "checkpoints")
    dispose(str(place))
    assert not place.exists()
    assert place.parent.exists()
    assert files_below(tmp_path / "checkpoints") == before
    with pytest.raises(SavepointError, match=f"there is no savepoint at {place}"):
        dispose(str(place))
    dispose(str(place), resumed=True)


def test_other_directories_are_refused(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "data-0123abcd").mkdir(parents=True)
    (precious / "data-0123abcd" / "x").write_text("x")
    with pytest.raises(SavepointError, match="is not complete"):
        dispose(str(precious))
    with pytest.raises(SavepointError, match="is not complete"):
        dispose(str(precious), resumed=True)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "y").write_text("y")
    with pytest.raises(SavepointError, match="the directory has no"):
        dispose(str(tmp_path / "plain"), resumed=True)
    assert files_below(tmp_path) == {"precious/data-0123abcd/x", "plain/y"}


def test_files_of_others_in_it_stay(place: Path) -> None:
    (place / "notes.txt").write_text("mine")
    dispose(str(place))
    assert files_below(place) == {"notes.txt"}


def test_link_to_elsewhere_is_not_followed(place: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "x").write_text("x")
    (place / "data-0123abcd").symlink_to(precious)
    with pytest.raises(SavepointError, match="is a symbolic link"):
        dispose(str(place))
    assert files_below(precious) == {"x"}


@pytest.mark.parametrize("step", range(6))
def test_crash_half_way_leaves_nothing_to_start_from_and_can_be_repeated(
    place: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CrashError(BaseException):
        pass

    left = step

    def count() -> None:
        nonlocal left
        if left == 0:
            raise CrashError
        left -= 1

    with monkeypatch.context() as patch:
        for name in ("write", "remove", "remove_tree"):
            original = getattr(Place, name)

            def counted(self: Place, *args: object, original: object = original) -> object:
                count()
                return original(self, *args)  # type: ignore[operator]

            patch.setattr(Place, name, counted)
        try:
            dispose(str(place))
            assert step == 5, "five steps, and the directory"
        except CrashError:
            names = os.listdir(place)
            if step == 0:
                assert MANIFEST in names
            if DISPOSING in names and MANIFEST not in names:
                with pytest.raises(SavepointError, match="is being deleted or was partly deleted"):
                    take.find(str(place))
    dispose(str(place), resumed=True)
    assert not place.exists()
