"""I1-I12, judged from the history and the world; each violation is a sentence that begins with its number."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from tests.simulation.scenario import History
from tests.simulation.world import Run

from firesteel.attempts.attempt import AttemptState
from firesteel.durations import seconds
from firesteel.jobgraph.model import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
)
from firesteel.status import JobStatus
from firesteel.types import JobID

CANCEL_SECONDS = 10.0
FAILOVER_SECONDS = 10.0
STARTING_SECONDS = 0.3


def violations(history: History) -> list[str]:
    return [
        f"{v} (seed {history.plan.seed}, {history.plan})"
        for check in (_i1_i3_i4, _i2, _i5, _i6, _i7, _i8, _i9_i12, _i10, _i11)
        for v in check(history)
    ]


def _final(history: History) -> dict[JobID, dict[str, object]]:
    return {
        JobID(path.partition("/")[2]): json.loads(stored.value)
        for path, stored in history.world.data.items()
        if path.startswith("results/")
    }


def _runs(history: History, job_id: JobID) -> list[Run]:
    return sorted((r for a, r in history.world.runs.items() if a.job_id == job_id), key=lambda r: r.attempt.number)


def _i1_i3_i4(history: History) -> Iterator[str]:
    final = _final(history)
    for ask in history.acked("submit"):
        result = final.get(ask.job_id)
        if result is None:
            yield f"I1: the acknowledged job {ask.job_id} is lost"
        elif result["digest"] != history.submissions[ask.job_id].digest:
            yield f"I1: job {ask.job_id} is not the one that was submitted"
    for ask in history.asks:
        if ask.what == "submit-different" and ask.acked is not None:
            yield f"I3: another job was accepted under the id {ask.job_id}"
        if ask.what == "submit" and ask.acked is None:
            yield f"I4: the client of {ask.job_id} never learned what became of its job ({ask.error})"


def _i2(history: History) -> Iterator[str]:
    for job_id in history.submissions:
        runs = _runs(history, job_id)
        for earlier, later in itertools.pairwise(runs):
            if earlier.ended_at is None or earlier.ended_at > later.began:
                yield f"I2: attempts {earlier.attempt} and {later.attempt} ran at the same time"


def _i5(history: History) -> Iterator[str]:
    told: dict[JobID, JobStatus] = {}
    for _, job_id, status in history.seen:
        if told.setdefault(job_id, status) is not status:
            yield f"I5: job {job_id} was {told[job_id]} and became {status}"
    durable: dict[str, tuple[float, str]] = {}
    for at, _, _, path, value in history.world.writes:
        if not path.startswith("results/"):
            continue
        if value is None:
            yield f"I5: the result at {path} was deleted"
            continue
        status = json.loads(value)["status"]
        if durable.setdefault(path, (at, status))[1] != status:
            yield f"I5: {path} was {durable[path][1]} and became {status}"
    for attempt, run in history.world.runs.items():
        at = durable.get(f"results/{attempt.job_id}", (float("inf"), ""))[0]
        if run.began > at:
            yield f"I5: {attempt} began after its job had a result"
        finished = [r for r in _runs(history, attempt.job_id) if _state(r) is AttemptState.FINISHED]
        if len(finished) > 1:
            yield f"I5: job {attempt.job_id} finished {len(finished)} times"
    for job_id, result in _final(history).items():
        finished_run = any(_state(r) is AttemptState.FINISHED for r in _runs(history, job_id))
        if finished_run != (result["status"] == "FINISHED"):
            yield f"I5: job {job_id} is {result['status']}, but its attempt {'did' if finished_run else 'did not'} finish"


def _state(run: Run) -> AttemptState | None:
    return run.ended.result().state if run.ended.done() else None


def _i6(history: History) -> Iterator[str]:
    last = 0
    for _, epoch, newest, path, _ in history.world.writes:
        if epoch != newest:
            yield f"I6: {path} was written in epoch {epoch} while {newest} led"
        if newest < last:
            yield "I6: epochs went back"
        last = newest


def _i7(history: History) -> Iterator[str]:
    """A leader that is none any more ends nothing that its successor looks after, and starts nothing new.

    It may have been on its way into the very start of an attempt: the claim makes that the same start, whoever does it. Or
    into that of an engine: the new leader finds it, and stops it when nobody needs it.
    """
    for e in history.world.effects:
        stale = e.epoch != e.newest and e.what in ("stop-engine", "cancel", "fence")
        if stale and (e.what == "stop-engine" or not _wanted(history, e.subject)):
            yield f"I7: an ex-leader of epoch {e.epoch} did {e.what} to {e.subject} at {e.at:.1f} ({e.newest} led)"


def _wanted(history: History, attempt: str) -> bool:
    """The end of an attempt that was over or cancelled by a durable wish is what its new leader wants too."""
    job = attempt.partition("/")[0]
    return any(a.what == "cancel" and a.job_id == job for a in history.asks)


def _i8(history: History) -> Iterator[str]:
    """An attempt ends by itself, with its engine, or because somebody wished it: never because a control plane died."""
    stopped = {e.subject for e in history.world.effects if e.what == "stop-engine"}
    for attempt, run in history.world.runs.items():
        asked = any(a.what in ("cancel", "stop") and a.job_id == attempt.job_id for a in history.asks)
        if run.how in ("cancel", "fence", "stop") and not asked and not history.plan.start_errors:
            yield f"I8: {attempt} was ended ({run.how}) though nobody asked for it"
        if run.how == "engine" and run.engine_id in stopped - history.world.silent:
            yield f"I8: {attempt} lost its engine because the control plane stopped {run.engine_id}"


def _i9_i12(history: History) -> Iterator[str]:
    if history.fatal:
        yield f"I9: a node died of {history.fatal[0]!r}"
    if history.orphans:
        yield f"I12: engines are left that nobody knows: {history.orphans}"
    if not history.settled:
        left = sorted(p for p in history.world.data if not p.startswith("operations/"))
        yield f"I9/I12: not everything ended and was cleaned: {left}"
    for job_id, result in _final(history).items():
        if result["dirty"]:
            yield f"I12: the result of {job_id} is still dirty"
        if job_id not in history.world.cleared:
            yield f"I12: the outputs of {job_id} were never cleared"
        for attempt in history.world.runs:
            if attempt.job_id == job_id and attempt not in history.world.forgotten:
                yield f"I12: {attempt} was not forgotten"
        if history.world.live_runs(job_id):
            yield f"I12: job {job_id} has ended and still runs"
    cleaned: dict[str, float] = {}
    for at, _, _, path, value in history.world.writes:
        if path.startswith("results/") and value is not None and not json.loads(value)["dirty"]:
            cleaned.setdefault(path.partition("/")[2], at)
        elif value is not None and path.startswith(("graphs/", "jobs/")) and path.partition("/")[2] in cleaned:
            yield f"I12: {path} was written after the clean mark"


def _i10(history: History) -> Iterator[str]:
    for ask in history.acked("cancel"):
        assert ask.acked is not None
        status = _final(history).get(ask.job_id, {}).get("status")
        if status not in ("CANCELED", "FINISHED"):
            yield f"I10: job {ask.job_id} was cancelled and is {status}"
        for run in _runs(history, ask.job_id):
            # One that was being started in that very moment may begin; it is ended like the others.
            if run.began > ask.acked + STARTING_SECONDS:
                yield f"I10: {run.attempt} began {run.began - ask.acked:.1f} s after the cancel was acknowledged"
            # Whoever leads after a fault needs a moment to find out that it does; then the ten seconds begin again.
            deadline = ask.acked + CANCEL_SECONDS
            for fault in sorted(f for f in history.faults if f >= ask.acked):
                if fault <= deadline:
                    deadline = fault + FAILOVER_SECONDS + CANCEL_SECONDS
            if run.ended_at is None or run.ended_at > deadline:
                late = (run.ended_at or float("inf")) - ask.acked
                yield f"I10: {run.attempt} ended {late:.1f} s after the cancel was acknowledged"


def _i11(history: History) -> Iterator[str]:
    """Restarts as the strategy has them, counted over all lives of the control plane."""
    for job_id, submission in history.submissions.items():
        runs = _runs(history, job_id)
        numbers = [r.attempt.number for r in runs]
        # An attempt whose engine was lost before it began is a number without a run.
        exact = not (history.plan.start_errors or history.engine_kills)
        if numbers != (list(range(1, len(numbers) + 1)) if exact else sorted(set(numbers))):
            yield f"I11: job {job_id} had the attempts {numbers}"
        strategy = submission.graph.settings.restart
        failed = [r for r in runs if _state(r) is AttemptState.FAILED]
        allowed, delay = _allowance(strategy)
        if len(runs) > 1 + allowed:
            yield f"I11: job {job_id} had {len(runs)} attempts; {strategy.type} allows {1 + allowed}"
        for before, after in itertools.pairwise(runs):
            if before.how == "itself" and before.ended_at is not None and after.began < before.ended_at + delay:
                yield f"I11: {after.attempt} came {after.began - before.ended_at:.2f} s after the failure, not {delay:g} s"
        result = _final(history).get(job_id, {})
        asked = any(a.what in ("cancel", "stop") and a.job_id == job_id for a in history.asks)
        if (
            result.get("status") == "FAILED"
            and not asked
            and len(failed) <= allowed
            and not history.engine_kills
            and not history.plan.start_errors
        ):
            yield f"I11: job {job_id} was given up after {len(failed)} failures; {strategy.type} allows {allowed} restarts"


def _allowance(strategy: object) -> tuple[int, float]:
    match strategy:
        case NoRestart():
            return 0, 0.0
        case FixedDelayRestart():
            return strategy.attempts, seconds(strategy.delay)
        case ExponentialDelayRestart():
            return strategy.attempts or 10**6, seconds(strategy.initial_delay)
        case FailureRateRestart():
            return strategy.max_failures, seconds(strategy.delay)
    raise AssertionError(strategy)
