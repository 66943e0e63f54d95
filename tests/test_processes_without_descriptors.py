"""A process that has no descriptor left cannot look at others; it must not take them for dead, nor for each other (F24)."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from firesteel.ha.protocols import Epoch
from firesteel.ha.sql.batch import Leadership
from firesteel.ha.sql.election import holder_is_gone
from firesteel.processes import ProcessIdentity


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Nothing can be opened in here; so do little, and assert outside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def identity(child: subprocess.Popen[bytes]) -> ProcessIdentity:
    found = ProcessIdentity.of(child.pid)
    assert found is not None
    return found


def test_live_process_stays_alive(child: subprocess.Popen[bytes]) -> None:
    it = identity(child)
    with no_descriptors():
        alive, gone = it.alive, it.wait(0)
    assert alive
    assert not gone


def test_dead_process_is_dead_all_the_same(child: subprocess.Popen[bytes]) -> None:
    it = identity(child)
    child.kill()
    child.wait()
    with no_descriptors():
        alive = it.alive
    assert not alive


def test_number_that_belongs_to_somebody_else_by_now_is_dead(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our processes are ours to signal; one that is not has only the number of ours."""
    it = identity(child)

    def not_permitted(_pid: int, _signal: int) -> None:
        raise PermissionError

    with no_descriptors(), monkeypatch.context() as patch:
        patch.setattr(os, "kill", not_permitted)
        alive = it.alive
    assert not alive


def test_signal_refuses_a_number_that_was_used_again(child: subprocess.Popen[bytes]) -> None:
    """F18."""
    assert not ProcessIdentity(child.pid, "1").signal(signal.SIGKILL)
    assert identity(child).alive


@pytest.mark.parametrize("group", [False, True])
def test_signal_is_strict_where_alive_is_generous(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, group: bool
) -> None:
    """The number may have been used again, and nobody can look: an error is better than the death of a stranger."""
    reused = ProcessIdentity(child.pid, "1")
    sent: list[tuple[int, int]] = []
    with no_descriptors(), monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)) if number else None)
        patch.setattr(os, "killpg", lambda pid, number: sent.append((pid, number)))
        with contextlib.suppress(OSError):
            assert not reused.signal(signal.SIGKILL, group=group)
    assert not sent


def test_follower_does_not_take_a_live_leader_for_gone(child: subprocess.Popen[bytes]) -> None:
    it = identity(child)
    row = Leadership(Epoch(1), "a", "host", it.pid, it.started, 0, "", 0)
    with no_descriptors():
        gone = holder_is_gone(row, "host")
    assert not gone
    child.kill()
    child.wait()
    assert holder_is_gone(row, "host")
