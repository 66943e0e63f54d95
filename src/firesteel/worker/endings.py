"""The results of drivers that ended without writing one."""

from __future__ import annotations

import signal
import time

from firesteel.attempts.attempt import AttemptDirectory, AttemptResult, AttemptState
from firesteel.failure import Failure, FailureKind
from firesteel.fs.files import tail
from firesteel.processes import ProcessIdentity
from firesteel.worker.pool import DriverExit


def result_of(directory: AttemptDirectory, driver: ProcessIdentity | None, ending: DriverExit | None) -> AttemptResult:
    """The result of an attempt whose driver left none. `driver` took it, and `ending` is what is known of its end."""
    now = time.time()
    if directory.cancel_request.exists():
        note = "called off while it ran" if driver else "called off before it started"
        return AttemptResult(AttemptState.CANCELED, ended_at=now, note=note)
    if driver is None and ending is None:
        failure = Failure(
            FailureKind.KILLED, "no driver process took up the attempt; the one that was started for it is gone"
        )
    else:
        failure = from_exit(ending.status if ending else None, tail(directory.stderr))
    return AttemptResult(AttemptState.FAILED, failure, now)


def kill(driver: ProcessIdentity, group: list[ProcessIdentity]) -> None:
    """Kill a driver and its group. `group` was looked up while the driver lived."""
    for process in (driver, *group):
        process.signal(signal.SIGKILL)
    driver.wait(5)


def from_exit(status: int | None, stderr: str, *, vertex: str | None = None) -> Failure:
    """The failure that the exit status of a driver stands for. None: the exit status is not known."""
    last = stderr.strip().splitlines()[-1:] or [""]
    if status is None:
        return Failure(
            FailureKind.KILLED,
            "the driver process ended without a result, and its exit code is unknown because the process that could "
            "have seen it was gone; check the end of stderr.log and the system log",
            vertex,
            traceback=stderr,
        )
    if status == -signal.SIGKILL:
        return Failure(
            FailureKind.KILLED,
            "the driver process was killed (SIGKILL): by the system because memory ran out, or by kill -9",
            vertex,
            traceback=stderr,
        )
    if status < 0:
        name = signal.Signals(-status).name
        return Failure(FailureKind.KILLED, f"the driver process was ended by {name}", vertex, traceback=stderr)
    detail = f": {last[0]}" if last[0] else ""
    return Failure(
        FailureKind.EXIT_CODE,
        f"the driver process ended with code {status} and no result{detail}",
        vertex,
        traceback=stderr,
        exit_code=status or None,
    )
