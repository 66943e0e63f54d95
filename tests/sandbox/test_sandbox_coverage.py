"""Which engine fits a job whose directories are newer than the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.sandbox.coverage import NOTES, WHOLE, Coverage, Paths
from firesteel.sandbox.policy import SandboxPolicy
from firesteel.sandbox.rules import real


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory with the data directory where it usually is."""
    (tmp_path / ".local" / "state" / "firesteel").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    return tmp_path


def coverage(home: Path) -> Coverage:
    data = home / ".local" / "state" / "firesteel"
    return Coverage(SandboxPolicy(user="ann", hidden=real(data), programs=()), data)


def made(*paths: Path) -> Paths:
    return Paths(made=tuple(map(str, paths)))


def test_jobs_in_directories_that_were_there_share_engines(home: Path) -> None:
    key = coverage(home).key(made(home / "project" / "out"))
    assert coverage(home).key(made(home / "project" / "other" / "out")) == key
    assert coverage(home).key(Paths(directory=(str(home / "project"),))) == key


def test_a_directory_that_is_newer_asks_for_another_engine_once(home: Path) -> None:
    first = coverage(home).key(made(home / "project" / "out"))
    (home / "new").mkdir()
    second = coverage(home).key(made(home / "new" / "out"))
    assert second != first
    assert coverage(home).key(made(home / "new" / "out")) == second
    assert coverage(home).key(made(home / "project" / "out")) == second


def test_a_directory_that_was_made_again_is_another_one(home: Path) -> None:
    first = coverage(home).key(made(home / "project" / "out"))
    (home / "project").rename(home / "old")
    (home / "project").mkdir()
    assert coverage(home).key(made(home / "project" / "out")) != first


def test_a_job_that_makes_something_next_to_the_way_gets_the_whole(home: Path) -> None:
    assert coverage(home).key(made(home / "out")) == WHOLE
    assert coverage(home).key(Paths(directory=(str(home),))) == WHOLE
    assert coverage(home).key(Paths(read=(str(home / "not-there"),))) != WHOLE


def test_what_is_hidden_is_no_reason_for_the_whole(home: Path) -> None:
    data = home / ".local" / "state" / "firesteel"
    assert coverage(home).key(made(data / "cluster.db")) != WHOLE
    assert coverage(home).key(Paths(directory=(str(data),))) != WHOLE


@pytest.mark.parametrize("text", ["", "{", "[]", '{"number": "x", "entries": {}}', '{"number": 1}'])
def test_notes_that_cannot_be_read_are_made_again(home: Path, text: str) -> None:
    (home / ".local" / "state" / "firesteel" / NOTES).write_text(text)
    assert coverage(home).key(made(home / "project" / "out")) == ""
