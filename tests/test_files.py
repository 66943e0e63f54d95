"""Files that are whole or not there, whatever the disk says."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from firesteel.fs.files import read_json, write_atomically, write_json

Write = Callable[[int, memoryview], int]
NO_ROOM = OSError(errno.ENOSPC, "No space left on device")


def takes_at_most(count: int, write: Write) -> Write:
    """A disk that is nearly full says only in the number of bytes that it took a part."""
    return lambda fd, data: write(fd, data[:count])


def fails_after(writes: int, error: BaseException, write: Write) -> Write:
    left = [writes]

    def failing(fd: int, data: memoryview) -> int:
        if left[0] == 0:
            raise error
        left[0] -= 1
        return write(fd, data[:3])

    return failing


@pytest.mark.parametrize("count", [1, 4096])
def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    value = {"state": "FAILED", "failure": "x" * 9000 if count > 1 else "ä"}
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", takes_at_most(count, os.write))
        write_json(tmp_path / "result.json", value)
    assert json.loads((tmp_path / "result.json").read_text()) == value
    assert [f.name for f in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize("error", [NO_ROOM, KeyboardInterrupt()], ids=["no room", "interrupted"])
@pytest.mark.parametrize("old", [None, "the old content"])
def test_write_that_fails_half_way_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, old: str | None
) -> None:
    path = tmp_path / "result.json"
    if old is not None:
        path.write_text(old)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fails_after(2, error, os.write))
        with pytest.raises(type(error)):
            write_atomically(path, "the new content, which is longer")
    assert (path.read_text() if path.exists() else None) == old
    assert [f.name for f in tmp_path.iterdir()] == ([] if old is None else ["result.json"])


def test_content_that_may_not_be_on_the_disk_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems say with the fsync only that there was no room."""
    path = tmp_path / "result.json"
    write_json(path, {"n": 1})

    def no_room(_fd: int) -> None:
        raise NO_ROOM

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_room)
        with pytest.raises(OSError, match="No space"):
            write_json(path, {"n": 2})
    assert read_json(path) == {"n": 1}
    assert [f.name for f in tmp_path.iterdir()] == ["result.json"]


def test_failed_writes_keep_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lowest_free() -> int:
        fd = os.open(tmp_path, os.O_RDONLY)
        os.close(fd)
        return fd

    before = lowest_free()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fails_after(0, NO_ROOM, os.write))
        for _ in range(5):
            with pytest.raises(OSError, match="No space"):
                write_atomically(tmp_path / "f", "text")
    assert lowest_free() == before
