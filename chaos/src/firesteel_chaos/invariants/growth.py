"""Nothing grows without bound: I23, and what a report tells of growth, whether it was too much or not."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from firesteel_chaos.history import Event
from firesteel_chaos.invariants.model import Bounds, ClusterStory, Violation

MEASURES = ("rss_kb", "descriptors", "threads")


@dataclass(frozen=True, slots=True)
class Change:
    """Medians of the second quarter of a time, when everything is warm, and of the last one."""

    early: float
    late: float

    @property
    def growth(self) -> float:
        return self.late - self.early

    def __str__(self) -> str:
        return f"{self.early:g} to {self.late:g}"


@dataclass(frozen=True, slots=True)
class Life:
    """One process of a node, from when it was first seen until it was last seen."""

    node: str
    pid: int
    seconds: float
    last: float
    changes: dict[str, Change]


def long_lives(story: ClusterStory, bounds: Bounds) -> list[Life]:
    """Of those that lived long enough to be judged."""
    seen: dict[int, list[Event]] = defaultdict(list)
    for event in story.by_kind["node"]:
        if event.get("pid") is not None and event.get("rss_kb") is not None:
            seen[event["pid"]].append(event)
    lives = []
    for pid, events in seen.items():
        seconds = events[-1].at - events[0].at
        changes = {what: _change([(e.at, e[what]) for e in events]) for what in MEASURES}
        known = {what: change for what, change in changes.items() if change is not None}
        if seconds >= bounds.soak and len(known) == len(MEASURES):
            lives.append(Life(events[0]["node"], pid, seconds, events[-1].at, known))
    return lives


def store_rows(story: ClusterStory) -> dict[str, Change]:
    """How many rows of each kind there were while the load ran. It is the same all the time, so these should be too."""
    until = story.settled.at if story.settled is not None else story.end
    looks = [e for e in story.by_kind["store"] if e.get("rows") is not None and e.at <= until]
    kinds = sorted({kind for e in looks for kind in e["rows"]})
    changes = {kind: _change([(e.at, e["rows"].get(kind, 0)) for e in looks]) for kind in kinds}
    return {kind: change for kind, change in changes.items() if change is not None}


def i23(story: ClusterStory, bounds: Bounds) -> Iterator[Violation]:
    """No node grows, compared within the life of one process; and what belongs to a job goes with it."""
    limits = dict(zip(MEASURES, (bounds.rss_growth_kb, bounds.descriptor_growth, bounds.thread_growth), strict=True))
    for life in long_lives(story, bounds):
        for what, change in life.changes.items():
            if change.growth > limits[what]:
                text = (
                    f"{what} of node {life.node} grew from {change} in {life.seconds:.0f} s; {limits[what]} are allowed"
                )
                yield Violation("I23", None, text, life.last)
    # Results stay by design, as many as dispatcher.job-result-retention says; the rest must go.
    if story.settled is not None and story.by_kind["store"] and not story.settled["open"]:
        last = story.by_kind["store"][-1]
        rows = last.get("rows") or {}
        left = {k: rows.get(k, 0) for k in ("graphs", "jobs") if rows.get(k)}
        if left and last.at > story.settled.at + bounds.clean:
            yield Violation("I23", None, f"every job has ended, and the store holds {left}", story.end)


def _change(values: Sequence[tuple[float, float]]) -> Change | None:
    """Of values with their times."""
    if not values:
        return None
    first, length = values[0][0], values[-1][0] - values[0][0]
    early = [value for at, value in values if length * 0.25 <= at - first <= length * 0.5]
    late = [value for at, value in values if at - first >= length * 0.75]
    return Change(statistics.median(early), statistics.median(late)) if early and late else None
