"""The report of a run: counts, violations, and the time that the cluster needed to recover."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from firesteel_chaos.history import Event
from firesteel_chaos.invariants import TABLE, Violation
from firesteel_chaos.invariants.growth import MEASURES, Change, Life, long_lives, store_rows
from firesteel_chaos.invariants.model import Bounds, ClusterStory

LOOKED_FOR = 30.0
"""A gap that began so many seconds after a fault was not caused by it."""


@dataclass(frozen=True, slots=True)
class Times:
    """A distribution of seconds over a number of cases."""

    count: int
    p50: float | None
    worst: float | None

    @staticmethod
    def of(seconds: Iterable[float]) -> Times:
        times = sorted(seconds)
        if not times:
            return Times(0, None, None)
        return Times(len(times), round(statistics.median(times), 2), round(times[-1], 2))

    def __str__(self) -> str:
        return "none" if not self.count else f"p50 {self.p50:g} s, max {self.worst:g} s ({self.count})"


@dataclass(slots=True)
class Report:
    seconds: float = 0.0
    rounds: int = 0
    control: bool = False
    """Faults were left out on purpose."""
    seeds: list[int] = field(default_factory=list)
    jobs: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    calls: int = 0
    unanswered: int = 0
    """Calls of clients that gave up before an answer and repeated them."""
    faults: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    leaderships: int = 0
    savepoints: int = 0
    restores: int = 0
    restarts: int = 0
    """Further attempts, planned or forced by faults; those without a reason are violations."""
    adopted: int = 0
    """Drivers that were at work when a leadership began, summed over leaderships."""
    gaps: Times = field(default_factory=lambda: Times(0, None, None))
    """How long no node answered, as the observer saw it."""
    recovery: Times = field(default_factory=lambda: Times(0, None, None))
    """From the healing of the last fault of a round until the cluster answered."""
    election: Times = field(default_factory=lambda: Times(0, None, None))
    """From a fault that hit nodes, store or network until a node named a new leader."""
    lives: list[Life] = field(default_factory=list)
    """Processes of nodes that lived long enough to judge their growth (I23)."""
    store: dict[str, Change] = field(default_factory=dict)
    """Rows of the store while the load ran."""
    settled: bool = False
    violations: list[Violation] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether all guarantees held in a complete run. An incomplete run proves nothing."""
        return self.settled and not self.violations

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data["violations"] = [v.to_json() for v in self.violations]
        return {**data, "good": self.good}

    def to_text(self) -> str:
        lines = [f"{name}: {value}" for name, value in self._rows()]
        lines += [f"VIOLATION {violation}" for violation in self.violations]
        if not self.settled:
            lines.append("the run was interrupted before its jobs had ended, so it proves nothing")
        lines.append("good" if self.good else "NOT good")
        return "\n".join(lines)

    def to_markdown(self) -> str:
        """A section for docs/reliability.md."""
        rows = [f"| {name} | {value} |" for name, value in self._rows()]
        found = Counter(v.invariant for v in self.violations)
        judged = [i for i in TABLE if i.check is not None]
        table = [f"| {i.name} | {i.text} | {found.get(i.name, 0)} | {i.seen_by} |" for i in judged]
        lines = [
            "| what | |",
            "|---|---|",
            *rows,
            "",
            "| invariant | | violations | judged by |",
            "|---|---|---|---|",
            *table,
        ]
        if self.violations:
            lines += ["", *(f"- {violation}" for violation in self.violations)]
        return "\n".join(lines) + "\n"

    def _rows(self) -> list[tuple[str, str]]:
        counted = ", ".join(f"{count} {name}" for name, count in sorted(self.jobs.items()))
        ends = ", ".join(f"{count} {name}" for name, count in sorted(self.ends.items()))
        made = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items(), key=_number))
        skipped = ", ".join(f"{count} {name}" for name, count in sorted(self.skipped.items(), key=_number))
        rows = [
            ("time", f"{self.seconds:.0f} s"),
            ("rounds", f"{self.rounds}{', without faults (control)' if self.control else ''}"),
            ("faults", made or "none"),
            ("jobs", f"{sum(self.jobs.values())} ({counted}); {ends}"),
            ("rows compared", str(self.rows)),
            ("calls of clients", f"{self.calls}, {self.unanswered} of them unanswered and repeated"),
            ("leaderships", str(self.leaderships)),
            ("running attempts taken over by a new leader", str(self.adopted)),
            ("further attempts (planned, or forced by a fault)", str(self.restarts)),
            ("savepoints", f"{self.savepoints}, {self.restores} of them continued by another job"),
            ("no node answered for", str(self.gaps)),
            ("from a fault until a new leader is named", str(self.election)),
            ("reachable after the last fault of a round", str(self.recovery)),
            ("growth of nodes (I23)", self._growth()),
            ("rows of the store, early to late", ", ".join(f"{c} {k}" for k, c in self.store.items()) or "not seen"),
            ("violations", str(len(self.violations))),
        ]
        return [*rows[:3], ("faults not possible here", skipped), *rows[3:]] if skipped else rows

    def _growth(self) -> str:
        if not self.lives:
            return f"not judged: no node lived for {Bounds().soak:.0f} s"
        most = [max((life.changes[what] for life in self.lives), key=lambda c: c.growth) for what in MEASURES]
        worst = ", ".join(f"{what} {change}" for what, change in zip(MEASURES, most, strict=True))
        return f"{len(self.lives)} lived for {min(life.seconds for life in self.lives):.0f} s or longer; most: {worst}"


def summary(events: Sequence[Event], violations: Sequence[Violation]) -> Report:
    story = ClusterStory(events)
    rounds = story.by_kind["round"]
    return Report(
        seconds=round(story.end, 1),
        rounds=len(rounds),
        control=bool(rounds) and all(r.get("control") for r in rounds),
        seeds=sorted({int(r["seed"]) for r in rounds if r.get("seed") is not None}),
        jobs=dict(Counter(j.load for j in story.jobs.values() if j.load)),
        ends=dict(Counter(_end(j.results()[-1].value) for j in story.jobs.values() if j.results())),
        rows=sum(int(e["found"]) for e in story.by_kind["output"]),
        calls=len(story.calls),
        unanswered=sum(1 for c in story.calls if c.outcome == "unknown"),
        faults=dict(Counter(f.name for f in story.faults)),
        skipped=dict(Counter(str(e["name"]) for e in story.by_kind["skipped"])),
        leaderships=len(_first_named(story)),
        savepoints=len(story.by_kind["savepoint"]),
        restores=sum(1 for j in story.jobs.values() if j.plan.get("restore")),
        restarts=sum(max(0, max((s.attempt for s in j.drivers), default=1) - 1) for j in story.jobs.values()),
        adopted=_adopted(story),
        gaps=Times.of(_gaps(story)),
        recovery=Times.of(e["seconds"] for e in story.by_kind["recovered"] if e.get("seconds") is not None),
        election=Times.of(_elections(story)),
        lives=long_lives(story, Bounds()),
        store=store_rows(story),
        settled=story.settled is not None,
        violations=list(violations),
    )


def _end(result: dict[str, Any]) -> str:
    return "stopped" if result.get("stopped") else str(result.get("status"))


def _number(item: tuple[str, int]) -> tuple[int, str]:
    digits = item[0].lstrip("F").split("-")[0]
    return (int(digits) if digits.isdigit() else 99, item[0])


def _first_named(story: ClusterStory) -> dict[int, float]:
    """When each epoch was first heard of."""
    first: dict[int, float] = {}
    for event in sorted((*story.by_kind["leader"], *story.by_kind["store"]), key=lambda e: e.at):
        if event.get("epoch"):
            first.setdefault(event["epoch"], event.at)
    return first


def _adopted(story: ClusterStory) -> int:
    begins = sorted(_first_named(story).values())[1:]
    spans = [s for j in story.jobs.values() for s in j.drivers]
    return sum(1 for at in begins for s in spans if s.seen < at < s.ended)


def _gaps(story: ClusterStory) -> list[float]:
    gaps: list[float] = []
    lost: float | None = None
    for event in story.by_kind["reach"]:
        if not event["ok"]:
            lost = event.at if lost is None else lost
        elif lost is not None:
            gaps.append(event.at - lost)
            lost = None
    return gaps


def _elections(story: ClusterStory) -> list[float]:
    """From a fault to the next new epoch that a node names, if that fault brought one about."""
    named: dict[int, float] = {}
    for event in story.by_kind["leader"]:
        if event.get("epoch") and event.get("address"):
            named.setdefault(event["epoch"], event.at)
    times = []
    for began in sorted(f.began for f in story.faults if f.harms & {"nodes", "store", "network", "quorum"}):
        after = [at for at in named.values() if began < at <= began + LOOKED_FOR]
        others = [f.began for f in story.faults if began < f.began]
        if after and not any(o < min(after) for o in others):
            times.append(min(after) - began)
    return times
