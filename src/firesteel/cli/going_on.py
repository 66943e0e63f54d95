"""The lines shown for a stream that has ended: where its state is, and the command that resumes from it."""

from __future__ import annotations

from firesteel.client.model import JobResult
from firesteel.failure import NO_SAVEPOINT
from firesteel.status import JobStatus


def going_on(result: JobResult, command: str = "", *, option: str = "") -> list[str]:
    """Return a few lines; none for jobs that cannot be resumed, such as batch jobs and scripts.

    Args:
        command: the command that resumes it, where it is not `firesteel resume`.
        option: what a command needs to reach the cluster.
    """
    if not result.streaming:
        return []
    lines = []
    if result.savepoint:
        lines.append(f"savepoint: {result.savepoint}")
    if result.checkpoint:
        lines.append(f"checkpoint: {result.checkpoint}")
    if result.resumable:
        resume = f"firesteel resume{option} {result.job_id[:8]}"
        corrected = f"; with a changed pipeline: {resume} PIPELINE" if result.status is JobStatus.FAILED else ""
        lines.append(f"resume with: {command or resume + corrected}")
    elif result.attempts and not (result.failure and result.failure.error_class == NO_SAVEPOINT):
        lines.append("its checkpoint was not kept, so it cannot be resumed")
    return lines
