"""What was acknowledged is there, once, as it was submitted: I1, I3, I4, I17."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from firesteel_chaos.invariants.model import Bounds, ClusterStory, ObservedJob, Violation


def i1(story: ClusterStory, _: Bounds) -> Iterator[Violation]:
    lists = [c for c in story.calls if c.what == "list" and c.outcome == "ok"]
    last = lists[-1] if lists else None
    listed = {row[0] for row in last.value} if last else set()
    for job in story.jobs.values():
        acked = job.acked("submit")
        if acked is None:
            continue
        for call in job.calls:
            if call.at > acked and call.outcome == "refused" and call.error.startswith("JobNotFoundError"):
                yield Violation(
                    "I1", job.job, f"was acknowledged at {acked:.1f} s and is not known: {call.error}", call.at
                )
        for event in job.stored:
            if event.at > acked and not event["parts"]:
                yield Violation("I1", job.job, "was acknowledged, and nothing of it is in the store", event.at)
        if last is not None and last.at > acked and job.job not in listed:
            yield Violation("I1", job.job, "was acknowledged and is not in the list of jobs", last.at)
        yield from _same(job)


def _same(job: ObservedJob) -> Iterator[Violation]:
    for call in job.results():
        told = call.value.get("digest")
        if told is not None and job.digest is not None and told != job.digest:
            yield Violation("I1", job.job, "is shown with another graph than the one that was submitted", call.answered)
    digests = [(e.at, e["digest"]) for e in job.stored if e.get("digest")]
    for (_, before), (at, after) in itertools.pairwise(digests):
        if before != after:
            yield Violation("I1", job.job, "became another submission in the store", at)


def i3(story: ClusterStory, bounds: Bounds) -> Iterator[Violation]:
    for job in story.jobs.values():
        for call in job.calls:
            if call.what == "submit-other" and call.outcome == "ok":
                yield Violation("I3", job.job, "another job was accepted under its id", call.answered)
            if call.what == "submit" and call.outcome == "refused" and call.error.startswith("DuplicateJobError"):
                yield Violation("I3", job.job, f"a repeated submission was refused: {call.error}", call.answered)
            if call.what == "submit" and call.outcome == "ok" and call.value != job.job:
                yield Violation("I3", job.job, f"its submission was acknowledged as job {call.value}", call.answered)
        finished = sorted((r for r in job.runs if r.get("how") == "finished"), key=lambda r: float(r["began"]))
        # One that was killed, or whose disk was full, before it could write its result down has to run again.
        if len(finished) > 1 and not story.harmed(job.job, finished[0]["began"], finished[1]["began"], bounds):
            yield Violation("I3", job.job, f"its program ran to the end {len(finished)} times", finished[1]["ended"])


def i4(story: ClusterStory, _: Bounds) -> Iterator[Violation]:
    """Whoever did not hear an answer could find out. Judged when the load was given the time for it."""
    if story.settled is None:
        return
    for job in story.jobs.values():
        submits = [c for c in job.calls if c.what == "submit"]
        unheard = [c for c in submits if c.outcome == "unknown"]
        if unheard and not any(c.outcome != "unknown" for c in job.calls if c.at > unheard[-1].at):
            yield Violation("I4", job.job, "its client never learned what became of its submission", unheard[-1].at)


def i17(story: ClusterStory, _: Bounds) -> Iterator[Violation]:
    for job in story.jobs.values():
        wanted = job.plan.get("program")
        for run in job.runs:
            if wanted is not None and run.get("digest") != wanted:
                yield Violation("I17", job.job, "ran another program than the one that was uploaded", run["began"])
