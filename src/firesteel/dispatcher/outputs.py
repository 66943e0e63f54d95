"""Removal of what an ended job leaves outside our stores."""

from __future__ import annotations

import logging

from firesteel.attempts.checkpoints import location_of
from firesteel.config import Configuration
from firesteel.errors import FiresteelError
from firesteel.jobgraph.model import Mode
from firesteel.jobgraph.modes import is_staged
from firesteel.sandbox.owners import job_directory
from firesteel.savepoint.manifest import SavepointRequest
from firesteel.savepoint.retained import TRIGGER
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.worker.errands import Errands, ErrandTookTooLongError

logger = logging.getLogger(__name__)


class OutputCleaner:
    """Removes staging and commit records of batch sinks and checkpoints of streaming ones, as the job's owner."""

    def __init__(self, configuration: Configuration, errands: Errands) -> None:
        self._errands = errands
        self._checkpoints = configuration.state.checkpoints_dir.rstrip("/")
        self._seconds = configuration.checkpointing.timeout

    async def clear(self, submission: Submission, result: JobResult) -> None:
        graph, owner = submission.graph, submission.owner
        streams = graph.mode is Mode.STREAMING
        if not streams and not any(is_staged(s) and s.path is not None for s in graph.sinks):
            return
        kept = result.checkpoint
        args = {
            "job_id": submission.job_id,
            "graph": graph.model_dump(mode="json", by_alias=True, exclude_none=True),
            "given_up": result.given_up,
            "finished": result.status is JobStatus.FINISHED,
            "removed": "" if kept or not streams else job_directory(self._checkpoints, owner, submission.job_id),
            "retained": kept,
            "request": retained_request(submission, kept).to_bytes().decode() if kept else "",
        }
        try:
            refusal = await self._errands.run_often(owner, "clean-up", args, seconds=self._seconds)
        except ErrandTookTooLongError as error:
            raise FiresteelError(
                f"the outputs of job {submission.job_id} could not be cleaned up within {self._seconds:g} s: check that the "
                "file systems of its sinks respond, or raise execution.checkpointing.timeout"
            ) from error
        if refusal:
            logger.warning("no job can be started from the checkpoint of job %s: %s", submission.job_id, refusal)


def retained_request(submission: Submission, directory: str) -> SavepointRequest:
    """Which job the checkpoint in `directory`, kept after the job's end, belongs to."""
    graph = submission.graph
    checkpoints = {s.name: location_of(s, directory) for s in graph.sinks}
    return SavepointRequest.of(graph, submission.job_id, TRIGGER, checkpoints)
