"""What is said of a stream that has ended: where its state is, and the command that goes on from it."""

from __future__ import annotations

from firesteel.client.model import JobResult
from firesteel.status import JobStatus


def going_on(result: JobResult) -> list[str]:
    """A line or two; none for jobs that cannot be gone on with, which batch jobs and scripts never can."""
    if not result.streaming:
        return []
    lines = []
    if result.savepoint:
        lines.append(f"savepoint: {result.savepoint}")
    if result.checkpoint:
        lines.append(f"checkpoint: {result.checkpoint}")
    if result.resumable:
        command = f"firesteel resume {result.job_id[:8]}"
        fixed = f"; with a corrected pipeline: {command} PIPELINE" if result.status is JobStatus.FAILED else ""
        lines.append(f"go on with: {command}{fixed}")
    elif result.attempts:
        lines.append("its checkpoint was not kept; nothing can go on from it")
    return lines
