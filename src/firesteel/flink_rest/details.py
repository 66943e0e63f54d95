"""`/jobs/:job` and its small resources: everything about one job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from firesteel.flink_rest.io_messages import io_message
from firesteel.flink_rest.plan import render_plan
from firesteel.flink_rest.serialized_throwable import failure_cause
from firesteel.flink_rest.view import JobView, VertexView
from firesteel.masking import mask, mask_text
from firesteel.rest.answers import Json
from firesteel.rest.states import counts
from firesteel.status import JobStatus

IN_PROGRESS: Json = {"id": "IN_PROGRESS"}
COMPLETED: Json = {"id": "COMPLETED"}

_APPLICATION_STATUS = {
    JobStatus.FINISHED: "SUCCEEDED",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELED: "CANCELED",
}


def render_job(job: JobView) -> Json:
    return {
        "jid": job.job_id,
        # A job that was submitted alone is its own application.
        "application-id": job.job_id,
        "name": job.name,
        "isStoppable": False,
        "state": job.status.value,
        "job-type": job.job_type,
        "schedulerType": "Default",
        "start-time": job.start,
        "end-time": job.end,
        "duration": job.duration,
        "maxParallelism": -1,
        "now": job.now,
        "timestamps": job.timestamps,
        "vertices": [_vertex(v) for v in job.vertices],
        "status-counts": counts(v.state for v in job.vertices),
        "plan": render_plan(job),
        "pending-operators": 0,
    }


def _vertex(vertex: VertexView) -> Json:
    execution = vertex.execution
    return {
        "id": vertex.id,
        # All vertices of a job share its one slot.
        "slotSharingGroupId": vertex.job.job_id,
        "name": vertex.name,
        "maxParallelism": vertex.parallelism,
        "parallelism": vertex.parallelism,
        "status": vertex.state,
        "start-time": execution.start,
        "end-time": execution.end,
        "duration": execution.duration(vertex.job.now),
        "tasks": counts([vertex.state]),
        "metrics": io_message(vertex.io),
    }


def render_config(job: JobView) -> Json:
    settings: Mapping[str, Any] = job.graph.get("settings") or {}
    return {
        "jid": job.job_id,
        "name": job.name,
        "execution-config": {
            "restart-strategy": restart_words(settings.get("restart") or {}),
            "job-parallelism": job.parallelism or 1,
            "object-reuse-mode": False,
            "user-config": {str(k): str(v) for k, v in mask(settings.get("spark") or {}).items()},
        },
    }


def restart_words(restart: Mapping[str, Any]) -> str:
    """The restart strategy in words."""
    match restart.get("type", "none"):
        case "none":
            return "Restart deactivated."
        case "fixed-delay":
            return f"Restart with fixed delay ({restart['delay']}). #{restart['attempts']} restart attempts."
        case "exponential-delay":
            often = "forever" if restart.get("attempts") is None else f"#{restart['attempts']} restart attempts"
            delays = f"from {restart['initial_delay']} to {restart['max_delay']}"
            return f"Restart with exponential delay ({delays}, times {restart['multiplier']:g}), {often}."
        case _:
            rate = f"{restart['max_failures']} failures in {restart['interval']}"
            return f"Restart with failure rate (at most {rate}) and delay ({restart['delay']})."


def render_execution_result(job: JobView) -> Json:
    if not job.status.terminal:
        return {"status": IN_PROGRESS}
    result: Json = {
        "id": job.job_id,
        "name": job.name,
        "application-status": _APPLICATION_STATUS[job.status],
        "accumulator-results": {},
        "net-runtime": job.duration,
        "application-id": job.job_id,
        "start-time": job.start,
        "end-time": job.end,
    }
    if (failure := job.data["failure"]) is not None:
        result["failure-cause"] = failure_cause(*failure_words(failure))
    return {"status": COMPLETED, "job-execution-result": result}


def failure_words(failure: Mapping[str, Any]) -> tuple[str, str, str]:
    """Class, message and stack trace of a failure, with secrets masked."""
    error_class = failure.get("root_cause") or failure.get("error_class") or failure["kind"]
    where = f" in vertex '{failure['vertex']}'" if failure.get("vertex") else ""
    said = _without_class(str(failure["message"]), str(error_class), str(failure["kind"]))
    message = mask_text(f"{failure['kind']}{where}: {said}")
    traceback = mask_text(str(failure.get("traceback") or ""))
    # Without a class of Spark, the kind is used as the class.
    first = message if error_class == failure["kind"] else f"{error_class}: {message}"
    return str(error_class), message, f"{first}\n{traceback}"


_WRAPPED = re.compile(r"^(?:\([\w.$]+\)\s*)?(?:\[STREAM_FAILED\]\s*)?")
"""The prefixes that PySpark and failed queries put before an error."""


def _without_class(message: str, error_class: str, kind: str) -> str:
    """The message without a prefix that is shown anyway."""
    message = message.removeprefix(f"{kind}: ")
    bare = _WRAPPED.sub("", message, count=1)
    for word in (f"[{error_class}]", f"{error_class}:"):
        if bare.startswith(word):
            return bare.removeprefix(word).lstrip()
    return message
