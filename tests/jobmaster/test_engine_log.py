"""The log of an engine outlives it beside the attempts that did not finish there, and nowhere else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from firesteel.attempts.attempt import AttemptDirectory
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.worker.engine_log import ENGINE_LOG, KEPT_BYTES, begin, end

ENGINE = EngineRecord("e", EngineSpec("local[1]", owner="ann"), "localhost", 1)


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptDirectory:
    root = tmp_path / "attempts" / "1"
    root.mkdir(parents=True)
    return AttemptDirectory(root)


@pytest.fixture
def engines(tmp_path: Path) -> Path:
    (tmp_path / "engines" / "e").mkdir(parents=True)
    (tmp_path / "engines" / "e" / "engine.log").write_bytes(b"begin\n")
    return tmp_path / "engines"


def write(engines: Path, text: bytes) -> None:
    with (engines / "e" / "engine.log").open("ab") as log:
        log.write(text)


def test_log_of_an_engine_that_is_gone_stays_with_the_attempt_that_failed_there(
    attempt: AttemptDirectory, engines: Path
) -> None:
    begin(ENGINE, engines, attempt)
    write(engines, b"it broke\n")
    shutil.rmtree(engines / "e")
    end(attempt, finished=False)
    assert (attempt.root / ENGINE_LOG).read_bytes() == b"begin\nit broke\n"


def test_attempt_that_failed_keeps_what_was_there_then_and_of_that_the_end(
    attempt: AttemptDirectory, engines: Path
) -> None:
    begin(ENGINE, engines, attempt)
    write(engines, b"x" * 99 + b"\n")
    write(engines, (b"y" * 99 + b"\n") * (KEPT_BYTES // 50))
    end(attempt, finished=False)
    write(engines, b"of somebody else's job\n")
    end(attempt, finished=False)
    kept = (attempt.root / ENGINE_LOG).read_bytes()
    assert len(kept) <= KEPT_BYTES + 100
    assert kept.startswith(b"[the first ")
    assert kept.endswith(b"y\n")
    assert b"somebody" not in kept
    assert (attempt.root / ENGINE_LOG).stat().st_nlink == 1


def test_attempt_that_finished_keeps_nothing(attempt: AttemptDirectory, engines: Path) -> None:
    begin(ENGINE, engines, attempt)
    end(attempt, finished=True)
    end(attempt, finished=True)
    assert os.listdir(attempt.root) == []
    assert (engines / "e" / "engine.log").exists()


def test_log_of_an_engine_that_several_owners_use_is_not_kept(attempt: AttemptDirectory, engines: Path) -> None:
    """S19"""
    begin(EngineRecord("e", EngineSpec("local[1]"), "localhost", 1), engines, attempt)
    begin(None, engines, attempt)
    end(attempt, finished=False)
    assert os.listdir(attempt.root) == []


def test_engine_without_a_log_keeps_nobody_from_running(attempt: AttemptDirectory, tmp_path: Path) -> None:
    begin(ENGINE, tmp_path / "nowhere", attempt)
    end(attempt, finished=False)
    assert os.listdir(attempt.root) == []


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_a_job_put_in_the_place_of_the_log_is_not_read(
    attempt: AttemptDirectory, engines: Path, tmp_path: Path, kind: str
) -> None:
    """S4: the node would read for the job what the job may not."""
    secret = tmp_path / "secret"
    secret.write_text("canary")
    begin(ENGINE, engines, attempt)
    kept = attempt.root / ENGINE_LOG
    kept.unlink()
    if kind == "link":
        kept.symlink_to(secret)
    else:
        os.mkfifo(kept)
        os.link(kept, tmp_path / "second")
    end(attempt, finished=False)
    assert not kept.is_file() or kept.is_symlink()
    assert secret.read_text() == "canary"
