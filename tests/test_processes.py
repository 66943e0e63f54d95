"""Naming processes so that another one is never hit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from firesteel.processes import ProcessIdentity, end, group_of

SLEEP = "import time; time.sleep(300)"
FAMILY = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); print('up', flush=True); {SLEEP}"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); {SLEEP}"


def start(code: str) -> tuple[subprocess.Popen[str], ProcessIdentity]:
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    child.stdout.close()
    identity = ProcessIdentity.of(child.pid)
    assert identity is not None
    return child, identity


def test_a_pid_that_was_used_again_is_another_process() -> None:
    """F18."""
    child, identity = start(FAMILY)
    reused = ProcessIdentity(identity.pid, "1")
    assert identity.alive
    assert not reused.alive
    assert not reused.signal(signal.SIGKILL)
    assert end(reused, grace=0)
    assert group_of(reused) == []
    assert identity.alive
    end(identity, grace=5)
    child.wait()


def test_end_takes_the_whole_group() -> None:
    child, identity = start(FAMILY)
    [other] = group_of(identity)
    assert end(identity, grace=5)
    child.wait()
    assert other.wait(5)


def test_end_of_one_that_does_not_listen_is_sure() -> None:
    child, identity = start(DEAF)
    assert not end(identity, grace=0.1)
    assert child.wait() == -signal.SIGKILL


def test_zombie_is_not_alive() -> None:
    child, identity = start(FAMILY)
    members = group_of(identity)
    os.kill(child.pid, signal.SIGKILL)
    assert identity.wait(5)
    child.wait()
    for member in members:
        member.signal(signal.SIGKILL)
