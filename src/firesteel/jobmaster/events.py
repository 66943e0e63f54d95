"""Events of jobs, sent to listeners as they happen, so that no client has to poll.

Events are hints, not a record: they are not stored, a listener that is too slow loses some and is told so, and a new
listener asks for the current state first. What must not be lost is in the stores.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from firesteel.failure import Failure
from firesteel.status import JobStatus
from firesteel.stores.job_results import JobResult
from firesteel.types import JobID

STATE = "state"
PROGRESS = "progress"
LOG = "log"
LOST = "lost"

RESULT = (
    "name",
    "mode",
    "submitted_at",
    "ended_at",
    "attempt",
    "restarts",
    "stopped",
    "checkpoint",
    "savepoint",
)
"""The fields in the `result` of a final event, named as in the execution graph of the job."""

MAX_BEHIND = 1000
"""Events that wait for a slow listener; the oldest go first."""


@dataclass(frozen=True, slots=True)
class JobEvent:
    kind: str
    """STATE, PROGRESS, LOG, or LOST: some events before this one did not reach the listener."""
    job_id: JobID
    at: float
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def final(self) -> bool:
        """No event of this job follows."""
        return self.kind == STATE and JobStatus(self.data["status"]).terminal


def state_event(
    job_id: JobID,
    status: JobStatus,
    at: float,
    *,
    attempt: int | None = None,
    failure: Failure | None = None,
    cause: str = "",
) -> JobEvent:
    """`cause`: see `jobmaster.story`."""
    data: dict[str, Any] = {"status": status.value}
    if cause:
        data["cause"] = cause
    if attempt:
        data["attempt"] = attempt
    if failure is not None:
        data["failure"] = failure.to_json()
    return JobEvent(STATE, job_id, at, data)


def end_event(result: JobResult, *, savepoint: str = "", cause: str = "") -> JobEvent:
    """The last event of a job. It says in full how the job ended, so that clients need not ask.

    Row counts are not in it, which the driver reports a moment later, nor is a savepoint that is taken of a stopped stream.
    """
    event = state_event(
        result.job_id, result.status, result.ended_at, attempt=result.attempts, failure=result.failure, cause=cause
    )
    known = {"attempt": result.attempts, "savepoint": savepoint}
    summary = {name: known[name] if name in known else getattr(result, name) for name in RESULT}
    return replace(event, data={**event.data, "result": summary})


class JobEvents:
    """The listeners of all jobs. Lives on one event loop; publishing never waits."""

    def __init__(self) -> None:
        self._by_job: dict[JobID | None, set[Subscription]] = {}

    def subscribe(self, job_id: JobID | None = None) -> Subscription:
        """Listen to one job, or to all. Close the subscription, or use it as a context manager."""
        subscription = Subscription(self, job_id)
        self._by_job.setdefault(job_id, set()).add(subscription)
        return subscription

    def publish(self, event: JobEvent) -> None:
        for key in (event.job_id, None):
            for subscription in self._by_job.get(key, ()):
                subscription.offer(event)

    def heard(self, job_id: JobID) -> bool:
        """Whether there is a listener for this job in particular, so that collecting details is worthwhile."""
        return job_id in self._by_job

    def remove(self, subscription: Subscription) -> None:
        listeners = self._by_job.get(subscription.job_id)
        if listeners is not None:
            listeners.discard(subscription)
            if not listeners:
                del self._by_job[subscription.job_id]

    @property
    def listeners(self) -> int:
        return sum(len(s) for s in self._by_job.values())


class Subscription:
    """Events in order, for one listener."""

    def __init__(self, events: JobEvents, job_id: JobID | None) -> None:
        self.job_id = job_id
        self._events = events
        self._waiting: deque[JobEvent] = deque()
        self._lost = 0
        self._news = asyncio.Event()

    def offer(self, event: JobEvent) -> None:
        if len(self._waiting) >= MAX_BEHIND:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(event)
        self._news.set()

    async def next(self) -> JobEvent:
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        event = self._waiting.popleft()
        if self._lost:
            self._waiting.appendleft(event)
            event = JobEvent(LOST, event.job_id, event.at, {"count": self._lost})
            self._lost = 0
        return event

    def close(self) -> None:
        self._events.remove(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
