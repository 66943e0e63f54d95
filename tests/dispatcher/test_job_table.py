"""Where a job stands with its Dispatcher: every entry with every event, and who waits for a change."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.jobmaster.job_desk import EPOCH, JOB, Desk, play

from firesteel.dispatcher.job_table import (
    Accepted,
    Cleaned,
    Cleared,
    Concluded,
    Ended,
    Ending,
    Entry,
    Event,
    Found,
    IllegalEntryError,
    JobTable,
    Live,
    Parked,
    Refused,
    Submitted,
    Submitting,
    Unreadable,
    step,
)
from firesteel.errors import NotLeadingError
from firesteel.jobmaster.machine import Finish
from firesteel.jobmaster.runner import JobManagerRunner
from firesteel.status import JobStatus
from firesteel.stores.job_results import JobResult, JobResultStore
from firesteel.types import JobID


class Made:
    """A runner, a result, and a table that is empty."""

    def __init__(self, retention: int = 10) -> None:
        desk = self.desk = Desk()
        self.submission = desk.submission
        self.results = JobResultStore(desk.store, retention)
        self.runner = self.make_runner()
        self.result: JobResult = self.runner._result(Finish(JobStatus.FINISHED, None))
        self.table = JobTable(self.results)

    def make_runner(self) -> JobManagerRunner:
        return JobManagerRunner(self.submission, None, self.desk.services, self.results, self.desk.configuration)

    def entries(self) -> dict[str, Entry | None]:
        return {
            "-": None,
            "submitting": Submitting(self.submission),
            "cleared": Submitting(self.submission, cleared=True),
            "live": Live(self.runner),
            "parked": Parked("torn"),
            "parked+": Parked("torn", self.runner),
            "ending": Ending(self.result),
            "ending+": Ending(self.result, self.runner),
            "ended": Ended(self.result),
        }

    def events(self) -> dict[str, Event]:
        return {
            "submitted": Submitted(self.submission),
            "cleared": Cleared(),
            "refused": Refused(),
            "accepted": Accepted(self.runner),
            "found": Found(self.runner),
            "unreadable": Unreadable("torn"),
            "concluded": Concluded(self.result),
            "cleaned": Cleaned(),
        }


BUG = "a bug"
COLUMNS = ("submitted", "cleared", "refused", "accepted", "found", "unreadable", "concluded", "cleaned")
TABLE = {
    "-": ("submitting", BUG, BUG, BUG, "live", "parked", "ending", BUG),
    "submitting": (BUG, "cleared", "-", BUG, BUG, BUG, BUG, BUG),
    "cleared": (BUG, BUG, "-", "live", BUG, BUG, BUG, BUG),
    "live": (BUG, BUG, BUG, BUG, BUG, "parked+", "ending+", BUG),
    "parked": (BUG, BUG, BUG, BUG, BUG, BUG, "ending", BUG),
    "parked+": (BUG, BUG, BUG, BUG, BUG, BUG, "ending", BUG),
    "ending": (BUG, BUG, BUG, BUG, BUG, BUG, BUG, "ended"),
    "ending+": (BUG, BUG, BUG, BUG, BUG, BUG, BUG, "ended"),
    "ended": (BUG, BUG, BUG, BUG, "live", "parked", BUG, BUG),
}


@pytest.mark.parametrize("before", TABLE)
@pytest.mark.parametrize(("column", "event"), list(enumerate(COLUMNS)), ids=COLUMNS)
def test_each_entry_with_each_event(before: str, column: int, event: str) -> None:
    async def main() -> None:
        made = Made()
        entries, events = made.entries(), made.events()
        assert (set(entries), tuple(events)) == (set(TABLE), COLUMNS)
        expected = TABLE[before][column]
        if expected is BUG:
            with pytest.raises(IllegalEntryError, match=f"and {type(events[event]).__name__}"):
                step(entries[before], events[event])
        else:
            assert step(entries[before], events[event]) == entries[expected]

    play(main)


def test_a_job_from_its_submission_until_it_is_forgotten() -> None:
    async def main() -> None:
        made = Made(retention=1)
        table, results = made.table, made.results
        seen: list[Any] = [table.get(JOB)]
        for event in (Submitted(made.submission), Cleared(), Accepted(made.runner)):
            table.happened(JOB, event)
            seen.append(table.get(JOB))
        await results.put_dirty(made.result, epoch=EPOCH)
        assert table.get(JOB) == seen[-1], "the table says when a job has ended, not the store"
        table.happened(JOB, Concluded(made.result))
        seen.append(table.get(JOB))
        assert (table.result(JOB), table.runner(JOB), table.live_runner(JOB)) == (made.result, made.runner, None)
        await results.mark_clean(JOB, epoch=EPOCH)
        assert len(table) == 1
        table.happened(JOB, Cleaned())
        assert (len(table), table.get(JOB)) == (0, Ended(made.result))
        younger = replace(made.result, job_id=JobID("f" * 32), ended_at=made.result.ended_at + 1)
        await results.put_dirty(younger, epoch=EPOCH)
        await results.mark_clean(younger.job_id, epoch=EPOCH)
        assert table.get(JOB) is None
        assert [type(e).__name__ for e in seen] == ["NoneType", "Submitting", "Submitting", "Live", "Ending"]

    play(main)


def test_an_event_that_cannot_be_changes_nothing_and_wakes_nobody() -> None:
    async def main() -> None:
        made = Made()
        made.table.happened(JOB, Found(made.runner))
        waiting = asyncio.ensure_future(made.table.changed(JOB))
        await asyncio.sleep(0)
        with pytest.raises(IllegalEntryError, match="Live and Submitted"):
            made.table.happened(JOB, Submitted(made.submission))
        await asyncio.sleep(1)
        assert (made.table.get(JOB), waiting.done()) == (Live(made.runner), False)
        waiting.cancel()

    play(main)


def test_all_who_wait_are_told_what_the_entry_became_first() -> None:
    async def main() -> None:
        made = Made(retention=0)
        made.table.happened(JOB, Found(made.runner))
        waiting = [asyncio.ensure_future(made.table.changed(JOB)) for _ in range(3)]
        elsewhere = asyncio.ensure_future(made.table.changed(JobID("f" * 32), timeout=5))
        await asyncio.sleep(1)
        made.table.happened(JOB, Concluded(made.result))
        made.table.happened(JOB, Cleaned())  # and the store forgets it in the same moment
        assert made.table.get(JOB) is None
        assert await asyncio.gather(*waiting) == [Ending(made.result, made.runner)] * 3
        assert await elsewhere is None, "time was over"

    play(main)


def test_who_waits_hears_of_the_end_of_leadership() -> None:
    async def main() -> None:
        made = Made()
        made.table.happened(JOB, Found(made.runner))
        waiting = asyncio.ensure_future(made.table.changed(JOB))
        await asyncio.sleep(1)
        made.table.close()
        with pytest.raises(NotLeadingError):
            await waiting
        with pytest.raises(NotLeadingError):
            await made.table.changed(JOB)

    play(main)


def test_writers_are_jobs_that_run_and_submissions_that_nothing_stands_in_the_way_of() -> None:
    async def main() -> None:
        made, table = Made(), JobTable(JobResultStore(Desk().store, 10))
        submissions = [replace(made.submission, job_id=JobID(f"{n:032x}")) for n in range(5)]
        waiting, cleared, live, parked, ending = submissions
        for submission in (waiting, cleared):
            table.happened(submission.job_id, Submitted(submission))
        table.happened(cleared.job_id, Cleared())
        for submission in (live, parked, ending):
            made.submission = submission
            table.happened(submission.job_id, Found(made.make_runner()))
        table.happened(parked.job_id, Unreadable("torn"))
        table.happened(ending.job_id, Concluded(replace(made.result, job_id=ending.job_id)))
        assert list(table.writers()) == [cleared, live, parked]
        assert list(table.submissions()) == submissions

    play(main)
