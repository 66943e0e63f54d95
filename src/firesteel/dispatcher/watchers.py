"""Who is told of jobs beside clients: lineage and notifications."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from firesteel.jobmaster.events import JobEvents
from firesteel.types import JobID

RequestJob = Callable[[JobID], Awaitable[dict[str, Any]]]


class JobWatcher(Protocol):
    """Watches the jobs of one leadership. Nothing that it does may hold up a job."""

    def start(self, events: JobEvents, request_job: RequestJob) -> None:
        """The leadership begins. `request_job` gives the execution graph of a job, as the API shows it."""
        ...

    async def ended(self, details: Mapping[str, Any]) -> None:
        """A job has ended; `details` is its execution graph. Called during clean-up, again after a crash: what must be told is
        durable when this returns. Waits for the store only."""
        ...

    async def close(self) -> None:
        """The leadership is over."""
        ...
