"""The ExecutionGraph: one job as it is shown to users, running or ended, as plain JSON.

A pure function of what is known: the submission, the JobMaster's state, what the driver of the last attempt reports,
and the result once there is one. The archive of an ended job is the last value of this function (I26).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from firesteel.jobgraph.model import Sink, inputs_of
from firesteel.jobmaster.machine import ExceptionEntry, JobState
from firesteel.jobmaster.past import attempts_make_sense, checkpoints_make_sense
from firesteel.jobmaster.story import Chapter, Story, story_makes_sense
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult


def execution_graph(
    submission: Submission,
    state: JobState,
    progress: Mapping[str, Any],
    *,
    now: float,
    result: JobResult | None = None,
) -> dict[str, Any]:
    graph = submission.graph
    status = result.status if result else state.status
    ended = result.ended_at if result else None
    progress = state.past.with_progress(state.attempt, progress)
    checkpoints = progress.pop("checkpoints", {})
    return {
        "job_id": submission.job_id,
        "name": graph.name,
        "mode": graph.mode.value,
        "kind": graph.job_kind,
        "owner": submission.owner,
        "status": status.value,
        "submitted_at": submission.submitted_at,
        "ended_at": ended,
        "duration": (ended or now) - submission.submitted_at,
        "timestamps": {"INITIALIZING": submission.submitted_at, **state.timestamps},
        "priority": submission.priority,
        "parallelism": graph.parallelism,
        "attempt": state.attempt,
        "restarts": state.restarts,
        "engine_id": state.engine_id,
        "endpoint": state.endpoint,
        "started_at": state.started_at,
        "attempts": [asdict(a) for a in state.past.attempts],
        "story": _story(submission, state, result).to_json(),
        "stopped": state.stopped or bool(result and result.stopped),
        "checkpoint": result.checkpoint if result else "",
        "resumes": submission.resumes,
        "failure": result.failure.to_json() if result and result.failure else None,
        "exceptions": [_exception(e) for e in reversed(state.exceptions)],
        "progress": progress,
        "checkpoints": checkpoints,
        "rows": dict(progress.get("rows") or progress.get("vertices") or {}),
        "graph": graph.model_dump(mode="json", by_alias=True, exclude_none=True),
        "vertices": [
            {
                "name": v.name,
                "kind": v.kind,
                "description": v.description,
                "inputs": list(inputs_of(v)),
                "parallelism": v.parallelism,
                "status": _vertex_status(status, progress, v.name, isinstance(v, Sink)),
                "progress": dict((progress.get("sinks") or {}).get(v.name) or {}),
            }
            for v in graph.vertices
        ],
    }


def bare(result: JobResult) -> dict[str, Any]:
    """The execution graph of a job of which only the result is known."""
    return {
        "job_id": result.job_id,
        "name": result.name,
        "mode": result.mode,
        "kind": result.kind or result.mode,
        "owner": result.owner,
        "status": result.status.value,
        "submitted_at": result.submitted_at,
        "ended_at": result.ended_at,
        "duration": result.ended_at - result.submitted_at,
        "attempt": result.attempts,
        "restarts": result.restarts,
        "stopped": result.stopped,
        "checkpoint": result.checkpoint,
        "resumes": result.resumes,
        "failure": result.failure.to_json() if result.failure else None,
        "timestamps": {},
        "exceptions": [],
        "progress": {},
        "checkpoints": {},
        "attempts": [],
        "story": Story((_end(result, 0),)).to_json(),
        "rows": {},
        "vertices": [],
    }


def _story(submission: Submission, state: JobState, result: JobResult | None) -> Story:
    """From the submission, which came before any JobMaster, to the result, which a later leader may have found."""
    story = state.story
    first = Chapter(submission.submitted_at, JobStatus.INITIALIZING, "submitted", 0, 0)
    chapters = story.chapters if story.left_out else (first, *story.chapters)
    if result is not None and (story.last is None or not story.last.status.terminal):
        chapters = (*chapters, _end(result, state.epoch))
    return Story(chapters, story.left_out)


def _end(result: JobResult, epoch: int) -> Chapter:
    return Chapter(result.ended_at, result.status, "its result was found", result.attempts, epoch)


def _exception(entry: ExceptionEntry) -> dict[str, Any]:
    return {
        "at": entry.at,
        "attempt": entry.attempt,
        "vertex": entry.failure.vertex,
        "kind": entry.failure.kind.value,
        "message": entry.failure.message,
        "root_cause": entry.failure.error_class,
        "traceback": entry.failure.traceback,
        "labels": dict(entry.labels),
    }


def _vertex_status(status: JobStatus, progress: Mapping[str, Any], name: str, is_sink: bool) -> str:
    """A vertex is a part of its sinks' plans: it is where the job is, except that a sink may be done before the others."""
    if is_sink and not status.terminal:
        told = (progress.get("sinks") or {}).get(name) or {}
        if told.get("state") in ("written", "committed", "already-committed", "ignored", "ended"):
            return JobStatus.FINISHED.value
    return status.value


_SHAPE: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "mode": (str,),
    "owner": (str,),
    "submitted_at": (int, float),
    "ended_at": (int, float),
    "duration": (int, float),
    "attempt": (int,),
    "restarts": (int,),
    "timestamps": (dict,),
    "exceptions": (list,),
    "progress": (dict,),
    "vertices": (list,),
}


def makes_sense(data: Mapping[str, Any], job_id: str) -> bool:
    """Whether details of an ended job that were read from a disk are what `execution_graph` writes (S17)."""
    if data.get("job_id") != job_id or data.get("status") not in {s.value for s in JobStatus if s.terminal}:
        return False
    if not all(isinstance(data.get(key), kinds) for key, kinds in _SHAPE.items()):
        return False
    vertices, exceptions = data["vertices"], data["exceptions"]
    return (
        all(
            isinstance(v, dict) and isinstance(v.get("name"), str) and isinstance(v.get("status"), str)
            for v in vertices
        )
        and all(isinstance(e, dict) and isinstance(e.get("at"), int | float) for e in exceptions)
        and all(isinstance(t, int | float) for t in data["timestamps"].values())
        and isinstance(data.get("graph", {}), dict)
        and isinstance(data["progress"].get("sinks", {}), dict)
        and attempts_make_sense(data.get("attempts", []))
        and checkpoints_make_sense(data.get("checkpoints", {}))
        and ("story" not in data or story_makes_sense(data["story"]))
    )
