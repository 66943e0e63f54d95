"""Which jobs may continue where others ended: no two may write to the same place from the same position. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from firesteel.config import Configuration
from firesteel.jobgraph.model import JobGraph
from firesteel.sandbox.owners import is_owner_directory
from firesteel.savepoint.naming import plain
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.types import JobID, is_job_id


def restored_from(graph: JobGraph) -> str | None:
    """The savepoint or checkpoint that a job starts from, in its usual spelling."""
    return None if graph.settings.restore is None else plain(graph.settings.restore.path)


def predecessor(configuration: Configuration, graph: JobGraph) -> JobID | None:
    """The job of this cluster whose kept checkpoint a job is to start from."""
    path = restored_from(graph)
    above, _, name = (path or "").rpartition("/")
    root = plain(configuration.state.checkpoints_dir)
    of_an_owner, _, owner = above.rpartition("/")
    there = above == root or (of_an_owner == root and is_owner_directory(owner))
    return JobID(name) if there and is_job_id(name) else None


def outputs(graph: JobGraph) -> frozenset[str]:
    """What the sinks write to. A sink without a path or table is known by its name only."""
    return frozenset(plain(s.path) if s.path else s.table or f"sink '{s.name}'" for s in graph.sinks)


def rival(submission: Submission, others: Iterable[Submission]) -> tuple[JobID, str] | None:
    """A job among `others` that continues from the same position and writes to the same output; and that output."""
    path, mine = restored_from(submission.graph), outputs(submission.graph)
    if path is None:
        return None
    for other in others:
        if other.job_id != submission.job_id and restored_from(other.graph) == path:
            for shared in sorted(mine & outputs(other.graph)):
                return other.job_id, shared
    return None


def successor(job_id: JobID, results: Iterable[JobResult]) -> JobResult | None:
    """The last job that resumed `job_id`, has ended, and can be resumed itself."""
    after = [r for r in results if r.resumes == job_id and r.checkpoint]
    return max(after, key=lambda r: r.ended_at, default=None)
