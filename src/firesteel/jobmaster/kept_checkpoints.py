"""Which checkpoints outlive their job, and where they are. Pure."""

from __future__ import annotations

from firesteel.config import Configuration
from firesteel.failure import NO_SAVEPOINT
from firesteel.jobgraph.model import Mode
from firesteel.jobmaster.machine import JobState
from firesteel.sandbox.owners import job_directory
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.types import JobID


def kept_checkpoint(configuration: Configuration, submission: Submission, state: JobState, result: JobResult) -> str:
    """Where the checkpoint of a job that ended with `result` is kept; empty when it is not, or the job has none (I30)."""
    graph = submission.graph
    if graph.mode is not Mode.STREAMING or graph.script is not None or not result.attempts:
        return ""
    if result.failure is not None and result.failure.error_class == NO_SAVEPOINT:
        return ""  # it never had one
    retention = graph.settings.checkpoint_retention or configuration.checkpointing.retention
    keeps = retention.keeps(result.status, stopped=result.stopped)
    if state.keep_checkpoint is not None and result.status is not JobStatus.FAILED and not result.stopped:
        keeps = state.keep_checkpoint
    return checkpoint_directory(configuration, submission.owner, result.job_id) if keeps else ""


def checkpoint_directory(configuration: Configuration, owner: str, job_id: JobID) -> str:
    return job_directory(configuration.state.checkpoints_dir, owner, job_id)
