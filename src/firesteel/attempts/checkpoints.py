"""Reads the checkpoint of a streaming query: which batches it has begun, and which it has committed."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.attempts.attempt import AttemptSpec
from firesteel.errors import SupersededError
from firesteel.fs import generations
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
    """Where a sink's query keeps its progress; the same for every attempt of a job. See `generations.current`."""
    return location_of(sink, spec.checkpoints)


def take_over(spec: AttemptSpec) -> dict[str, str]:
    """See to it that no attempt that was given up writes to the checkpoints any more. Returns where they are for this
    attempt, by sink: when it is given up itself, it must not follow them to where the next one has put them.

    Raises:
        SupersededError: this attempt was given up itself.
    """
    attempt = spec.attempt
    return {
        sink.name: generations.take(checkpoint_location(sink, spec), attempt.job_id, attempt.number, spec.given_up)
        for sink in spec.graph.sinks
    }


def taken_by(spec: AttemptSpec) -> SupersededError | None:
    """The error of an attempt that was given up; None when no other has taken over."""
    for sink in spec.graph.sinks:
        place = checkpoint_location(sink, spec)
        found = generations.at(place)
        later = found.later_than(spec.attempt.job_id, spec.attempt.number) if found is not None else None
        if later is not None:
            return generations.superseded(spec.attempt.number, later, place)
    return None


def batches(sink: Sink, spec: AttemptSpec) -> Batches:
    """What the checkpoint of a sink says."""
    return batches_at(checkpoint_location(sink, spec), sink.name)


def batches_at(checkpoint: str, sink: str) -> Batches:
    """Read a sink's checkpoint. Spark writes what a batch will read before it begins, and a commit after its end.

    Raises:
        InvalidPipelineError: it lies on a file system that only Spark can look into.
        EnvironmentNotReadyError: the client of that file system is not installed.
    """
    location = locate(generations.current(checkpoint), sink, {})
    store = open_store(location)
    # The commits first: a batch that ends in between is then seen as begun, never as committed but not begun.
    committed = _newest(store, f"{location.root}/commits")
    return Batches(_newest(store, f"{location.root}/offsets"), committed)


def _newest(store: FileStore, directory: str) -> int:
    """Logs of Spark are files named by number, besides checksums and temporaries."""
    return max((int(name) for name in store.names(directory) if name.isdecimal()), default=NONE)
