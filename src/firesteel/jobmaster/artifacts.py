"""The uploaded files of a job, and their copies on this machine's disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from firesteel.blob.keys import BlobRef, is_blob_ref
from firesteel.blob.store import BlobStore
from firesteel.jobgraph.files import files_of, with_files
from firesteel.jobgraph.model import JobGraph
from firesteel.types import JobID


class JobFiles:
    """Copies the files of jobs to where their drivers find them, `<root>/<job id>/artifacts`, until the job is
    removed."""

    def __init__(self, blobs: BlobStore, root: Path) -> None:
        self.blobs = blobs
        self._root = root

    async def localized(self, job_id: JobID, graph: JobGraph) -> JobGraph:
        """The graph with its files on this disk. A repeated call finds them there.

        Raises BlobNotFoundError when one is gone, or damaged.
        """
        directory = self._root / job_id / "artifacts"
        return localized(graph, {r: str(await self.blobs.materialize(r, directory)) for r in blob_refs(graph)})


def blob_refs(graph: JobGraph) -> list[BlobRef]:
    """The uploaded files that the graph refers to. Raises ValueError for a malformed reference."""
    return [BlobRef.parse(text) for text in dict.fromkeys(f.text for f in files_of(graph)) if is_blob_ref(text)]


def localized(graph: JobGraph, places: Mapping[BlobRef, str]) -> JobGraph:
    """The graph with each reference replaced by the path of the file."""
    if not places:
        return graph
    local = {f.loc: places[BlobRef.parse(f.text)] for f in files_of(graph) if is_blob_ref(f.text)}
    return with_files(graph, local)
