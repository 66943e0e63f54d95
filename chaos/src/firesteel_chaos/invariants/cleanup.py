"""What is left, what must not be lost, and what came out: I12, I13, I14, I15, I21."""

from __future__ import annotations

import math
from collections.abc import Iterator

from firesteel_chaos.history import Event
from firesteel_chaos.invariants.model import Bounds, ClusterStory, Violation

ENGINE_SECONDS = 30.0
"""An ex-leader may have started an engine in its last moment; it is found and used, or ended when nobody needs it."""


def i12(story: ClusterStory, bounds: Bounds) -> Iterator[Violation]:
    for event in story.by_kind["left"]:
        yield Violation("I12", event.get("job"), f"left behind: {event['what']}", event.at)
    for job in story.jobs.values():
        ends = [e for e in job.stored if e.get("result") is not None]
        if not ends:
            continue
        due = story.deadline(ends[0].at, bounds.clean, bounds)
        last = ends[-1]
        if last["result"].get("dirty") and story.end > due:
            yield Violation("I12", job.job, f"ended at {ends[0].at:.1f} s and its result is dirty still", due)
        clean = next((e for e in ends if not e["result"].get("dirty")), None)
        for event in ends:
            rest = [p for p in event["parts"] if p != "results"]
            if clean is not None and event.at >= clean.at and rest:
                yield Violation("I12", job.job, f"is marked clean, and {', '.join(rest)} in the store has it", event.at)
                break
        for span in job.drivers:
            if span.ended == math.inf and story.end > due:
                yield Violation("I12", job.job, f"has ended, and its driver {span.process[0]} works on", due)


def i13(story: ClusterStory, _: Bounds) -> Iterator[Violation]:
    for event in story.by_kind["savepoint"]:
        if not event["present"]:
            yield Violation("I13", event["job"], f"its savepoint {event['path']} is gone or not whole", event.at)
    for job in story.jobs.values():
        had = False
        for event in job.stored:
            had = had or "graphs" in event["parts"]
            if had and event.get("result") is None and "graphs" not in event["parts"]:
                yield Violation("I13", job.job, "has no result, and its graph was removed from the store", event.at)
                break


def i14(story: ClusterStory, _: Bounds) -> Iterator[Violation]:
    for call in story.calls:
        if call.what != "operation" or call.args.get("of") != "stop" or call.job is None:
            continue
        job = story.jobs[call.job]
        results = [c for c in job.results() if c.value.get("ended_at") is not None]
        if call.outcome == "ok" and results and not results[-1].value.get("stopped"):
            text = f"its stop was reported done, and it ended {results[-1].value.get('status')} without having stopped"
            yield Violation("I14", job.job, text, call.answered)
        if call.outcome == "refused" and not call.error.startswith("OperationNotFoundError"):
            others = [
                c for c in job.calls if c.what == "operation" and c.args.get("of") == "stop" and c.outcome == "ok"
            ]
            if results and results[-1].value.get("stopped") and not others:
                yield Violation("I14", job.job, f"stopped without a savepoint: {call.error}", call.answered)
    for job in story.jobs.values():
        restore = job.plan.get("restore")
        failed = [c for c in job.results() if c.value.get("status") == "FAILED"]
        # A savepoint that is not whole is noticed when the job is submitted.
        failed += [c for c in job.calls if c.what == "submit" and c.outcome == "refused" and "savepoint" in c.error]
        if restore and failed:
            yield Violation("I14", job.job, f"could not go on from the savepoint {restore}", failed[0].answered)


def i15(story: ClusterStory, _: Bounds) -> Iterator[Violation]:
    for job in story.jobs.values():
        for output in job.outputs:
            wrong = [f"{output[k]} {k}" for k in ("missing", "repeated", "strange") if output.get(k)]
            if wrong:
                text = f"wrote {output['found']} rows of {output['expected']}: {', '.join(wrong)}"
                yield Violation("I15", job.job, text, output.at)
        finished = [c for c in job.results() if c.value.get("status") == "FINISHED"]
        if job.load == "batch" and finished and not job.outputs and story.settled is not None:
            yield Violation("I15", job.job, "is FINISHED, but its output could not be read", finished[-1].answered)


def i21(story: ClusterStory, bounds: Bounds) -> Iterator[Violation]:
    """No more engines than are allowed."""
    if bounds.engines is None:
        return
    alive: set[str] = set()
    over: float | None = None
    events: list[Event | None] = [*story.by_kind["engine"], None]
    for event in events:
        at = story.end if event is None else event.at
        if over is not None and at - over > ENGINE_SECONDS:
            yield Violation("I21", None, f"{len(alive)} engines ran at a time; {bounds.engines} are allowed", over)
            return
        if event is not None:
            (alive.add if event["alive"] else alive.discard)(event["engine"])
            over = (over if over is not None else at) if len(alive) > bounds.engines else None
