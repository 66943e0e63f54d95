"""The batches that the query of a sink has committed, over all attempts of its job, and where each attempt started
from.

Spark forgets them with the query. The driver's events list those of an attempt, and the checkpoint shows what was
committed before; a batch whose driver died before it could report the commit is counted, as the next attempt finds it
there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

NONE = -1
MOST_KEPT = 50
"""Batches of a sink that are remembered one by one."""
_LARGEST = 2**53
_LONGEST_TEXT = 4096


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    number: int
    at: float
    """When it was reported, which Spark does after the commit."""
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class Origin:
    """What an attempt started from: a batch that was committed before it."""

    batch: int
    at: float
    savepoint: str = ""
    """Where it is, when the job was started from one."""
    trigger: str = ""
    """The trigger id of that savepoint."""


@dataclass(frozen=True, slots=True)
class Committed:
    before: int = NONE
    """The last batch that another job had committed, before this one continued from there."""
    last: int = NONE
    restores: int = 0
    restored: Origin | None = None
    """What the last attempt started from."""
    recent: tuple[CommittedBatch, ...] = ()
    """Oldest first."""

    @property
    def count(self) -> int:
        """Batches of this job."""
        return max(0, self.last - self.before)

    def going_on(self, origin: Origin) -> Committed:
        """This, with an attempt that starts from what has been committed."""
        fresh = not self.restores and self.last == NONE
        return replace(
            self,
            before=origin.batch if fresh else self.before,
            last=max(self.last, origin.batch),
            restores=self.restores + 1,
            restored=origin,
        )

    def committing(self, batch: CommittedBatch) -> Committed:
        log = self
        if batch.number > 0 and not self.restores and self.last == NONE:
            # It lies on a file system that only Spark can look into: what it has begun with shows in what follows.
            log = self.going_on(Origin(batch.number - 1, batch.at))
        kept = [b for b in log.recent if b.number != batch.number]
        return replace(log, last=max(log.last, batch.number), recent=(*kept, batch)[-MOST_KEPT:])

    def followed_by(self, later: Committed) -> Committed:
        """`later` is of the next attempt."""
        if self == Committed():
            return later
        restored = later.restored or self.restored
        if later.restored is not None and self.restored is not None:
            # Nothing was committed in between: what was gone on from is the same once more.
            same = self.last == self.restored.batch == later.restored.batch
            restored = replace(self.restored, at=later.restored.at) if same else later.restored
        numbers = {b.number for b in later.recent}
        return Committed(
            before=self.before,
            last=max(self.last, later.last),
            restores=self.restores + later.restores,
            restored=restored,
            recent=(*(b for b in self.recent if b.number not in numbers), *later.recent)[-MOST_KEPT:],
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "before": self.before,
            "last": self.last,
            "restores": self.restores,
            "restored": None if self.restored is None else asdict(self.restored),
            "recent": [[b.number, b.at, b.duration_ms] for b in self.recent],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Committed:
        restored = data["restored"]
        return Committed(
            data["before"],
            data["last"],
            data["restores"],
            None if restored is None else Origin(**restored),
            tuple(CommittedBatch(*b) for b in data["recent"]),
        )


def makes_sense(data: Any) -> bool:
    """Whether `Committed.from_json` accepts it: a job can write anything to its event log (S16)."""
    if not isinstance(data, dict) or not all(_whole(data.get(k)) for k in ("before", "last", "restores")):
        return False
    recent, restored = data.get("recent"), data.get("restored", 0)
    if not isinstance(recent, list) or len(recent) > MOST_KEPT:
        return False
    if not all(isinstance(b, list) and len(b) == 3 and _whole(b[0]) and _time(b[1]) and _whole(b[2]) for b in recent):
        return False
    return restored is None or (isinstance(restored, dict) and is_origin(restored) and set(restored) == _OF_ORIGIN)


_OF_ORIGIN = {"batch", "at", "savepoint", "trigger"}


def is_origin(data: Mapping[str, Any]) -> bool:
    texts = (data.get("savepoint", ""), data.get("trigger", ""))
    return (
        _whole(data.get("batch"))
        and _time(data.get("at", 0))
        and all(isinstance(t, str) and len(t) <= _LONGEST_TEXT for t in texts)
    )


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and NONE <= value <= _LARGEST


def _time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
