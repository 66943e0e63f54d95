"""Flink's names of states, and its form of times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from firesteel.status import JobStatus

EXECUTION_STATES = (
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
)
"""States of vertices and subtasks. CANCELING has one L, unlike the job's CANCELLING."""

ENDED = ("FINISHED", "CANCELED", "FAILED")
"""The final execution states."""

_OF_JOB: Mapping[JobStatus, str] = {
    JobStatus.INITIALIZING: "CREATED",
    JobStatus.CREATED: "SCHEDULED",  # waits for a slot
    JobStatus.RUNNING: "RUNNING",
    JobStatus.FAILING: "CANCELING",  # what is left of the attempt is being ended
    JobStatus.RESTARTING: "FAILED",  # the attempt has failed, and the next one has not started
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELLING: "CANCELING",
    JobStatus.CANCELED: "CANCELED",
    JobStatus.FINISHED: "FINISHED",
    JobStatus.SUSPENDED: "CANCELED",
    JobStatus.RECONCILING: "RECONCILING",
}

NOT_YET = -1
"""An end or a start that has not happened. In a map of timestamps it is 0."""

NEVER = 2**63 - 1
"""An interval or a timeout that does not exist."""

NAN = "NaN"
"""JSON has no NaN; the contract sends it as text."""


def execution_state(status: JobStatus) -> str:
    """The state of a vertex whose job is in `status`: a job runs in one driver, so all its vertices have the same state."""
    return _OF_JOB[status]


def counts(states: Iterable[str]) -> dict[str, int]:
    """The number of subtasks in each execution state, including zeros."""
    found = dict.fromkeys(EXECUTION_STATES, 0)
    for state in states:
        found[state] += 1
    return found


def ms(seconds: float) -> int:
    return round(seconds * 1000)


def ms_or(seconds: float | None, otherwise: int = NOT_YET) -> int:
    return otherwise if seconds is None else ms(seconds)
