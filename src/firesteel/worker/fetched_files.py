"""The uploaded files of jobs, on a worker: fetched from a node by their digests, checked, and kept within a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx

from firesteel.blob.keys import BlobKey
from firesteel.blob.store import BlobStore
from firesteel.errors import BlobNotFoundError, FiresteelError
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.artifacts import JobFiles, blob_refs
from firesteel.types import JobID

OWNER = "worker"
"""All files here are the worker's; whose they are is known to the nodes, which let it have those."""
KEEP_SECONDS = 3600.0

Fetch = Callable[[BlobKey], Awaitable[httpx.Response]]
"""Begin to download a file; the response is streamed and closed by the caller."""


class FetchedFiles(JobFiles):
    """Has the files of a job on this host's disk before its driver needs them."""

    def __init__(self, blobs: BlobStore, root: Path, fetch: Fetch) -> None:
        super().__init__(blobs, root)
        self._fetch = fetch
        self._fetching: dict[BlobKey, asyncio.Task[None]] = {}

    async def localized(self, job_id: JobID, graph: JobGraph) -> JobGraph:
        """See JobFiles. Each file is downloaded once, however many jobs want it at the same time."""
        await asyncio.gather(*(self._have(ref.key) for ref in blob_refs(graph)))
        return await super().localized(job_id, graph)

    async def _have(self, key: BlobKey) -> None:
        try:
            await self.blobs.touch([key])
            return
        except BlobNotFoundError:
            pass
        task = self._fetching.get(key)
        if task is None:
            task = self._fetching[key] = asyncio.get_running_loop().create_task(self._download(key))
            task.add_done_callback(lambda _: self._fetching.pop(key, None))
        await asyncio.shield(task)

    async def _download(self, key: BlobKey) -> None:
        # Copies that jobs need are in their own directories: what lies here longer is only for the next job.
        await self.blobs.collect((), grace=KEEP_SECONDS)
        try:
            response = await self._fetch(key)
            try:
                if response.status_code == 404:
                    raise BlobNotFoundError(f"no node has the file {key}; upload it again")
                if response.status_code != 200:
                    raise FiresteelError(
                        f"cannot fetch the file {key}: a node answered with HTTP {response.status_code}"
                    )
                # Verified while it is stored: other bytes than those of the digest are refused (I17).
                await self.blobs.put(_bytes(response), owner=OWNER, expected=key)
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise FiresteelError(f"cannot fetch the file {key}: {error or type(error).__name__}") from error


async def _bytes(response: httpx.Response) -> AsyncIterator[bytes]:
    async for chunk in response.aiter_bytes():
        yield chunk
