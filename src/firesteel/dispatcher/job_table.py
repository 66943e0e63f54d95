"""Where each job stands with its Dispatcher: one table, one entry for each job.

Events change an entry, and `step` says how: it is pure, and a transition that it does not name cannot happen. The table
keeps the entries of jobs that have not ended or are not clean yet, and notifies those who wait for a change. Ended jobs
are not kept twice: the result store has all of them in memory, and the table reads them there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace

from firesteel.errors import NotLeadingError
from firesteel.jobmaster.runner import JobManagerRunner
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult, JobResultStore
from firesteel.types import JobID

# -- entries ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submitting:
    """A submission of the job is under way and excludes all others. Queries do not see the job yet."""

    submission: Submission
    cleared: bool = False
    """All checks have passed: it is being written."""


@dataclass(frozen=True, slots=True)
class Live:
    """The job has no result."""

    runner: JobManagerRunner


@dataclass(frozen=True, slots=True)
class Parked:
    """The stored state of the job cannot be read; it is about to get a result that says so."""

    reason: str
    runner: JobManagerRunner | None = None
    """None when not even its graph could be read."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The job has its result; what it left behind is being cleaned up."""

    result: JobResult
    runner: JobManagerRunner | None = None
    """The job's runner, if it ended here: it knows more than the stores do."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The job has its result, and everything else of it is gone."""

    result: JobResult


Entry = Submitting | Live | Parked | Ending | Ended

# -- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submitted:
    submission: Submission


@dataclass(frozen=True, slots=True)
class Cleared:
    """The submission may be written."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The submission was not accepted."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The submission is durable."""

    runner: JobManagerRunner


@dataclass(frozen=True, slots=True)
class Found:
    """The job was found in the store: an earlier leader accepted it, or it was put there externally."""

    runner: JobManagerRunner


@dataclass(frozen=True, slots=True)
class Unreadable:
    reason: str


@dataclass(frozen=True, slots=True)
class Concluded:
    """The job's result is durable (I5)."""

    result: JobResult


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The job's result is marked clean (I12)."""


Event = Submitted | Cleared | Refused | Accepted | Found | Unreadable | Concluded | Cleaned


class IllegalEntryError(Exception):
    """A bug of ours: the event is not allowed for the job's entry."""


def step(entry: Entry | None, event: Event) -> Entry | None:
    """A job's entry after `event`. None stands for a job that is not known, before or after."""
    match entry, event:
        case None, Submitted(submission):
            return Submitting(submission)
        case Submitting(cleared=False), Cleared():
            return replace(entry, cleared=True)
        case Submitting(), Refused():
            return None
        case Submitting(cleared=True), Accepted(runner):
            return Live(runner)
        case None | Ended(), Found(runner):  # a graph that outlived its result: the runner asks for that first
            return Live(runner)
        case None | Ended(), Unreadable(reason):
            return Parked(reason)
        case Live(runner), Unreadable(reason):
            return Parked(reason, runner)
        case None, Concluded(result):
            return Ending(result)
        case Live(runner), Concluded(result):
            return Ending(result, runner)
        case Parked(), Concluded(result):  # its runner knows nothing of use: what it was given cannot be read
            return Ending(result)
        case Ending(result), Cleaned():
            return Ended(result)
    raise IllegalEntryError(f"{type(entry).__name__ if entry else 'an unknown job'} and {type(event).__name__}")


# -- the table ----------------------------------------------------------------------------------------------------


class JobTable:
    """The entries of all jobs of a Dispatcher. Only the Dispatcher changes them; everyone may look and wait."""

    def __init__(self, results: JobResultStore) -> None:
        self._results = results
        self._entries: dict[JobID, Entry] = {}
        """The entries of jobs that have not ended, or are not clean."""
        self._changes: dict[JobID, asyncio.Future[Entry | None]] = {}
        """The next entry of each job whose change is waited for."""
        self.closed = False

    def get(self, job_id: JobID) -> Entry | None:
        if (entry := self._entries.get(job_id)) is not None:
            return entry
        result = self._results.get(job_id)
        return None if result is None or self._results.is_dirty(job_id) else Ended(result)

    def happened(self, job_id: JobID, event: Event) -> None:
        """Apply `event` to the entry of a job. Raises IllegalEntryError when `step` does not allow it."""
        entry = step(self.get(job_id), event)
        if entry is None or isinstance(entry, Ended):
            self._entries.pop(job_id, None)
        else:
            self._entries[job_id] = entry
        if (change := self._changes.pop(job_id, None)) is not None and not change.done():
            change.set_result(entry)

    async def changed(self, job_id: JobID, timeout: float | None = None) -> Entry | None:  # noqa: ASYNC109 - not an error
        """The job's entry after its next change, or when `timeout` is over. Raises NotLeadingError once the table is
        closed."""
        self.check_open()
        change = self._changes.get(job_id)
        if change is None:
            change = self._changes[job_id] = asyncio.get_running_loop().create_future()
        await asyncio.wait([change], timeout=timeout)
        if change.cancelled():
            self.check_open()
        return change.result() if change.done() else self.get(job_id)

    def check_open(self) -> None:
        if self.closed:
            raise NotLeadingError("this node is no longer the leader; ask the new leader")

    def close(self) -> None:
        """Raise NotLeadingError in all waiting calls."""
        self.closed = True
        for change in self._changes.values():
            change.cancel()
        self._changes.clear()

    # -- looks ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many jobs have not ended, or are not clean."""
        return len(self._entries)

    def __iter__(self) -> Iterator[JobID]:
        """The ids of those jobs."""
        return iter(self._entries)

    @property
    def unfinished(self) -> bool:
        """Whether a job has no result yet. The clean-up of one that has a result needs no engine."""
        return any(not isinstance(entry, Ending) for entry in self._entries.values())

    def live(self) -> list[JobManagerRunner]:
        return [entry.runner for entry in self._entries.values() if isinstance(entry, Live)]

    def live_runner(self, job_id: JobID) -> JobManagerRunner | None:
        """The runner of a job that has no result."""
        entry = self._entries.get(job_id)
        return entry.runner if isinstance(entry, Live) else None

    def runner(self, job_id: JobID) -> JobManagerRunner | None:
        """The runner of a job, which may have ended without being clean."""
        entry = self._entries.get(job_id)
        return entry.runner if isinstance(entry, Live | Parked | Ending) else None

    def result(self, job_id: JobID) -> JobResult | None:
        entry = self.get(job_id)
        return entry.result if isinstance(entry, Ending | Ended) else None

    def parked(self) -> list[tuple[JobID, Parked]]:
        return [(job_id, entry) for job_id, entry in self._entries.items() if isinstance(entry, Parked)]

    def submissions(self) -> Iterator[Submission]:
        """The submissions of all jobs that are not clean, including those under way."""
        for entry in self._entries.values():
            if isinstance(entry, Submitting):
                yield entry.submission
            elif not isinstance(entry, Ended) and entry.runner is not None:
                yield entry.runner.submission

    def writers(self) -> Iterator[Submission]:
        """The submissions of jobs that write, or are certain to."""
        for entry in self._entries.values():
            match entry:
                case Submitting(submission, cleared=True):
                    yield submission
                case Live(runner) | Parked(runner=JobManagerRunner() as runner):
                    yield runner.submission
