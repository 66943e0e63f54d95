"""What an ended job leaves outside of our stores, and who removes it."""

from __future__ import annotations

import asyncio
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec

from firesteel.config import Configuration
from firesteel.errors import FiresteelError
from firesteel.jobgraph.model import Mode
from firesteel.sinks.graph import clear
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.types import JobID


class OutputCleaner:
    """Staging and commit records of batch sinks, checkpoints of streaming ones."""

    def __init__(self, configuration: Configuration) -> None:
        self._checkpoints = configuration.state.checkpoints_dir.rstrip("/")
        # Of its own: an object store that hangs delays clean-ups, not submissions.
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="outputs")

    async def clear(self, submission: Submission, result: JobResult) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._clear, submission, result)

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    def _clear(self, submission: Submission, result: JobResult) -> None:
        finished = result.status is JobStatus.FINISHED
        left = [f"'{s}': {e}" for s, e in clear(submission.graph, submission.job_id, finished=finished)]
        if left:
            raise FiresteelError(
                f"staging of job {submission.job_id} could not be removed: sink {'; sink '.join(left)}"
            )
        # A stopped job is meant to be continued, and a failed one may be mended: their checkpoints are data.
        if submission.graph.mode is Mode.STREAMING and result.status is not JobStatus.FAILED and not result.stopped:
            remove_tree(f"{self._checkpoints}/{submission.job_id}")


def remove_tree(location: str) -> None:
    """Remove a directory, wherever it is; one that is not there is fine."""
    if "://" not in location:
        shutil.rmtree(Path(location), ignore_errors=False) if Path(location).exists() else None
        return
    fs, path = fsspec.core.url_to_fs(location)
    if fs.exists(path):
        fs.rm(path, recursive=True)


def checkpoint_directory(configuration: Configuration, job_id: JobID) -> str:
    return f"{configuration.state.checkpoints_dir.rstrip('/')}/{job_id}"
