"""What a metric is: its name, its group, its kind, and one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds in seconds of what should take milliseconds."""
SLOW = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Of what may take a while."""


class Kind(StrEnum):
    COUNTER = "counter"
    """Only grows, from 0 when the process starts."""
    GAUGE = "gauge"
    METER = "meter"
    """A counter, and how fast it grew over about the last minute."""
    HISTOGRAM = "histogram"


class Group(StrEnum):
    """What a metric is about. `worker` has none yet: until workers are processes of their own, a node is one."""

    NODE = "node"
    CLUSTER = "cluster"
    ELECTION = "election"
    STORE = "store"
    DISPATCHER = "dispatcher"
    RESOURCE_MANAGER = "resource_manager"
    WORKER = "worker"
    ENGINE = "engine"
    JOB = "job"
    VERTEX = "vertex"
    STREAM = "stream"
    USER = "user"
    REST = "rest"


OF_JOBS = frozenset({Group.JOB, Group.VERTEX, Group.STREAM, Group.USER})
"""Groups with series for each job: they say whose jobs there are, and what they are called."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Metric:
    """One declared metric. Two are the same only if they are one: they are keys of dictionaries on hot paths."""

    group: Group
    name: str
    kind: Kind
    description: str
    unit: str = ""
    """`seconds`, `bytes`, or empty for what is counted in itself."""
    labels: tuple[str, ...] = ()
    known: tuple[tuple[str, ...], ...] = ()
    """Of a counter or meter with labels: the series that are there from the start, at 0. One that appeared with its first
    event would show no growth by it."""
    buckets: tuple[float, ...] = ()
    """Upper bounds, of a histogram."""
    flink: str = ""
    """Its name in Flink's REST contract, if it has one there."""
    flink_factor: int = 1
    """What a value is multiplied with there: 1000 where the contract has milliseconds."""

    @property
    def exposed(self) -> str:
        """The name for Prometheus, without what a kind adds to it."""
        parts = ["firesteel", self.group.value, self.name]
        if self.unit and not self.name.endswith(self.unit):
            parts.append(self.unit)
        return "_".join(parts)

    def flink_value(self, value: float) -> float:
        """The value as the contract counts it; whole numbers stay whole."""
        if self.flink_factor != 1:
            return round(value * self.flink_factor)
        return value
