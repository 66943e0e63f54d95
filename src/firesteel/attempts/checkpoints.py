"""Reads the checkpoint of a streaming query: which batches it has begun, and which it has committed."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.attempts.attempt import AttemptSpec
from firesteel.fs.store import FileStore, locate, open_store
from firesteel.jobgraph.model import Sink

NONE = -1


@dataclass(frozen=True, slots=True)
class Batches:
    """The newest batch of each kind; NONE when there is none."""

    begun: int
    committed: int


def location_of(sink: Sink, checkpoints: str) -> str:
    """Where a sink's query keeps its progress, when `checkpoints` is the job's directory for that."""
    return sink.options.get("checkpointLocation") or f"{checkpoints}/{sink.name}"


def checkpoint_location(sink: Sink, spec: AttemptSpec) -> str:
    """Where a sink's query keeps its progress; the same for every attempt of a job."""
    return location_of(sink, spec.checkpoints)


def batches(sink: Sink, spec: AttemptSpec) -> Batches:
    """What the checkpoint of a sink says."""
    return batches_at(checkpoint_location(sink, spec), sink.name)


def batches_at(checkpoint: str, sink: str) -> Batches:
    """Read a sink's checkpoint. Spark writes what a batch will read before it begins, and a commit after its end.

    Raises:
        InvalidPipelineError: it lies on a file system that only Spark can look into.
        EnvironmentNotReadyError: the client of that file system is not installed.
    """
    location = locate(checkpoint, sink, {})
    store = open_store(location)
    # The commits first: a batch that ends in between is then seen as begun, never as committed but not begun.
    committed = _newest(store, f"{location.root}/commits")
    return Batches(_newest(store, f"{location.root}/offsets"), committed)


def _newest(store: FileStore, directory: str) -> int:
    """Logs of Spark are files named by number, besides checksums and temporaries."""
    return max((int(name) for name in store.names(directory) if name.isdecimal()), default=NONE)
