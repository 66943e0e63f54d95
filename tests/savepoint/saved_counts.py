"""A savepoint of a stream that counts, without Spark: the files that tell what its state is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.savepoint.test_savepoint_compatibility import COUNTED, FILES, pipeline

from firesteel.jobgraph import parse_graph
from firesteel.savepoint.files import Place
from firesteel.savepoint.manifest import MANIFEST, Manifest, SavedSink, SinkPlaces
from firesteel.types import JobID

OTHER = COUNTED.replace("page", "user")


def counts(query: str = COUNTED, **restore: Any) -> dict[str, Any]:
    """A graph, which starts from a savepoint when `restore` has a path."""
    graph = pipeline(query, top={"settings": {"restore": restore}} if restore else {})
    graph["vertices"] = [v for v in graph["vertices"] if v["name"] in ("events", "counts", "out")]
    return graph


def savepoint(directory: Path, job_id: str) -> str:
    """Of `counts()`, after batch 3."""
    data = directory / "data-00000000" / "out" / "checkpoint"
    for name, content in FILES.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(content)
    place = Place.at(str(data), "the checkpoint")
    files = {f"checkpoint/{name}": place.sum(name) for name in FILES}
    graph = parse_graph(counts()).model_dump(mode="json", by_alias=True, exclude_none=True)
    sinks = {"out": SavedSink(3, None, SinkPlaces("/gone"), files)}
    manifest = Manifest(JobID(job_id), "job", "t", 1.0, graph, "data-00000000", sinks)
    (directory / MANIFEST).write_bytes(manifest.to_bytes())
    return str(directory)
