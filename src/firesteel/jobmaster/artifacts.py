"""The uploaded files of a job: which they are, and the same job with the files on this machine's disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from firesteel.blob.keys import BlobRef, is_blob_ref
from firesteel.blob.store import BlobStore
from firesteel.jobgraph.model import Artifacts, JobGraph, Script
from firesteel.types import JobID


class JobFiles:
    """Puts the files of jobs where their drivers find them: `<root>/<job id>/artifacts`, copies that go with the job."""

    def __init__(self, blobs: BlobStore, root: Path) -> None:
        self.blobs = blobs
        self._root = root

    async def localized(self, job_id: JobID, graph: JobGraph) -> JobGraph:
        """The graph with its files on this disk. Repeated, it finds them there.

        Raises BlobNotFoundError when one is gone, or damaged.
        """
        directory = self._root / job_id / "artifacts"
        return localized(graph, {r: str(await self.blobs.materialize(r, directory)) for r in blob_refs(graph)})


def blob_refs(graph: JobGraph) -> list[BlobRef]:
    """Raises ValueError for something that is meant as a reference and is none."""
    return [BlobRef.parse(text) for text in dict.fromkeys(_files(graph)) if is_blob_ref(text)]


def _files(graph: JobGraph) -> Iterator[str]:
    artifacts = graph.settings.artifacts
    for name in Artifacts.model_fields:
        yield from getattr(artifacts, name)
    for vertex in graph.vertices:
        if isinstance(vertex, Script):
            yield vertex.file


def localized(graph: JobGraph, places: Mapping[BlobRef, str]) -> JobGraph:
    """The graph with each reference replaced by the path of the file."""
    if not places:
        return graph

    def place(text: str) -> str:
        return places[BlobRef.parse(text)] if is_blob_ref(text) else text

    return with_files(graph, place)


def with_files(graph: JobGraph, change: Callable[[str], str]) -> JobGraph:
    artifacts = Artifacts(
        **{name: tuple(change(t) for t in getattr(graph.settings.artifacts, name)) for name in Artifacts.model_fields}
    )
    vertices = tuple(
        v.model_copy(update={"file": change(v.file)}) if isinstance(v, Script) else v for v in graph.vertices
    )
    # Made anew: a copy would carry the cached properties of the old graph along.
    fields = {name: getattr(graph, name) for name in JobGraph.model_fields}
    settings = graph.settings.model_copy(update={"artifacts": artifacts})
    return JobGraph.model_construct(**{**fields, "settings": settings, "vertices": vertices})
