"""The states of a job: Flink's names and meaning, and one table of which may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class JobStatus(StrEnum):
    """Where a job stands.

        INITIALIZING ─► CREATED ─► RUNNING ─► FINISHED
                           ▲  │       │ ▲  └─► FAILING ─► FAILED
             RECONCILING ──┘  │       │ │        │
                  └───────────┼───────┘ └── RESTARTING ◄┘
                              └─► CANCELLING ─► CANCELED

    SUSPENDED is where a leader leaves a job that it no longer leads; the next one begins with RECONCILING.
    """

    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"
    RECONCILING = "RECONCILING"

    @property
    def terminal(self) -> bool:
        """Final for good: no leader will ever run the job again."""
        return self in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED)


_S = JobStatus
TRANSITIONS: Mapping[JobStatus, frozenset[JobStatus]] = {
    _S.INITIALIZING: frozenset({_S.CREATED, _S.RECONCILING, _S.FAILED, _S.CANCELLING, _S.CANCELED, _S.SUSPENDED}),
    _S.CREATED: frozenset({_S.RUNNING, _S.FAILING, _S.CANCELLING, _S.SUSPENDED}),
    _S.RECONCILING: frozenset(
        {_S.CREATED, _S.RUNNING, _S.RESTARTING, _S.FAILING, _S.CANCELLING, _S.FINISHED, _S.SUSPENDED}
    ),
    _S.RUNNING: frozenset({_S.FINISHED, _S.FAILING, _S.CANCELLING, _S.SUSPENDED}),
    # An attempt may turn out to have succeeded just when its engine or its driver seemed lost.
    _S.FAILING: frozenset({_S.FAILED, _S.RESTARTING, _S.CANCELLING, _S.FINISHED, _S.SUSPENDED}),
    _S.RESTARTING: frozenset({_S.CREATED, _S.CANCELLING, _S.SUSPENDED}),
    # A job whose outputs were being committed when the cancel came is FINISHED: results are true before they are wished.
    _S.CANCELLING: frozenset({_S.CANCELED, _S.FINISHED, _S.SUSPENDED}),
    _S.SUSPENDED: frozenset(),
    _S.FINISHED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELED: frozenset(),
}


class CheckpointRetention(StrEnum):
    """What becomes of the checkpoint of a stream that has ended. Flink's words; each keeps less than the one before."""

    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"

    def keeps(self, status: JobStatus, *, stopped: bool) -> bool:
        """Whether the checkpoint of a stream that ended as `status` is kept. A stop always keeps it for a later resume."""
        if stopped or self is CheckpointRetention.RETAIN_ON_CANCELLATION:
            return True
        return self is CheckpointRetention.DELETE_ON_CANCELLATION and status is JobStatus.FAILED
