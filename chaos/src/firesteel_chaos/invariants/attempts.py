"""Attempts: at most one at a time, none without a reason, none after a cancel, none lost: I2, I8, I9, I10, I11, I22."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from firesteel_chaos.invariants.model import (
    TERMINAL,
    Bounds,
    ClusterStory,
    ObservedJob,
    PlayedFault,
    Span,
    Violation,
    pairs,
)

_CLOCKS = 0.05
"""Two clocks that tell the same time agree to this."""


def i2(story: ClusterStory, bounds: Bounds) -> Iterator[Violation]:
    for job in story.jobs.values():
        for first, second in pairs(sorted(job.drivers, key=lambda s: (s.attempt, s.seen))):
            # Both were seen at work in the same look: by `seen`, not by `taken`, which nobody else saw.
            overlap = second.seen < first.ended and first.seen < second.ended
            if (first.process, first.site) != (second.process, second.site) and overlap:
                if _frozen(story, first, second.seen, bounds):
                    continue
                text = f"drivers {first.process[0]} and {second.process[0]} worked for it at the same time"
                yield Violation("I2", job.job, f"{text} (attempts {first.attempt} and {second.attempt})", second.seen)
        for before, after in pairs(sorted(job.runs, key=lambda r: float(r["began"]))):
            if before.get("ended") is not None and after["began"] < before["ended"]:
                yield Violation("I2", job.job, "its program ran twice at the same time", after["began"])


def _frozen(story: ClusterStory, span: Span, at: float, bounds: Bounds) -> bool:
    """Whether its host stood still, or nobody there could end it: then what it writes is judged, not that it is there (I15)."""
    return any(
        "frozen" in f.harms and span.site in f.sites and f.began <= at <= f.ended + bounds.harm for f in story.faults
    )


def moved(story: ClusterStory, bounds: Bounds) -> list[tuple[ObservedJob, PlayedFault, float | None]]:
    """Jobs whose driver was lost with its host, the fault, and after how many seconds they ran again; None: not yet."""
    found: list[tuple[ObservedJob, PlayedFault, float | None]] = []
    for fault in story.faults:
        if "hosts" not in fault.harms:
            continue
        for job in story.jobs.values():
            hit = [s for s in job.drivers if s.site in fault.sites and s.seen <= fault.began < s.ended]
            # One that came to its end before anybody noticed was not lost, nor one that somebody wanted ended.
            if not hit or job.acked("cancel") is not None or job.acked("stop") is not None:
                continue
            number = max(s.attempt for s in hit)
            again = min((s.seen for s in job.drivers if s.attempt > number), default=None)
            if again is not None:
                found.append((job, fault, again - fault.began))
            elif job.ended() is None and story.end > fault.ended + bounds.harm:
                found.append((job, fault, None))
    return found


def i9_of_jobs(story: ClusterStory, bounds: Bounds) -> Iterator[Violation]:
    if bounds.isolation is None:
        return
    for job, fault, seconds in moved(story, bounds):
        due = bounds.isolation + max(bounds.moved, 1.5 * bounds.engine_start)
        allowed = due + 2 * story.lag(fault.began, fault.began + due)
        if seconds is None or seconds > allowed:
            took = "does not run again" if seconds is None else f"ran again after {seconds:.1f} s"
            yield Violation(
                "I9", job.job, f"lost its host to '{fault.what}', and {took}; {due:g} s are right", fault.began
            )


def i8(story: ClusterStory, bounds: Bounds) -> Iterator[Violation]:
    for job in story.jobs.values():
        runs: dict[int, dict[str, str]] = {}
        for query in job.queries:
            before = runs.setdefault(query["attempt"], query["runs"])
            # A sink whose query came later is one more; one that has another run is another run.
            if any(before.get(sink, run) != run for sink, run in query["runs"].items()):
                text = f"its queries {before} became {query['runs']} within attempt {query['attempt']}"
                yield Violation("I8", job.job, text, query.at)
        processes: dict[int, tuple[int, str]] = {}
        for span in job.drivers:
            if processes.setdefault(span.attempt, span.process) != span.process:
                yield Violation("I8", job.job, f"attempt {span.attempt} changed its driver", span.seen)
        yield from _without_reason(story, job, bounds)


def _without_reason(story: ClusterStory, job: ObservedJob, bounds: Bounds) -> Iterator[Violation]:
    """A further attempt has a reason: a failure that was planned, or a fault that harms attempts."""
    planned = int(job.plan.get("failures") or 0)
    began = _began(job)
    for number in sorted(began):
        if number <= planned + 1 or not job.plan:
            continue
        since = began.get(number - 1, job.calls[0].at if job.calls else 0.0)
        site = next((s.site for s in job.drivers if s.attempt == number - 1), None)
        if not story.harmed(job.job, since, began[number], bounds, site):
            yield Violation(
                "I8", job.job, f"attempt {number} was made, and nothing had harmed the one before", began[number]
            )
    ended = [c for c in job.results() if c.value.get("status") == "FAILED"]
    if ended and job.plan.get("ends") not in (None, "FAILED") and not planned:
        since = min(began.values(), default=job.calls[0].at)
        if not story.harmed(job.job, since, ended[0].at, bounds):
            yield Violation("I8", job.job, "it FAILED, and nothing had harmed it", ended[0].at)


def _began(job: ObservedJob) -> dict[int, float]:
    """When each attempt was first heard of."""
    began: dict[int, float] = {}
    heard = [(s.attempt, s.seen) for s in job.drivers]
    heard += [(e["attempt"], e.at) for e in (*job.stored, *job.states) if e.get("attempt")]
    heard += [(c.value["attempt"], c.answered) for c in job.results() if c.value.get("attempt")]
    for number, at in heard:
        began[number] = min(at, began.get(number, math.inf))
    return began


def i10(story: ClusterStory, bounds: Bounds) -> Iterator[Violation]:
    for job in story.jobs.values():
        acked = job.acked("cancel")
        if acked is None:
            continue
        due = story.deadline(acked, bounds.cancel, bounds)
        for span in job.drivers:
            if span.ended > due and story.end > due:
                late = f"still works {min(span.ended, story.end) - acked:.1f} s after it was cancelled"
                yield Violation("I10", job.job, f"driver {span.process[0]} {late}", due)
            if span.taken > acked + bounds.starting:
                text = f"attempt {span.attempt} began {span.taken - acked:.1f} s after it was cancelled"
                yield Violation("I10", job.job, text, span.taken)
        for run in job.runs:
            if run["began"] > acked + bounds.starting:
                text = f"its program began {run['began'] - acked:.1f} s after it was cancelled"
                yield Violation("I10", job.job, text, run["began"])
        ended = job.ended()
        if (ended is None and story.end > due) or (ended is not None and ended > due):
            yield Violation("I10", job.job, f"was cancelled at {acked:.1f} s and had not ended then", due)
        for call in job.results():
            if call.value.get("status") not in ("CANCELED", "FINISHED"):
                yield Violation("I10", job.job, f"was cancelled and is {call.value.get('status')}", call.answered)


def i11(story: ClusterStory, bounds: Bounds) -> Iterator[Violation]:
    """Counted by the programs themselves, which no failover makes forget."""
    for job in story.jobs.values():
        if job.load != "script" or "failures" not in job.plan or not job.runs:
            continue
        runs = sorted(job.runs, key=lambda r: float(r["began"]))
        allowed, delay = int(job.plan["restarts"]) + 1, float(job.plan["delay"])
        if len(runs) > allowed:
            text = f"ran {len(runs)} times; its strategy allows {allowed}"
            yield Violation("I11", job.job, text, runs[allowed]["began"])
        for before, after in itertools.pairwise(runs):
            if before.get("how") == "failed" and after["began"] < before["ended"] + delay - _CLOCKS:
                text = f"came again {after['began'] - before['ended']:.2f} s after it failed, not {delay:g} s"
                yield Violation("I11", job.job, text, after["began"])
        results = [c for c in job.results() if c.value.get("status") in TERMINAL]
        first = job.calls[0].at if job.calls else 0.0
        if not results or job.plan["ends"] == "CANCELED" or story.harmed(job.job, first, results[-1].at, bounds):
            continue
        wanted = min(int(job.plan["failures"]) + 1, allowed)
        if len(runs) != wanted:
            yield Violation("I11", job.job, f"ran {len(runs)} times; {wanted} are right", runs[-1]["began"])
        if results[-1].value["status"] != job.plan["ends"]:
            text = f"ended {results[-1].value['status']}, not {job.plan['ends']}"
            yield Violation("I11", job.job, text, results[-1].answered)


def i22(story: ClusterStory, bounds: Bounds) -> Iterator[Violation]:
    """A driver that is gone is not shown as running for long."""
    for job in story.jobs.values():
        if not job.drivers:
            continue
        last = max(job.drivers, key=lambda s: (s.attempt, s.seen))
        if last.ended == math.inf:
            continue
        due = story.deadline(last.ended, bounds.state, bounds)
        if story.end <= due:
            continue
        known = job.ended()
        restarted = any(
            e.get("attempt") is not None and e["attempt"] > last.attempt for e in (*job.stored, *job.states)
        )
        between = any(e["status"] in ("RESTARTING", "FAILING", "CREATED") and e.at > last.seen for e in job.states)
        if (known is None or known > due) and not restarted and not between:
            text = f"its driver {last.process[0]} was gone at {last.ended:.1f} s, and it is not known to have ended"
            yield Violation("I22", job.job, text, due)
