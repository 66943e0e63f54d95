"""Starting a job from a savepoint: its files become the checkpoints of the job's queries, once.

A mark in each checkpoint says how far this is: `copying` before the first file, `done` after the last. A driver that
dies in between leaves a checkpoint that no query has used, and the next attempt makes it again; once all are done, the
savepoint is no longer needed. Nothing is changed before everything has been checked.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from firesteel.errors import (
    FiresteelError,
    InvalidPipelineError,
    NoSavepointError,
    Problem,
    SavepointError,
    SupersededError,
)
from firesteel.jobgraph.model import JobGraph
from firesteel.jobgraph.state_sql import KeptState
from firesteel.savepoint import outputs
from firesteel.savepoint.compatibility import judge
from firesteel.savepoint.files import Place, copy_files, sums
from firesteel.savepoint.fit import WHAT_TO_NAME, nothing_to_restore, refusal
from firesteel.savepoint.fit import saved as saved_states
from firesteel.savepoint.manifest import (
    CHECKPOINT,
    COPYING,
    DONE,
    MANIFEST,
    MARK,
    NONE,
    Manifest,
    SavedSink,
    SinkPlaces,
)
from firesteel.savepoint.naming import plain
from firesteel.savepoint.retained import TRIGGER, mark_of, open_position
from firesteel.types import JobID

_QUERIES = uuid.UUID("b1a5f6c4-8c39-5e0e-9d1c-2f6b0c3a7d11")


@dataclass(frozen=True, slots=True)
class RestoredSink:
    """The state with which a sink of the new job starts."""

    name: str
    batch: int
    """The last batch that it will not repeat; NONE when it starts without state."""
    note: str = ""


def restore(
    path: str,
    job_id: JobID,
    sinks: Mapping[str, SinkPlaces],
    *,
    graph: JobGraph | None = None,
    plans: Callable[[], Mapping[str, tuple[KeptState, ...]]] = dict,
    allow_non_restored_state: bool = False,
) -> list[RestoredSink]:
    """Make the checkpoints of a job's sinks from the savepoint at `path`; empty when that was done before.

    With a `graph`, the state in the savepoint has to fit it. `plans` returns what Spark knows about its code.

    Raises:
        InvalidPipelineError: there is no savepoint that fits this job; nothing was changed.
    """
    location = plain(path).removesuffix(f"/{MANIFEST}")
    try:
        targets = [_Target(name, places, job_id) for name, places in sinks.items()]
        if all(t.state == DONE for t in targets):
            return []
        location, manifest = open_position(location)
        data = Place.at(location, "the savepoint").below(manifest.data)
        _check_sinks(location, manifest, sinks, allow_non_restored_state)
        if graph is not None:
            states = saved_states(location, manifest)
            verdict = judge(manifest.graph, graph, states, plans=plans(), allow_non_restored_state=True)
            if verdict.refusals:
                raise refusal(location, verdict)
        pairs = [(t, manifest.sinks[t.name]) for t in targets if t.state != DONE and t.name in manifest.sinks]
        staying = [(t, s) for t, s in pairs if manifest.trigger_id == TRIGGER and t.goes_on_in_place(s)]
        left = [pair for pair in pairs if pair not in staying]
        for target, saved in left:
            target.check(saved)
        _check_sums(location, data, left)
    except InvalidPipelineError:
        raise
    except NoSavepointError as error:
        raise nothing_to_restore(error) from error
    except FiresteelError as error:
        raise _refusal(str(error), WHAT_TO_NAME) from error
    found = [target.restore(location, saved, data.below(target.name)) for target, saved in left]
    for target, saved in staying:
        target.mark(DONE, location)
        found.append(RestoredSink(target.name, saved.batch, "in its own checkpoint"))
    for target in targets:
        if target.name not in manifest.sinks:
            target.mark(DONE, location)
            found.append(RestoredSink(target.name, NONE))
    return found


def _check_sinks(
    location: str, manifest: Manifest, sinks: Mapping[str, SinkPlaces], allow_non_restored_state: bool
) -> None:
    for name in manifest.sinks:
        if name not in sinks and not allow_non_restored_state:
            raise _refusal(
                f"the savepoint {location} has the state of a sink '{name}', which this job does not have",
                "give the sink that continues from it this name, or allow the state to be skipped "
                "(allow_non_restored_state)",
            )


def _check_sums(location: str, data: Place, left: Sequence[tuple[_Target, SavedSink]]) -> None:
    for target, saved in left:
        names = sorted(saved.files)
        for name, found in zip(names, sums(data.below(target.name), names), strict=True):
            if found != saved.files[name]:
                what = "is missing" if found is None else "has changed since it was written"
                raise SavepointError(f"the savepoint {location} is damaged: {data.path(target.name)}/{name} {what}")


def _refusal(message: str, fix: str, vertex: str | None = None) -> InvalidPipelineError:
    return InvalidPipelineError(
        [Problem(message, fix, vertex=vertex, field="settings.restore" if not vertex else None)]
    )


class _Target:
    """A sink of the new job."""

    def __init__(self, name: str, places: SinkPlaces, job_id: JobID) -> None:
        self.name = name
        self._places = places
        self._job_id = job_id
        self._checkpoint = Place.at(places.checkpoint, f"the checkpoint of sink '{name}'")
        self.state = mark_of(self._checkpoint, job_id)

    def goes_on_in_place(self, saved: SavedSink) -> bool:
        """Whether the sink has the checkpoint of the saved one, because it sets it itself: then it continues there."""
        return self._checkpoint.same(Place.of_checkpoint(saved.places.checkpoint, self.name))

    def mark(self, state: str, location: str) -> None:
        data = {"state": state, "job_id": self._job_id, "savepoint": location}
        self._checkpoint.write(MARK, json.dumps(data).encode())
        self.state = state

    def check(self, saved: SavedSink) -> None:
        """Raise InvalidPipelineError when the sink cannot start from `saved`."""
        # A driver that died while it wrote the mark left its temporary file, and nothing else.
        if self.state is None and any(not f.startswith(MARK) for f in self._checkpoint.files()):
            raise _refusal(
                f"its checkpoint {self._places.checkpoint} is already in use, and a savepoint needs an empty one",
                "remove options.checkpointLocation or set it to an empty directory, or start without the savepoint",
                self.name,
            )
        if self._places.path is not None:
            outputs.check(self.name, self._places.path, saved, begun=self.state == COPYING)
        elif self._places.table is not None and saved.batch != NONE and saved.places.table != self._places.table:
            raise _refusal(
                f"it writes to the table {self._places.table}, and the savepoint's query wrote to "
                f"{saved.places.table or saved.places.path or 'something else'}",
                "write to the same table, or to files",
                self.name,
            )

    def restore(self, location: str, saved: SavedSink, data: Place) -> RestoredSink:
        if self.state == COPYING:
            self._checkpoint.remove(*(f for f in self._checkpoint.files() if f != MARK))
        self.mark(COPYING, location)
        source = data.below(CHECKPOINT)
        files = saved.files_of(CHECKPOINT)
        copied = copy_files(source, self._checkpoint, [f for f in files if f != "metadata"])
        for name, file in copied.items():
            if file != files[name]:
                raise SavepointError(f"{source.path(name)} changed while the job was starting from it")
        if "metadata" in files:
            self._checkpoint.write("metadata", self._metadata(source.read("metadata") or b"{}"))
        note = ""
        if mark_of(self._checkpoint, self._job_id) != COPYING:
            raise SupersededError(f"{self._places.checkpoint} was taken over by a later attempt")
        if self._places.path is not None:
            note = outputs.restore(self._places.path, self._job_id, saved, data)
        self.mark(DONE, location)
        return RestoredSink(self.name, saved.batch, note)

    def _metadata(self, raw: bytes) -> bytes:
        """Give the query its own id: two queries with one id cannot run in one engine, and the other may still run."""
        metadata = json.loads(raw)
        metadata["id"] = str(uuid.uuid5(_QUERIES, f"{self._job_id}/{self.name}"))
        return json.dumps(metadata, separators=(",", ":")).encode()
