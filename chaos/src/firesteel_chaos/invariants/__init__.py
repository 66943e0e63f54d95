"""What must hold, judged from a history alone: pure functions, one per invariant of the table.

    violations = check(read_history(file))

Each check errs on the side of silence: it says that something was violated only when nothing that the observers could have
missed explains what they saw. Invariants that a history cannot show are in the table too, with the tests that do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from firesteel_chaos.history import Event
from firesteel_chaos.invariants import attempts, cleanup, growth, leadership, results, submissions
from firesteel_chaos.invariants.model import Bounds, ClusterStory, Violation

__all__ = ["TABLE", "Bounds", "Invariant", "Violation", "check"]

Check = Callable[[ClusterStory, Bounds], Iterator[Violation]]


@dataclass(frozen=True, slots=True)
class Invariant:
    name: str
    text: str
    seen_by: str
    """What of a history shows it; or, without a check, which tests do."""
    check: Check | None = None


def _i9(story: ClusterStory, bounds: Bounds) -> Iterator[Violation]:
    yield from leadership.i9(story, bounds)
    yield from attempts.i9_of_jobs(story, bounds)


TABLE: tuple[Invariant, ...] = (
    Invariant(
        "I1",
        "an acknowledged submission is never lost",
        "answers after the acknowledgement, the final list, the rows of the store; the graph that is shown",
        submissions.i1,
    ),
    Invariant("I2", "one attempt of a job at a time", "driver processes, and the diaries of programs", attempts.i2),
    Invariant("I3", "one id is one job", "repeated submissions, other jobs under the same id, diaries", submissions.i3),
    Invariant("I4", "an unanswered submission is one job or none", "later answers to the same client", submissions.i4),
    Invariant("I5", "an end is final", "results in the store and as told, attempts after them", results.i5),
    Invariant(
        "I6",
        "epochs grow, and no node writes with an old one",
        "epochs in the store and as told; of wrapped nodes also each write",
        leadership.i6,
    ),
    Invariant("I7", "a replaced leader does nothing", "the node that each driver comes from", leadership.i7),
    Invariant(
        "I8",
        "a failover touches no running job",
        "processes of drivers, run ids of queries, attempts without a reason",
        attempts.i8,
    ),
    Invariant(
        "I9",
        "reachable again in time, and so are jobs whose host is lost",
        "the list of jobs, asked for all the time; jobs that never end; drivers before and after, by host",
        _i9,
    ),
    Invariant("I10", "cancelled is stopped, for good", "drivers and diaries after the acknowledgement", attempts.i10),
    Invariant("I11", "restarts obey the strategy", "the diaries of programs that fail on purpose", attempts.i11),
    Invariant(
        "I12",
        "every end is cleaned up",
        "results that stay dirty, rows beside a clean one, files, drivers",
        cleanup.i12,
    ),
    Invariant(
        "I13", "clean-up takes nothing that is needed", "savepoints, and graphs of jobs without a result", cleanup.i13
    ),
    Invariant(
        "I14", "a stop leaves a savepoint or a running job", "outcomes of stops, and the jobs restored", cleanup.i14
    ),
    Invariant("I15", "every row exactly once", "all rows of all outputs, compared with what was fed", cleanup.i15),
    Invariant("I16", "a failed upgrade ends on one version", "nothing yet: there is no upgrade of jobs to fail"),
    Invariant("I17", "what was uploaded is what runs", "the digest that programs take of themselves", submissions.i17),
    Invariant("I18", "no reader goes back in time", "attempts as told by one node after the other", results.i18),
    Invariant("I19", "a trigger id stays valid", "operations asked for under ids of before", results.i19),
    Invariant("I20", "a session is its owner's", "nothing yet: users open no sessions of their own"),
    Invariant(
        "I21",
        "no more than the limits allow",
        "engines that live at a time; the order of the queue: tests/resourcemanager, tests/simulation",
        cleanup.i21,
    ),
    Invariant(
        "I22", "a driver that is gone is not shown as running", "ends of drivers against the store", attempts.i22
    ),
    Invariant(
        "I23",
        "nothing grows without bound",
        "memory, descriptors and threads of processes that lived long; rows of the store",
        growth.i23,
    ),
    Invariant("I24", "without a quorum no leader", "epochs while a fault takes the quorum away", leadership.i24),
    Invariant("I25", "mixed versions keep all of this", "nothing yet: there is one version"),
    Invariant(
        "I26",
        "what is shown later is what was shown at the end",
        "results asked for when the job ended and when the load did; the archive: tests/dispatcher, tests/stores",
        results.i26,
    ),
)


def check(events: Sequence[Event], *, bounds: Bounds | None = None) -> list[Violation]:
    """What was violated, in the order of time."""
    story, bounds = ClusterStory(events), bounds or Bounds()
    found = [v for i in TABLE if i.check is not None for v in i.check(story, bounds) if _counts(story, v, bounds)]
    found += [
        Violation(event.get("invariant") or "?", event.get("job"), str(event["what"]), event.at)
        for event in story.by_kind["expectation"]
        if not event["held"]
    ]
    found += [
        Violation("?", None, f"the watch of {event['thread']} failed; see its log", event.at)
        for event in story.by_kind["observer"]
    ]
    return sorted(found, key=lambda v: (v.at, v.invariant))


KNOWLEDGE = frozenset({"I1", "I5", "I13", "I19", "I26"})
"""What must be known of a job for as long as the cluster remembers it, and no longer."""


def _counts(story: ClusterStory, violation: Violation, bounds: Bounds) -> bool:
    """Faults make jobs of their own: records that are damaged on purpose, files of jobs that never were."""
    if violation.job is None or violation.job not in story.jobs:
        return True
    if violation.invariant in KNOWLEDGE and story.may_be_forgotten(violation.job, violation.at, bounds):
        return False
    load = story.jobs[violation.job].load
    return load != "leftover" and (load != "fault" or violation.invariant in ("I2", "I3"))
