"""Who may run an attempt, tried with real processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import graph_of

from firesteel.attempts.attempt import AttemptDirectory, AttemptResult, AttemptSpec, AttemptState
from firesteel.attempts.claim import NOT_MINE, claimed, holder
from firesteel.attempts.lifecycle import call_off, is_over, write_intent
from firesteel.processes import ProcessIdentity
from firesteel.types import AttemptId, new_job_id
from firesteel.worker.pool import DriverPool

DRIVER = """
import os, sys
from pathlib import Path
from firesteel.attempts.attempt import AttemptDirectory
from firesteel.attempts.claim import NOT_MINE
from firesteel.processes import ProcessIdentity
sys.stdin.readline()
me = ProcessIdentity.of(os.getpid())
if not AttemptDirectory(Path(sys.argv[1])).take(me):
    sys.exit(NOT_MINE)
print("taken", flush=True)
sys.stdin.read()
"""


class Driver:
    """A process that takes an attempt when it is told to, and keeps it until it is told to end."""

    def __init__(self, directory: AttemptDirectory) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(directory.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def go(self) -> Driver:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self

    def took(self) -> bool:
        """True once it has the attempt, False when it has ended without."""
        assert self.process.stdout is not None
        return self.process.stdout.readline() == "taken\n"

    def close(self) -> int:
        self.process.communicate(timeout=20)
        return self.process.returncode


@pytest.fixture
def directory(tmp_path: Path) -> AttemptDirectory:
    made = AttemptDirectory(tmp_path / "attempt")
    made.prepare(spec())
    return made


@pytest.fixture
def driver(directory: AttemptDirectory) -> Iterator[Callable[[], Driver]]:
    made: list[Driver] = []

    def make() -> Driver:
        made.append(Driver(directory))
        return made[-1]

    yield make
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
        each.close()


def spec() -> AttemptSpec:
    sink = {"kind": "sink", "name": "o", "input": "s", "format": "noop"}
    source = {"kind": "source", "name": "s", "format": "rate"}
    return AttemptSpec(AttemptId(new_job_id(), 1), graph_of(source, sink), None)


def eventually(condition: Callable[[], bool], timeout: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_one_of_many_drivers_gets_the_attempt(directory: AttemptDirectory, driver: Callable[[], Driver]) -> None:
    """I2: whoever started them, and however close together."""
    drivers = [driver() for _ in range(6)]
    for each in drivers:
        each.go()
    winners = [each for each in drivers if each.took()]
    assert len(winners) == 1
    winner = winners[0]
    assert [each.close() for each in drivers if each is not winner] == [NOT_MINE] * 5
    taken_by = directory.read_driver()
    assert taken_by is not None
    assert (taken_by.pid, taken_by.alive) == (winner.process.pid, True)
    assert holder(directory.root) == winner.process.pid


def test_a_killed_driver_frees_the_attempt_and_leaves_its_name(
    directory: AttemptDirectory, driver: Callable[[], Driver]
) -> None:
    first = driver().go()
    assert first.took()
    with claimed(directory.root) as mine:
        assert not mine
    assert not is_over(directory)
    first.process.kill()
    first.close()
    assert holder(directory.root) is None
    with claimed(directory.root) as mine:
        assert mine
    assert is_over(directory)
    assert not write_intent(directory, spec()), "an attempt that a driver had taken is never started again"


def test_a_late_driver_does_not_run_what_another_died_of(
    directory: AttemptDirectory, driver: Callable[[], Driver]
) -> None:
    """I11: a leader that crashed had asked for a driver too, which comes when that of the next leader is dead already."""
    first, late = driver().go(), driver()
    assert first.took()
    first.process.kill()
    first.close()
    assert not late.go().took()
    assert late.close() == NOT_MINE
    died = directory.read_driver()
    assert died is not None
    assert died.pid == first.process.pid


@pytest.mark.parametrize("sign", ["result", "called off", "forgotten"])
def test_a_late_driver_does_nothing(directory: AttemptDirectory, driver: Callable[[], Driver], sign: str) -> None:
    """A paused leader wakes up and spawns a driver for an attempt that is over (I7)."""
    late = driver()
    match sign:
        case "result":
            directory.write_result(AttemptResult(AttemptState.CANCELED))
        case "called off":
            assert call_off(directory, lambda: None)
        case _:
            directory.spec.unlink()
    began = time.monotonic()
    assert not late.go().took()
    assert late.close() == NOT_MINE
    assert time.monotonic() - began < 60
    assert not directory.driver.exists()
    assert not directory.events.exists()


def test_driver_waits_for_the_control_plane_to_let_go(
    directory: AttemptDirectory, driver: Callable[[], Driver]
) -> None:
    early = driver()
    with claimed(directory.root) as mine:
        assert mine
        early.go()
        assert eventually(lambda: early.process.poll() is None and _waits_for(directory, early.process.pid))
    assert early.took()


def _waits_for(directory: AttemptDirectory, pid: int) -> bool:
    """The driver has opened the lock's file, and does not have it."""
    links = Path(f"/proc/{pid}/fd")
    with contextlib.suppress(OSError):
        return any(
            os.path.realpath(link) == str((directory.root / "driver.lock").resolve()) for link in links.iterdir()
        )
    return False


def test_looking_does_not_turn_a_driver_away(directory: AttemptDirectory, driver: Callable[[], Driver]) -> None:
    each = driver()
    each.go()
    while each.process.poll() is None and not directory.driver.exists():
        holder(directory.root)
    assert each.took()


def test_two_threads_of_one_control_plane_exclude_each_other(directory: AttemptDirectory) -> None:
    """The kernel would let both in, and drop the lock of one when the other closes the file."""
    import threading

    inside = 0
    most = 0
    looked: list[int | None] = []

    def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            with claimed(directory.root) as mine:
                assert mine
                inside += 1
                most = max(most, inside)
                inside -= 1
            looked.append(holder(directory.root))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert most == 1
    assert set(looked) == {None}


def test_a_spawned_driver_exits_with_its_own_code(directory: AttemptDirectory, tmp_path: Path) -> None:
    """The real thing: forked by the zygote, turned away at the door, its standard output untouched."""
    directory.write_result(AttemptResult(AttemptState.CANCELED, note="called off before it started"))
    with DriverPool(log=tmp_path / "pool.log") as pool:
        args = {"directory": str(directory.root)}
        made = pool.spawn("attempt", args, stdout=directory.stdout, stderr=directory.stderr, cwd=tmp_path)
        assert made.exited.result(30).status == NOT_MINE
    assert directory.stderr.read_text() == ""
    result = directory.read_result()
    assert result is not None
    assert (result.state, result.note) == (AttemptState.CANCELED, "called off before it started")


def test_result_files_of_before_can_be_read(directory: AttemptDirectory) -> None:
    directory.result.write_text('{"state": "FINISHED", "failure": null, "ended_at": 3.5, "rows": {"a": 1}}')
    result = directory.read_result()
    assert result == AttemptResult(AttemptState.FINISHED, None, 3.5, {"a": 1})
    assert AttemptResult.from_json(AttemptResult(AttemptState.FINISHED, stopped=True, batches={"o": 4}).to_json()) == (
        AttemptResult(AttemptState.FINISHED, stopped=True, batches={"o": 4})
    )


def test_pid_that_was_used_again_is_not_the_driver(directory: AttemptDirectory) -> None:
    """F18."""
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    directory.driver.write_text(json.dumps({"pid": me.pid, "started": "1"}))
    assert is_over(directory)
