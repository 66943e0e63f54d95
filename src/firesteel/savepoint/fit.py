"""Whether the savepoint at a path fits a graph. This module reads it and changes nothing; `compatibility` judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.errors import InvalidPipelineError, NoSavepointError, NothingToRestoreError, Problem, SavepointError
from firesteel.jobgraph.model import JobGraph
from firesteel.savepoint import selection
from firesteel.savepoint.compatibility import judge
from firesteel.savepoint.evidence import SavedState, saved_state
from firesteel.savepoint.files import Place
from firesteel.savepoint.manifest import CHECKPOINT, MANIFEST, NONE, Manifest, SavepointRequest
from firesteel.savepoint.naming import plain
from firesteel.savepoint.retained import note_at
from firesteel.savepoint.take import find
from firesteel.savepoint.verdict import Verdict

WHAT_TO_NAME = "give the directory of a savepoint, or of the checkpoint of an ended job"
OVERRIDE = "--allow-incompatible-state (settings.restore.allow_incompatible_state)"


@dataclass(frozen=True, slots=True)
class Position:
    """The state from which a job could start."""

    job_id: str
    graph: Mapping[str, Any]
    states: Mapping[str, SavedState | None]


def read_position(path: str) -> Position:
    """Read what is at `path`: a savepoint, or the checkpoint that was kept of a stream that has ended.

    Raises:
        SavepointError: it is neither, or it cannot be read.
    """
    location = plain(path).removesuffix(f"/{MANIFEST}")
    try:
        location, request = note_at(location)
        if request is not None:
            return Position(request.job_id, request.graph, _kept(request))
        manifest = find(location)
        return Position(manifest.job_id, manifest.graph, saved(location, manifest))
    except OSError as error:
        raise SavepointError(f"the savepoint {location} cannot be read: {error}") from error


def saved(location: str, manifest: Manifest) -> dict[str, SavedState | None]:
    """The state of each sink of a savepoint; None for one that had committed nothing."""
    data = Place.at(location, "the savepoint").below(manifest.data)
    states: dict[str, SavedState | None] = {}
    for name, sink in manifest.sinks.items():
        place = data.below(f"{name}/{CHECKPOINT}")
        states[name] = None if sink.batch == NONE else saved_state(sink.files_of(CHECKPOINT), sink.batch, place.read)
    return states


def _kept(request: SavepointRequest) -> dict[str, SavedState | None]:
    states: dict[str, SavedState | None] = {}
    for name, places in request.sinks.items():
        place = Place.of_checkpoint(places.checkpoint, name)
        batch = selection.newest(place.names("commits"))
        states[name] = None if batch == NONE else saved_state(place.files(), batch, place.read)
    return states


def fit(path: str, graph: JobGraph, *, allow_non_restored_state: bool | None = None) -> Verdict:
    """Whether `graph` can start from the savepoint or checkpoint at `path`. Raises SavepointError when there is none.

    `allow_non_restored_state` is by default what the graph says.
    """
    return fit_at(read_position(path), graph, allow_non_restored_state=allow_non_restored_state)


def fit_at(position: Position, graph: JobGraph, *, allow_non_restored_state: bool | None = None) -> Verdict:
    """`fit` for a savepoint that was read before."""
    restore = graph.settings.restore
    allowed = restore is not None and restore.allow_non_restored_state
    if allow_non_restored_state is not None:
        allowed = allow_non_restored_state
    return judge(position.graph, graph, position.states, allow_non_restored_state=allowed)


def nothing_to_restore(error: NoSavepointError) -> NothingToRestoreError:
    """The same, as what is wrong with the job that should start from there."""
    return NothingToRestoreError([Problem(str(error), WHAT_TO_NAME, field="settings.restore.path")])


def refusal(path: str, verdict: Verdict) -> InvalidPipelineError:
    """The error for a verdict that refuses."""
    return InvalidPipelineError(
        [
            Problem(
                f"it cannot start from the state in {path}: {finding.text}",
                f"change it back, start without the savepoint, or use {OVERRIDE} if wrong rows are acceptable",
                vertex=finding.vertex,
                field=None if finding.vertex else "settings.restore",
            )
            for finding in verdict.refusals
        ]
    )
