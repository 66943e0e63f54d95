"""Which checkpoints are kept when their stream has ended (I30): a table, and where the decision is made."""

from __future__ import annotations

import dataclasses

import pytest

from firesteel.config import Configuration, load_configuration
from firesteel.failure import NO_SAVEPOINT, Failure, FailureKind
from firesteel.jobgraph.model import JobGraph, NoRestart
from firesteel.jobmaster.kept_checkpoints import kept_checkpoint
from firesteel.jobmaster.machine import CancelRequested, JobState, Persist, step
from firesteel.status import CheckpointRetention, JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.types import JobID

RETAIN = CheckpointRetention.RETAIN_ON_CANCELLATION
DELETE = CheckpointRetention.DELETE_ON_CANCELLATION
NEVER = CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
OPTION = "execution.checkpointing.externalized-checkpoint-retention"
JOB = JobID("ab" * 16)
KEPT = f"/ckpt/{JOB}"


def configuration(**options: str) -> Configuration:
    overrides = {"state.checkpoints.dir": "/ckpt", **options}
    return load_configuration(overrides=overrides, environ={"HOME": "/nowhere"})


def submission(mode: str = "streaming", retention: CheckpointRetention | None = None) -> Submission:
    graph = JobGraph.model_validate(
        {
            "name": "clicks",
            "mode": mode,
            "settings": {"checkpoint_retention": retention},
            "vertices": [
                {"name": "a", "kind": "source", "format": "rate"},
                {"name": "b", "kind": "sink", "input": "a", "format": "noop"},
            ],
        }
    )
    return Submission(JOB, graph, 1.0, "digest")


def result(status: JobStatus, *, stopped: bool = False, attempts: int = 1) -> JobResult:
    return JobResult(JOB, "clicks", status, None, 1.0, 2.0, 3.0, attempts, 0, "digest", stopped=stopped)


STATE = JobState(NoRestart())


@pytest.mark.parametrize(
    ("retention", "finished", "stopped", "failed", "cancelled"),
    [
        (RETAIN, True, True, True, True),
        (DELETE, False, True, True, False),
        (NEVER, False, True, False, False),
    ],
)
def test_each_word_keeps_what_the_table_says(
    retention: CheckpointRetention, finished: bool, stopped: bool, failed: bool, cancelled: bool
) -> None:
    assert retention.keeps(JobStatus.FINISHED, stopped=False) is finished
    assert retention.keeps(JobStatus.FINISHED, stopped=True) is stopped
    assert retention.keeps(JobStatus.FAILED, stopped=False) is failed
    assert retention.keeps(JobStatus.CANCELED, stopped=False) is cancelled


def test_the_checkpoint_of_a_cancelled_stream_is_kept_unless_configured_otherwise() -> None:
    assert kept_checkpoint(configuration(), submission(), STATE, result(JobStatus.CANCELED)) == KEPT
    deleting = configuration(**{OPTION: "DELETE_ON_CANCELLATION"})
    assert kept_checkpoint(deleting, submission(), STATE, result(JobStatus.CANCELED)) == ""


def test_a_jobs_own_setting_goes_over_the_clusters() -> None:
    deleting = configuration(**{OPTION: "DELETE_ON_CANCELLATION"})
    assert kept_checkpoint(deleting, submission(retention=RETAIN), STATE, result(JobStatus.CANCELED)) == KEPT
    assert kept_checkpoint(configuration(), submission(retention=DELETE), STATE, result(JobStatus.CANCELED)) == ""


def test_what_the_one_who_cancels_says_goes_over_both() -> None:
    ended = result(JobStatus.CANCELED)
    discard = dataclasses.replace(STATE, keep_checkpoint=False)
    keep = dataclasses.replace(STATE, keep_checkpoint=True)
    assert kept_checkpoint(configuration(), submission(retention=RETAIN), discard, ended) == ""
    assert kept_checkpoint(configuration(), submission(retention=DELETE), keep, ended) == KEPT
    # A stop that was faster than the cancel needs it for its savepoint.
    assert kept_checkpoint(configuration(), submission(), discard, result(JobStatus.FINISHED, stopped=True)) == KEPT


def test_batch_jobs_and_streams_that_never_ran_have_none() -> None:
    assert kept_checkpoint(configuration(), submission("batch"), STATE, result(JobStatus.CANCELED)) == ""
    assert kept_checkpoint(configuration(), submission(), STATE, result(JobStatus.CANCELED, attempts=0)) == ""


def test_what_a_cancel_says_of_the_checkpoint_is_durable_and_the_first_counts() -> None:
    running = dataclasses.replace(STATE, status=JobStatus.RUNNING, attempt=1, deployed=True)
    state, instructions = step(running, CancelRequested(keep_checkpoint=False), 5.0)
    assert instructions[0] == Persist()
    assert JobState.of_record(NoRestart(), 16, state.record()).keep_checkpoint is False
    again, nothing = step(state, CancelRequested(keep_checkpoint=True), 6.0)
    assert (again, nothing) == (state, ())


def test_stream_that_found_no_savepoint_has_none() -> None:
    """`resume` would only look for the same savepoint again."""
    failure = Failure(FailureKind.INVALID_PIPELINE, "there is no savepoint at /x", error_class=NO_SAVEPOINT)
    ended = dataclasses.replace(result(JobStatus.FAILED), failure=failure)
    assert kept_checkpoint(configuration(), submission(), STATE, ended) == ""
    other = dataclasses.replace(failure, error_class="")
    assert kept_checkpoint(configuration(), submission(), STATE, dataclasses.replace(ended, failure=other)) == KEPT
