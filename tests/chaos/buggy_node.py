"""A real node with a bug: `python -m tests.chaos.buggy_node BUG -Dkey=value …`. A harness that does not notice proves nothing.

The store is watched as in `failing_node`, with the same environment variables.
"""

from __future__ import annotations

import sys

from tests.chaos import failing_node  # first: it may have to change what the clock says

# isort: split
import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.support import bugs

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.dispatcher.leader_process import DispatcherLeaderProcess
from firesteel.dispatcher.runner import DispatcherRunner
from firesteel.entrypoint.__main__ import main
from firesteel.ha.lease import LeaseElectionDriver
from firesteel.ha.protocols import Epoch
from firesteel.ha.sql.batch import Batch
from firesteel.jobmaster.master import JobMaster
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import JobGraphStore, Submission
from firesteel.stores.job_results import JobResultStore
from firesteel.stores.operations import OperationStore
from firesteel.worker.executor import LocalAttemptExecutor
from firesteel.worker.settling import AttemptSettling

SLOW_SECONDS = 15.0
LATE_SECONDS = 3.0


def fencing_skipped() -> None:
    """Old epochs may write, and a leader that was replaced does not believe it."""
    _put(Batch, "_check", lambda self, path, epoch, expected: None)
    _put(LeaseElectionDriver, "holds", lambda self, epoch: True)
    _put(DispatcherRunner, "on_revoke", lambda self: None)


def acknowledged_before_the_write() -> None:
    bugs.acknowledged_before_the_write(_put, late=LATE_SECONDS)


def cleaned_before_the_result() -> None:
    bugs.cleaned_before_the_result(_put)


def restarted_on_adoption() -> None:
    bugs.restarted_on_adoption(_put)


def started_twice() -> None:
    """A new leader starts another attempt, and lets the one that runs go on."""
    restarted_on_adoption()

    def fence(self: AttemptSettling, attempt: Any, *_: Any, **__: Any) -> AttemptResult:
        return AttemptResult(AttemptState.FAILED)

    _put(AttemptSettling, "fence", fence)


def result_overwritten() -> None:
    original = JobResultStore.mark_clean

    async def mark_clean(self: JobResultStore, job_id: Any, *, epoch: Epoch) -> None:
        result = await self.read(job_id)
        if result is not None:
            changed = replace(result, status=JobStatus.FAILED, ended_at=result.ended_at + 1)
            await self.replace_unreadable(changed, epoch=epoch)
        await original(self, job_id, epoch=epoch)

    _put(JobResultStore, "mark_clean", mark_clean)


def cancel_forgotten() -> None:
    async def cancel(self: JobMaster, *, keep_checkpoint: bool | None = None) -> None:
        return None

    _put(JobMaster, "cancel", cancel)


def duplicates_not_noticed() -> None:
    bugs.duplicates_not_noticed(_put)
    original = JobGraphStore.put

    async def put(self: JobGraphStore, submission: Submission, *, epoch: Epoch) -> None:
        await self.delete(submission.job_id, epoch=epoch)
        await original(self, submission, epoch=epoch)

    _put(JobGraphStore, "put", put)


def cleaned_up_by_halves() -> None:
    original = Dispatcher.__init__

    def init(self: Dispatcher, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self._cleaner._steps = tuple(s for s in self._cleaner._steps if s.name not in ("outputs", "attempts", "record"))

    _put(Dispatcher, "__init__", init)


def savepoint_not_taken() -> None:
    async def savepoint(self: LocalAttemptExecutor, location: str, *args: Any, **more: Any) -> Any:
        return {}

    _put(LocalAttemptExecutor, "savepoint", savepoint)
    _put(LocalAttemptExecutor, "savepoint_sizes", savepoint)


def operations_forgotten() -> None:
    async def load(self: OperationStore) -> None:
        self._operations = {}

    _put(OperationStore, "load", load)


def counters_not_durable() -> None:
    bugs.counters_not_durable(_put)


def epoch_granted_twice() -> None:
    original = Batch.__init__

    def init(self: Batch, leadership: Any, versions: Any, next_epoch: Epoch | None = None) -> None:
        original(self, leadership, versions, Epoch(max(1, leadership.epoch)))

    _put(Batch, "__init__", init)


def slow_to_lead() -> None:
    original = DispatcherLeaderProcess.start

    async def start(self: DispatcherLeaderProcess) -> None:
        if self.epoch > 1:
            await asyncio.sleep(SLOW_SECONDS)
        await original(self)

    _put(DispatcherLeaderProcess, "start", start)


def _put(owner: object, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} any more: mend this bug"
    setattr(owner, name, value)


BUGS: dict[str, Callable[[], None]] = {
    bug.__name__.replace("_", "-"): bug
    for bug in (
        fencing_skipped,
        acknowledged_before_the_write,
        cleaned_before_the_result,
        restarted_on_adoption,
        started_twice,
        result_overwritten,
        cancel_forgotten,
        duplicates_not_noticed,
        cleaned_up_by_halves,
        savepoint_not_taken,
        operations_forgotten,
        counters_not_durable,
        epoch_granted_twice,
        slow_to_lead,
    )
}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in BUGS:
        sys.exit(f"usage: python -m tests.chaos.buggy_node BUG -Dkey=value …; bugs: {', '.join(BUGS)}")
    BUGS[sys.argv[1]]()
    failing_node.install(failing_node.TOLD)
    sys.exit(main(sys.argv[2:]))
