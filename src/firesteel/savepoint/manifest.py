"""The files that make a directory a savepoint: a manifest, which is written last, and a request, written first.

The directory of a savepoint:

    _request.json            what is to be saved; there before anything is copied, gone when the savepoint is complete
    data-<8 hex>/<sink>/     what one writer copied: checkpoint/… and, of sinks that are files, sink-log/…
    _savepoint.json          the manifest: which data directory counts, and what is in it
    _disposing.json          in place of the manifest: the savepoint is being removed

Each writer has a data directory of its own, and only one can create the manifest. So a leader that was believed dead
but continues to copy does no harm to what its successor has made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from firesteel.errors import SavepointError
from firesteel.jobgraph.formats import BatchCommit, lookup
from firesteel.jobgraph.model import JobGraph, Sink
from firesteel.records import from_json, to_json
from firesteel.types import JobID

T = TypeVar("T")

VERSION = 1
MANIFEST = "_savepoint.json"
REQUEST = "_request.json"
DISPOSING = "_disposing.json"
MAX_MANIFEST = 64 << 20
"""Bytes: some 400,000 files."""
CHECKPOINT = "checkpoint"
SINK_LOG = "sink-log"

MARK = ".firesteel-restore.json"
"""A file in a checkpoint that is made from a savepoint: its content is COPYING or DONE."""
COPYING = "copying"
DONE = "done"

NONE = -1
"""The number of the last batch of a query that has committed none."""

_DATA = re.compile(r"data-[0-9a-f]{8}")
_MASK = "******"
_SECRET = re.compile(r"secret|password|token|access[._-]?key|credential", re.IGNORECASE)


def is_data_directory(name: str) -> bool:
    return _DATA.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class SinkPlaces:
    """Where the query of a sink keeps its progress, and where it writes to."""

    checkpoint: str
    path: str | None = None
    """The output of a sink that is a directory of files, in which Spark keeps a log of its batches."""
    table: str | None = None
    """The output of a sink that is a table of files: it has such a log too, and only Spark knows where."""

    @staticmethod
    def of(sink: Sink, checkpoint: str) -> SinkPlaces:
        files = is_file_sink(sink)
        return SinkPlaces(checkpoint, sink.path if files else None, sink.table if files else None)


def is_file_sink(sink: Sink) -> bool:
    """Whether Spark writes this sink as files, with a log of which belong to which batch."""
    return sink.format is not None and lookup(sink.format).commit is BatchCommit.STAGED_FILES


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """What is to be saved, with everything that is needed when the job itself is no longer known."""

    job_id: JobID
    job_name: str
    trigger_id: str
    graph: Mapping[str, Any]
    """The graph as it was submitted, without values that look like secrets."""
    sinks: Mapping[str, SinkPlaces]

    @staticmethod
    def of(graph: JobGraph, job_id: JobID, trigger_id: str, checkpoints: Mapping[str, str]) -> SavepointRequest:
        """`checkpoints`: the checkpoint location of each sink."""
        sinks = {s.name: SinkPlaces.of(s, checkpoints[s.name]) for s in graph.sinks}
        return SavepointRequest(job_id, graph.name, trigger_id, _masked(json.loads(graph.to_json())), sinks)

    def to_bytes(self) -> bytes:
        return _dump({"version": VERSION, **to_json(self)})

    @staticmethod
    def from_bytes(raw: bytes, where: str, name: str = REQUEST) -> SavepointRequest:
        return _load(raw, f"{where}/{name}", lambda data: from_json(data, SavepointRequest))


@dataclass(frozen=True, slots=True)
class SavedFile:
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SavedSink:
    batch: int
    """The last batch that is in the savepoint; NONE when the query had committed none."""
    query_id: str | None
    places: SinkPlaces
    files: Mapping[str, SavedFile]
    """The files by their path from the sink's directory."""

    def files_of(self, part: str) -> dict[str, SavedFile]:
        """The files below CHECKPOINT or SINK_LOG, by their path from there."""
        return {k[len(part) + 1 :]: v for k, v in self.files.items() if k.startswith(f"{part}/")}


@dataclass(frozen=True, slots=True)
class Manifest:
    job_id: JobID
    job_name: str
    trigger_id: str
    created_at: float
    graph: Mapping[str, Any]
    data: str
    """The name of the data directory."""
    sinks: Mapping[str, SavedSink]

    @property
    def batches(self) -> dict[str, int]:
        return {name: sink.batch for name, sink in self.sinks.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each sink."""
        return {name: sum(f.size for f in sink.files.values()) for name, sink in self.sinks.items()}

    def to_bytes(self) -> bytes:
        return _dump({"version": VERSION, **to_json(self)})

    @staticmethod
    def from_bytes(raw: bytes, where: str) -> Manifest:
        """Read a manifest. Raises SavepointError when `raw` is not one, or one of a newer Firesteel."""
        return _load(raw, f"{where}/{MANIFEST}", _manifest)


def _manifest(data: Mapping[str, Any]) -> Manifest:
    manifest = from_json(data, Manifest)
    if not is_data_directory(manifest.data):
        raise ValueError(f"{manifest.data!r} is not a data directory")
    for name, sink in manifest.sinks.items():
        _check_name(name)
        for file in sink.files:
            for part in file.split("/"):
                _check_name(part)
    return manifest


def _check_name(name: str) -> None:
    """Check a name: a manifest may come from any user, so no name in it may lead out of its directory."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r:.100} is not a file name")


def _dump(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()


def _load(raw: bytes, where: str, build: Callable[[Mapping[str, Any]], T]) -> T:
    try:
        data = json.loads(raw)
        version = data["version"]
        if isinstance(version, int) and version > VERSION:
            raise SavepointError(
                f"{where} has version {version}, this Firesteel reads up to {VERSION}; use the newer one that wrote it"
            )
        return build(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SavepointError(f"{where} cannot be read: {error!r:.200}") from error


def _masked(value: Any) -> Any:
    """Mask secrets: a savepoint may be kept where more people can read it than the job."""
    if isinstance(value, dict):
        return {k: _MASK if isinstance(v, str) and _SECRET.search(k) else _masked(v) for k, v in value.items()}
    return [_masked(v) for v in value] if isinstance(value, list) else value
