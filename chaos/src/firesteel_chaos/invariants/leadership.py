"""Who leads, and what those do who do not: I6, I7, I9, I24."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from firesteel_chaos.invariants.model import Bounds, ClusterStory, Violation


def i6(story: ClusterStory, _: Bounds) -> Iterator[Violation]:
    newest, at_store = 0, 0.0
    holders: dict[int, str] = {}
    for event in story.by_kind["store"]:
        epoch, holder = event.get("epoch"), event.get("holder")
        if epoch is None:
            continue
        # A holder's name is used once; it is empty when the leadership was given up.
        if holder and holders.setdefault(epoch, holder) != holder:
            yield Violation("I6", None, f"epoch {epoch} was granted to {holders[epoch]} and to {holder}", event.at)
        if epoch < newest:
            text = f"the store's epoch went from {newest} (at {at_store:.1f} s) to {epoch}"
            yield Violation("I6", None, text, event.at)
        newest, at_store = max(newest, epoch), event.at
    addresses: dict[int, str] = {}
    told: dict[str, list[tuple[float, int]]] = {}
    for event in story.by_kind["leader"]:
        epoch, address = event.get("epoch"), event.get("address")
        if epoch is None:
            continue
        if address and addresses.setdefault(epoch, address) != address:
            yield Violation("I6", None, f"epoch {epoch} was that of {addresses[epoch]} and of {address}", event.at)
        earlier = told.setdefault(event["node"], [])
        newer = max((e for at, e in earlier if at <= event.get("asked", event.at)), default=0)
        if epoch < newer:
            yield Violation(
                "I6", None, f"node {event['node']} named epoch {epoch} after it had named {newer}", event.at
            )
        earlier.append((event.at, epoch))
    yield from _late_writes(story)


def _late_writes(story: ClusterStory) -> Iterator[Violation]:
    """A write that began after one of a newer epoch had ended, and was accepted all the same.

    Nodes note the moments themselves, by the clock of the host that they share.
    """
    accepted = [e for e in story.by_kind["write"] if e["outcome"] == "ok"]
    first: dict[int, float] = {}
    writers: dict[int, int] = {}
    for event in accepted:
        if writers.setdefault(event["epoch"], event["node"]) != event["node"]:
            text = f"processes {writers[event['epoch']]} and {event['node']} both wrote in epoch {event['epoch']}"
            yield Violation("I6", _job_in(event["path"]), text, event["began"])
        first[event["epoch"]] = min(event["ended"], first.get(event["epoch"], math.inf))
    for event in accepted:
        newer = [epoch for epoch, at in first.items() if epoch > event["epoch"] and at < event["began"]]
        if newer:
            text = f"{event['path']} was written in epoch {event['epoch']} while {max(newer)} led"
            yield Violation("I6", _job_in(event["path"]), text, event["began"])


def _job_in(path: str) -> str | None:
    parts = path.split("/")
    return parts[1] if len(parts) > 1 and len(parts[1]) == 32 else None


@dataclass(frozen=True, slots=True)
class _Leadership:
    epoch: int
    pid: int
    since: float


def _leaderships(story: ClusterStory) -> list[_Leadership]:
    """As far as it is known which process led: by what nodes told, and by their own notes."""
    found: dict[int, _Leadership] = {}
    pids: dict[str, list[tuple[float, int]]] = {}
    homes: dict[str, str] = {}
    for event in story.by_kind["node"]:
        if event.get("pid") is not None:
            pids.setdefault(event["node"], []).append((event.at, event["pid"]))
        if event.get("address"):
            homes[event["address"]] = event["node"]
    for event in story.by_kind["leader"]:
        node = homes.get(event.get("address") or "")
        had = [pid for at, pid in pids.get(node or "", []) if at <= event.at + 1.0]
        if event.get("epoch") is not None and had:
            leadership = _Leadership(event["epoch"], had[-1], event.at)
            known = found.get(leadership.epoch)
            if known is None or known.since > leadership.since:
                found[leadership.epoch] = leadership
    for event in story.by_kind["write"]:
        known = found.get(event["epoch"])
        if event["outcome"] == "ok" and (known is None or known.since > event["ended"]):
            found[event["epoch"]] = _Leadership(event["epoch"], event["node"], event["ended"])
    return sorted(found.values(), key=lambda x: x.epoch)


def i7(story: ClusterStory, bounds: Bounds) -> Iterator[Violation]:
    """No attempt begins by the hand of a node that another one has replaced.

    What it had begun before it could know may still happen: the claim of an attempt makes that the same start, whoever does it.
    """
    leaderships = _leaderships(story)
    for job in story.jobs.values():
        for span in job.drivers:
            if span.by is None:
                continue
            before = [x for x in leaderships if x.since <= span.taken - bounds.fenced]
            after = [x for x in leaderships if span.taken - bounds.fenced < x.since <= span.taken + bounds.fenced]
            led = [x.pid for x in (*before[-1:], *after)]
            if before and span.by not in led:
                text = f"attempt {span.attempt} was begun by node process {span.by} while epoch {before[-1].epoch}"
                yield Violation("I7", job.job, f"{text} of process {before[-1].pid} led", span.taken)


def i9(story: ClusterStory, bounds: Bounds) -> Iterator[Violation]:
    lost: float | None = None
    for event in [*story.by_kind["reach"], None]:
        at = story.end if event is None else event.at
        if lost is not None and (event is None or event["ok"]):
            uncovered = _uncovered(story, lost, at, bounds)
            if uncovered > bounds.hiccup + 2 * story.lag(lost, at):
                text = f"no node answered for {at - lost:.1f} s, {uncovered:.1f} s of it without a fault to blame"
                yield Violation("I9", None, text, lost)
        if event is not None:
            lost = None if event["ok"] else lost if lost is not None else event.at
    for event in story.by_kind["recovered"]:
        seconds = event.get("seconds")
        if seconds is None or seconds > bounds.reachable:
            took = "did not answer again" if seconds is None else f"answered {seconds:.1f} s after the last fault"
            yield Violation("I9", None, f"round {event.get('round')}: the cluster {took}", event.at)
    if story.settled is not None:
        for job in story.settled["open"]:
            if job in story.jobs and story.jobs[job].acked("submit") is not None:
                yield Violation("I9", job, "was accepted and had not ended when everything had had its time", story.end)


def _uncovered(story: ClusterStory, since: float, until: float, bounds: Bounds) -> float:
    """How much of a time no fault accounts for, nor the recovery from one."""
    left, at = 0.0, since
    for began, ended in sorted((f.began - 1.0, f.ended + bounds.reachable) for f in story.faults):
        if ended <= at or began >= until:
            continue
        left += max(0.0, began - at)
        at = max(at, ended)
    return left + max(0.0, until - at)


def i24(story: ClusterStory, _: Bounds) -> Iterator[Violation]:
    """Without a quorum nobody is elected. That running jobs go on is I8."""
    for fault in story.faults:
        if "quorum" not in fault.harms:
            continue
        seen = [(e.at, e["epoch"]) for e in (*story.by_kind["store"], *story.by_kind["leader"]) if e.get("epoch")]
        before = max((epoch for at, epoch in seen if at <= fault.began), default=0)
        # What was granted in the moment before is heard of a moment later.
        new = [(at, epoch) for at, epoch in seen if fault.began + 2.0 < at < fault.ended and epoch > before]
        earlier = {epoch for at, epoch in seen if at <= fault.began + 2.0}
        for at, epoch in new[:1]:
            if epoch not in earlier:
                yield Violation("I24", None, f"epoch {epoch} was granted while there was no quorum", at)
