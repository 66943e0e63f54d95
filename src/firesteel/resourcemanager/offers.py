"""What workers offer, and what a job asks of the worker that it is put on. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from firesteel.config.values import memory_bytes
from firesteel.engines.command import local_cores
from firesteel.engines.record import EngineSpec

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class WorkerOffer:
    """What one worker has room for. The limits are those of its own configuration."""

    worker: str
    name: str
    max_engines: int
    max_cores: int
    """Cores of the largest engine that it runs, and what all its engines together have without sharing any."""
    max_memory: str
    labels: Labels = frozenset()
    sandbox: str = ""
    """What keeps owners apart there: `landlock`, `user`, or both as `user+landlock`; empty for nothing."""
    accepting: bool = True
    """Whether it gets new jobs. What it has stays."""
    draining: bool = False
    """It is being emptied: engines on which nothing runs are stopped at once."""
    known: bool = True
    """False: the worker belongs to the cluster, but has not told this leader yet what it has. It may suit any job."""

    @staticmethod
    def of_absent(worker: str, name: str) -> WorkerOffer:
        """A worker that is expected to come."""
        return WorkerOffer(worker, name, 0, 0, "0k", accepting=False, known=False)

    def suits(self, placement: Placement) -> bool:
        """Whether it has the labels and the sandbox that are asked for."""
        return placement.labels <= self.labels and placement.sandboxes <= set(self.sandbox.split("+"))

    def holds(self, spec: EngineSpec) -> bool:
        """Whether it may run an engine of this size."""
        if spec.attached:
            return True
        return local_cores(spec.master) <= self.max_cores and memory_bytes(spec.memory) <= memory_bytes(self.max_memory)


@dataclass(frozen=True, slots=True)
class Placement:
    """Which workers a job may be put on."""

    labels: Labels = frozenset()
    """All of these."""
    sandboxes: frozenset[str] = frozenset()
    """All of these, `landlock` or `user`."""


ANYWHERE = Placement()


def show_labels(labels: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(labels))


def too_large(spec: EngineSpec, placement: Placement, offers: Iterable[WorkerOffer]) -> str | None:
    """Why no worker of the cluster will ever do for a job; None when one does, or may, be it away or not accepting."""
    offers = list(offers)
    if not all(o.known for o in offers) or not offers:
        return None
    labelled = [o for o in offers if placement.labels <= o.labels]
    if not labelled:
        return (
            f"the job asks for a worker with {show_labels(placement.labels)} (settings.placement.labels), and no worker of "
            "this cluster has that; correct the labels of the job, or start a worker with these (worker.labels)"
        )
    suitable = [o for o in labelled if o.suits(placement)]
    if not suitable:
        return (
            f"the job needs the sandbox {' and '.join(sorted(placement.sandboxes))} (settings.placement.sandbox, "
            f"worker.required-sandbox), and no worker{_with(placement)} has it; ask for any, or start a worker that has it "
            "(security.sandbox)"
        )
    if any(o.holds(spec) for o in suitable):
        return None
    most_cores = max(o.max_cores for o in suitable)
    cores = local_cores(spec.master)
    where = "here" if not placement.labels and len(offers) == 1 else f"of a worker{_with(placement)}"
    if cores > most_cores:
        return (
            f"the job asks for an engine of {cores} cores ({spec.master}), and no engine {where} may have more than "
            f"{most_cores} (engine.max-cores); ask for less cpu in the resources of its vertices or in "
            f"engine.master, or raise engine.max-cores"
        )
    most_memory = max((o.max_memory for o in suitable), key=memory_bytes)
    if memory_bytes(spec.memory) > memory_bytes(most_memory):
        return (
            f"the job asks for an engine with {spec.memory} of memory, and no engine {where} may have more than "
            f"{most_memory} (engine.max-memory); ask for less memory in the resources of its vertices or in "
            f"engine.memory, or raise engine.max-memory"
        )
    return (
        f"the job asks for an engine of {cores} cores ({spec.master}) with {spec.memory} of memory, and no single "
        f"worker{_with(placement)} allows both; ask for less of one, or raise engine.max-cores or engine.max-memory"
    )


def waits_for(spec: EngineSpec, placement: Placement, offers: Iterable[WorkerOffer]) -> str | None:
    """The workers that a job waits for, if none that would do accepts jobs now; None when it waits for a slot or for room."""
    able = [o for o in offers if not o.known or (o.suits(placement) and o.holds(spec))]
    if any(o.accepting for o in able):
        return None
    if not able:
        return "a worker: the cluster has none"
    return "worker " + " or ".join(f"{o.name}, which {_why_not(o)}" for o in sorted(able, key=lambda o: o.name))


def _why_not(offer: WorkerOffer) -> str:
    if not offer.known:
        return "has not come yet"
    return "is being emptied" if offer.draining else "does not answer"


def _with(placement: Placement) -> str:
    return f" with {show_labels(placement.labels)}" if placement.labels else ""
