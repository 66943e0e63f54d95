"""What an ended job leaves outside of our stores, and who removes it."""

from __future__ import annotations

import asyncio
import logging
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import fsspec

from firesteel.config import Configuration
from firesteel.driver.checkpoints import location_of
from firesteel.errors import EnvironmentNotReadyError, FiresteelError, SavepointError
from firesteel.jobgraph.model import Mode
from firesteel.jobmaster.sandboxing import sandbox_policy
from firesteel.sandbox.owners import job_directory
from firesteel.sandbox.thread import confined
from firesteel.savepoint.manifest import SavepointRequest
from firesteel.savepoint.retained import TRIGGER, retain
from firesteel.sinks.graph import clear
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult

logger = logging.getLogger(__name__)


class OutputCleaner:
    """Staging and commit records of batch sinks, checkpoints of streaming ones."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._checkpoints = configuration.state.checkpoints_dir.rstrip("/")
        # Of its own: an object store that hangs delays clean-ups, not submissions.
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="outputs")

    async def clear(self, submission: Submission, result: JobResult) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._clear, submission, result)

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    def _clear(self, submission: Submission, result: JobResult) -> None:
        """What the sinks name is opened within what the job's owner may open, wherever links lead by now."""
        policy = sandbox_policy(self._configuration)
        sandbox = policy.task(submission.owner) if policy is not None else None
        confined(sandbox, partial(self._clear_within, submission, result, is_confined=sandbox is not None))

    def _clear_within(self, submission: Submission, result: JobResult, *, is_confined: bool) -> None:
        finished = result.status is JobStatus.FINISHED
        left = [
            f"'{s}': {e}"
            for s, e in clear(submission.graph, submission.job_id, finished=finished)
            # Where its owner may not write, no attempt has left anything.
            if not (is_confined and isinstance(e, PermissionError))
        ]
        if left:
            raise FiresteelError(
                f"staging of job {submission.job_id} could not be removed: sink {'; sink '.join(left)}"
            )
        if result.checkpoint:
            self._retain(submission, result.checkpoint)
        elif submission.graph.mode is Mode.STREAMING:
            remove_tree(job_directory(self._checkpoints, submission.owner, submission.job_id))

    def _retain(self, submission: Submission, directory: str) -> None:
        try:
            retain(directory, retained_request(submission, directory))
        except (SavepointError, EnvironmentNotReadyError) as error:
            # There for Spark, and for a job whose sinks name it as their checkpointLocation.
            logger.warning("no job can be started from the checkpoint of job %s: %s", submission.job_id, error)


def remove_tree(location: str) -> None:
    """Remove a directory, wherever it is; one that is not there is fine."""
    if "://" not in location:
        shutil.rmtree(Path(location), ignore_errors=False) if Path(location).exists() else None
        return
    fs, path = fsspec.core.url_to_fs(location)
    if fs.exists(path):
        fs.rm(path, recursive=True)


def retained_request(submission: Submission, directory: str) -> SavepointRequest:
    """What the checkpoint of an ended job, in `directory`, is the checkpoint of."""
    graph = submission.graph
    checkpoints = {s.name: location_of(s, directory) for s in graph.sinks}
    return SavepointRequest.of(graph, submission.job_id, TRIGGER, checkpoints)
