"""A history put in order: what each job, call, fault and leadership went through. Nothing is judged here."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from firesteel_chaos.history import Event

HARMING = {"F10", "F13", "F14", "F16", "F18", "F24"}
"""Faults that may end attempts, where a fault does not say itself what it harms."""
ATTEMPTS = {"drivers", "engines", "disk"}
"""What a fault may harm so that attempts end."""
TERMINAL = {"FINISHED", "FAILED", "CANCELED"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """What counts as in time, in seconds where it says nothing else. Looks come every half second, which these allow for."""

    reachable: float = 10.0
    """After the last fault (I9)."""
    hiccup: float = 5.0
    """Without any fault: a machine that had something else to do."""
    cancel: float = 10.0
    starting: float = 3.0
    """An attempt that was on its way when its job was cancelled may still begin, for that long."""
    failover: float = 10.0
    """What a fault in between adds to any other bound, after it is healed."""
    clean: float = 30.0
    state: float = 20.0
    """Until a driver that is gone is known to be gone."""
    harm: float = 15.0
    """A fault that harms attempts may show so late."""
    isolation: float | None = None
    """For how long a worker runs on that hears from no leader; None without workers."""
    moved: float = 15.0
    """After that time, a job of a host that is lost runs again; longer where an engine needs longer to start."""
    engine_start: float = 0.0
    """Seconds that the first jobs of the run needed until they ran."""
    fenced: float = 3.0
    """What an ex-leader had begun before it knew may happen that long after another one leads (I7)."""
    engines: int | None = None
    """The most there may be; None when that is not known."""
    results: int | None = None
    """How many ended jobs the cluster remembers (dispatcher.job-result-retention); None when that is not known."""
    soak: float = 240.0
    """A process that lived for less says nothing about growth (I23)."""
    rss_growth_kb: int = 32 * 1024
    descriptor_growth: int = 32
    thread_growth: int = 16


ORDER_SECONDS = 5.0
"""Of two jobs whose ends were seen so close together nobody can tell which came first."""


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    job: str | None
    text: str
    at: float

    def to_json(self) -> dict[str, Any]:
        return {"invariant": self.invariant, "job": self.job, "text": self.text, "at": self.at}

    def __str__(self) -> str:
        return f"{self.invariant} at {self.at:.1f} s: {f'job {self.job}: ' if self.job else ''}{self.text}"


@dataclass(slots=True)
class PlayedFault:
    id: Any
    name: str
    what: str
    target: str
    harms: frozenset[str]
    jobs: frozenset[str]
    began: float
    sites: frozenset[str] = frozenset()
    """The hosts that it hits; empty where that makes no difference."""
    ended: float = math.inf

    def harms_attempts_of(self, job: str, site: str | None = None) -> bool:
        """`site`: where the attempt was, if that is known."""
        if not self.harms & ATTEMPTS or (self.jobs and job not in self.jobs):
            return False
        return not self.sites or site is None or site in self.sites


@dataclass(slots=True)
class Call:
    client: str
    what: str
    job: str | None
    args: dict[str, Any]
    at: float
    answered: float = math.inf
    outcome: str = "unknown"
    value: Any = None
    error: str = ""


@dataclass(slots=True)
class Span:
    """A driver at work on an attempt, as far as it was seen."""

    attempt: int
    process: tuple[int, str]
    taken: float
    seen: float
    by: int | None
    ended: float = math.inf
    site: str = ""


@dataclass(slots=True)
class ObservedJob:
    job: str
    load: str = ""
    digest: str | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    drivers: list[Span] = field(default_factory=list)
    queries: list[Event] = field(default_factory=list)
    stored: list[Event] = field(default_factory=list)
    states: list[Event] = field(default_factory=list)
    runs: list[Event] = field(default_factory=list)
    outputs: list[Event] = field(default_factory=list)

    def acked(self, what: str) -> float | None:
        """When a wish was first acknowledged."""
        return min((c.answered for c in self.calls if c.what == what and c.outcome == "ok"), default=None)

    def ended(self) -> float | None:
        """When it was first seen to have ended for good, in the store or by what was told."""
        times = [e.at for e in self.stored if e.get("result") is not None]
        times += [e.at for e in self.states if e["status"] in TERMINAL]
        times += [c.answered for c in self.results() if c.value.get("status") in TERMINAL]
        return min(times, default=None)

    def results(self) -> list[Call]:
        """What was told when somebody asked how it ended."""
        return [c for c in self.calls if c.what == "result" and c.outcome == "ok" and isinstance(c.value, dict)]


class ClusterStory:
    """All of a history, by subject."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = sorted(events, key=lambda e: e.at)
        self.end = self.events[-1].at if self.events else 0.0
        self.jobs: dict[str, ObservedJob] = {}
        self.calls: list[Call] = []
        self.faults: list[PlayedFault] = []
        self.by_kind: dict[str, list[Event]] = defaultdict(list)
        self._open_calls: dict[Any, Call] = {}
        self._open_faults: dict[Any, PlayedFault] = {}
        # A fault may put a process that has nothing to do with it in the place of a driver (F18).
        self._strangers = {e["stranger"] for e in self.events if e.kind == "fault" and e.get("stranger") is not None}
        for event in self.events:
            self.by_kind[event.kind].append(event)
            self._take(event)

    @property
    def settled(self) -> Event | None:
        """The last word of the load: from then on everything had had its time."""
        return self.by_kind["settled"][-1] if self.by_kind["settled"] else None

    def deadline(self, since: float, bound: float, bounds: Bounds) -> float:
        """When something that was due `bound` seconds after `since` is late, faults in between considered."""
        due = since + bound
        for fault in sorted(self.faults, key=lambda f: f.began):
            if fault.began <= due and fault.ended >= since:
                due = max(due, fault.ended + bounds.failover + bound)
        return due + 2 * self.lag(since, due)

    def lag(self, since: float, until: float) -> float:
        """By how much the machine let the observer wait at some time, and so perhaps the cluster as well."""
        late = [e["seconds"] for e in self.by_kind["lag"] if since <= e.at and e.at - e["seconds"] <= until]
        return float(max(late, default=0.0))

    def harmed(self, job: str, since: float, until: float, bounds: Bounds, site: str | None = None) -> bool:
        """Whether a fault may be what ended an attempt of the job, at that site if it is known, between two moments."""
        return any(
            f.harms_attempts_of(job, site) and f.began <= until and f.ended + bounds.harm >= since for f in self.faults
        )

    def may_be_forgotten(self, job: str, at: float, bounds: Bounds) -> bool:
        """Whether so many jobs had ended after this one that nobody has to know of it any more."""
        if bounds.results is None or (ended := self._ends.get(job)) is None:
            return False
        newer = sum(1 for other in self._ends.values() if ended - ORDER_SECONDS < other <= at) - 1
        return newer >= bounds.results

    @functools.cached_property
    def _ends(self) -> dict[str, float]:
        """When a result of each job was first seen in the store."""
        seen = ((name, e.at) for name, job in self.jobs.items() for e in job.stored if e.get("result") is not None)
        ends: dict[str, float] = {}
        for name, at in seen:
            ends.setdefault(name, at)
        return ends

    def _take(self, event: Event) -> None:
        match event.kind:
            case "job":
                job = self._job(event["job"])
                job.load, job.digest = event["load"], event.get("digest")
                job.plan = dict(event.get("plan") or {})
            case "call":
                call = Call(event["client"], event["what"], event["job"], event.get("args") or {}, event.at)
                self.calls.append(call)
                self._open_calls[event["id"]] = call
                if call.job is not None:
                    self._job(call.job).calls.append(call)
            case "answer":
                if (call_ := self._open_calls.pop(event["id"], None)) is not None:
                    call_.answered, call_.outcome = event.at, event["outcome"]
                    call_.value, call_.error = event.get("value"), event.get("error") or ""
            case "fault":
                self.faults.append(_fault(event))
                self._open_faults[event["id"]] = self.faults[-1]
            case "healed":
                if (fault := self._open_faults.pop(event["id"], None)) is not None:
                    fault.ended = event.at
            case "driver" if event["pid"] not in self._strangers:
                _note_driver(self._job(event["job"]), event)
            case "query" | "stored" | "job-state" | "run" | "output":
                job = self._job(event["job"])
                lists = {
                    "query": job.queries,
                    "stored": job.stored,
                    "job-state": job.states,
                    "run": job.runs,
                    "output": job.outputs,
                }
                lists[event.kind].append(event)

    def _job(self, job: str) -> ObservedJob:
        return self.jobs.setdefault(job, ObservedJob(job))


def _fault(event: Event) -> PlayedFault:
    name = str(event["name"])
    said = event.get("harms")
    harms = frozenset(said) if said is not None else frozenset({"drivers"} if name in HARMING else ())
    what, target = str(event.get("what") or ""), str(event.get("target") or "")
    jobs, sites = (frozenset(event.get(key) or ()) for key in ("jobs", "sites"))
    return PlayedFault(event["id"], name, what, target, harms, jobs, event.at, sites)


def _note_driver(job: ObservedJob, event: Event) -> None:
    process = (event["pid"], event["started"])
    span = next((s for s in job.drivers if (s.attempt, s.process) == (event["attempt"], process)), None)
    if span is None:
        taken = min(event.get("taken") or event.at, event.at)
        span = Span(event["attempt"], process, taken, event.at, event.get("by"), site=event.get("site") or "")
        job.drivers.append(span)
    over = event.get("over")
    if event["alive"]:
        span.ended = math.inf
    else:
        # Whoever writes a result for it later does not bring it back.
        ended = event.at if over is None else max(span.seen, min(over, event.at))
        span.ended = min(span.ended, ended)


def pairs(items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Every two of them, the earlier one first."""
    return ((a, b) for n, a in enumerate(items) for b in items[n + 1 :])
