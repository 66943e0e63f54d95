"""How jobs ended, and what is shown of them: I5, I18, I19, I26."""

from __future__ import annotations

from collections.abc import Iterator

from firesteel_chaos.invariants.model import TERMINAL, Bounds, ClusterStory, ObservedJob, Violation


def i5(story: ClusterStory, _: Bounds) -> Iterator[Violation]:
    for job in story.jobs.values():
        yield from _stored(job)
        heard = [(e.get("asked", e.at), e.at, str(e["status"])) for e in job.states]
        heard += [(c.at, c.answered, str(c.value.get("status"))) for c in job.results()]
        told = min(((at, status) for _, at, status in heard if status in TERMINAL), default=None)
        if told is not None:
            # Asked after the other answer was there: two answers that cross each other prove nothing.
            others = [(at, status) for asked, at, status in heard if asked >= told[0] and status != told[1]]
            for at, status in sorted(others)[:1]:
                yield Violation("I5", job.job, f"was {told[1]} at {told[0]:.1f} s and is {status}", at)
        ended = job.ended()
        if ended is None:
            continue
        for span in job.drivers:
            if span.taken > ended:
                yield Violation("I5", job.job, f"had ended, and attempt {span.attempt} began", span.taken)
        for run in job.runs:
            if run["began"] > ended:
                yield Violation("I5", job.job, "had ended, and its program began", run["began"])


def _stored(job: ObservedJob) -> Iterator[Violation]:
    """The store is read from outside: what stands there once stands there for good, but for the mark that it is clean."""
    first: dict[str, object] | None = None
    for event in job.stored:
        result = event.get("result")
        if result is None:
            if first is not None:
                yield Violation("I5", job.job, "its result is gone from the store", event.at)
                return
            continue
        plain = {k: v for k, v in result.items() if k != "dirty"}
        if first is None:
            first = plain
        elif plain != first:
            changed = sorted(k for k in plain if plain[k] != first.get(k))
            text = ", ".join(f"{k} was {first.get(k)} and became {plain[k]}" for k in changed)
            yield Violation("I5", job.job, f"its result changed in the store: {text}", event.at)
            return


def i18(story: ClusterStory, _: Bounds) -> Iterator[Violation]:
    """Whoever asks one node after the other is never told less than before."""
    for job in story.jobs.values():
        for what in ("attempt", "restarts"):
            told = [(e.get("asked", e.at), e.at, e[what], e["node"]) for e in job.states if e.get(what) is not None]
            for asked, at, value, node in told:
                most = max((v for _, before, v, _ in told if before <= asked), default=0)
                if value < most:
                    text = f"node {node} reported {what} {value} after another node had reported {most}"
                    yield Violation("I18", job.job, text, at)


def i19(story: ClusterStory, _: Bounds) -> Iterator[Violation]:
    begun = {
        (c.job, c.args.get("trigger")): c.answered
        for c in story.calls
        if c.what in ("savepoint", "stop", "checkpoint") and c.outcome == "ok"
    }
    for call in story.calls:
        if call.what == "operation" and call.error.startswith("OperationNotFoundError"):
            at = begun.get((call.job, call.args.get("trigger")))
            if at is not None and at <= call.at:
                text = f"the {call.args.get('of')} that was begun at {at:.1f} s under {call.args.get('trigger')} is not known"
                yield Violation("I19", call.job, text, call.answered)


def i26(story: ClusterStory, _: Bounds) -> Iterator[Violation]:
    """What is shown of an ended job later, by whichever leader, is what was shown when it ended."""
    for job in story.jobs.values():
        results = [c for c in job.results() if c.value.get("ended_at") is not None]
        for call in results[1:]:
            first = results[0].value
            changed = sorted(k for k in first if call.value.get(k) != first[k] and k != "status")
            if changed:
                text = ", ".join(f"{k} was {first[k]} and is {call.value.get(k)}" for k in changed)
                yield Violation("I26", job.job, f"is shown otherwise than at its end: {text}", call.answered)
                break
