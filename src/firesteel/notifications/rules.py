"""What is worth telling about a job, and to whom. Pure.

Events have ids that follow from the job and the occasion, so every leader that notices the same thing sends the same event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from firesteel.attempts.committed import Committed
from firesteel.errors import InvalidConfigError, Problem
from firesteel.jobmaster.measures import stream_measures
from firesteel.masking import mask, mask_text
from firesteel.metrics.declarations import LAST_BATCH_AGE, WATERMARK_LAG
from firesteel.status import JobStatus

_LONGEST = 2000


class Occasion(StrEnum):
    FAILED = "failed"
    FINISHED = "finished"
    CANCELED = "canceled"
    RESTART_LOOP = "restart-loop"
    LAG = "lag"
    MISSED_BATCH = "missed-batch"
    TEST = "test"


ENDS = {
    JobStatus.FAILED: Occasion.FAILED,
    JobStatus.FINISHED: Occasion.FINISHED,
    JobStatus.CANCELED: Occasion.CANCELED,
}


def occasions(words: Iterable[str]) -> list[Occasion]:
    """Raises InvalidConfigError for a word that is none."""
    allowed = [o.value for o in Occasion if o is not Occasion.TEST]
    wrong = [w for w in words if w not in allowed]
    if wrong:
        fix = f"write some of {', '.join(allowed)}"
        raise InvalidConfigError(
            [Problem(f"'{w}' is nothing that is told", fix, field="notifications.on") for w in wrong]
        )
    return [Occasion(w) for w in words]


@dataclass(frozen=True, slots=True)
class NotificationLimits:
    restarts: int = 3
    restart_window: float = 600.0
    lag: float = 0.0
    """Seconds that the watermark may be behind; 0: any."""
    batch: float = 0.0
    """Seconds without a committed batch; 0: any."""


@dataclass(frozen=True, slots=True)
class Subscribers:
    """Who is told of what: rules of the cluster, and targets that jobs may name."""

    cluster: Mapping[Occasion, tuple[str, ...]]
    for_jobs: frozenset[str]

    def of(self, occasion: Occasion, job: Mapping[str, Any]) -> list[str]:
        """The targets for an occasion of a job, each once."""
        named = [
            str(rule.get("to"))
            for rule in _rules(job)
            if occasion.value in (rule.get("on") or ()) and rule.get("to") in self.for_jobs
        ]
        return list(dict.fromkeys([*self.cluster.get(occasion, ()), *named]))


def _rules(job: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    settings = (job.get("graph") or {}).get("settings") or {}
    return [r for r in settings.get("notify") or () if isinstance(r, dict)]


def event(
    occasion: Occasion, number: int | str, at: float, job: Mapping[str, Any], text: str, cluster: str
) -> dict[str, Any]:
    """The document that targets get, without secrets."""
    failure = job.get("failure")
    return {
        "id": f"{job['job_id']}.{occasion.value}.{number}",
        "event": occasion.value,
        "at": at,
        "cluster": cluster,
        "message": mask_text(text)[:_LONGEST],
        "job": {
            "id": job["job_id"],
            "name": mask_text(str(job["name"])),
            "owner": job.get("owner", ""),
            "status": job["status"],
            "attempt": job.get("attempt", 0),
        },
        "failure": mask(
            {
                "kind": failure.get("kind"),
                "vertex": failure.get("vertex"),
                "message": str(failure.get("message"))[:_LONGEST],
            }
        )
        if isinstance(failure, dict)
        else None,
    }


def of_end(job: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    status = JobStatus(job["status"])
    failure = job.get("failure")
    why = f": {failure.get('message')}" if isinstance(failure, dict) else ""
    text = f"Job {job['name']} has {_WORDS[status]}{why}"
    return event(ENDS[status], "end", job.get("ended_at") or 0.0, job, text, cluster)


_WORDS = {JobStatus.FAILED: "failed", JobStatus.FINISHED: "finished", JobStatus.CANCELED: "been canceled"}


def of_restarts(job: Mapping[str, Any], limits: NotificationLimits, now: float, cluster: str) -> dict[str, Any] | None:
    """Told each time that the job has been restarted `limits.restarts` times more within the window."""
    chapters = (job.get("story") or {}).get("chapters") or []
    recent = [
        c for c in chapters if c["status"] == JobStatus.RESTARTING.value and c["at"] >= now - limits.restart_window
    ]
    restarts = job.get("restarts") or len(recent)
    if len(recent) < limits.restarts or restarts % limits.restarts:
        return None
    minutes = limits.restart_window / 60
    text = f"Job {job['name']} was restarted {len(recent)} times within {minutes:g} min"
    return event(Occasion.RESTART_LOOP, restarts, now, job, text, cluster)


def of_stream(job: Mapping[str, Any], limits: NotificationLimits, now: float, cluster: str) -> list[dict[str, Any]]:
    """What is wrong with a running stream now; each occasion is told once for every stretch of its own limit."""
    found = []
    if job.get("status") != JobStatus.RUNNING or job.get("mode") != "streaming":
        return []
    logs: Mapping[str, Any] = job.get("checkpoints") or {}
    sinks: Mapping[str, Any] = (job.get("progress") or {}).get("sinks") or {}
    for sink, told in sinks.items():
        log = Committed.from_json(logs[sink]) if logs.get(sink) else Committed()
        measured = stream_measures(told, log, now)
        lag, age = measured.get(WATERMARK_LAG), measured.get(LAST_BATCH_AGE)
        if limits.lag and lag is not None and lag > limits.lag:
            text = f"Job {job['name']}: the watermark of {sink} is {lag:.0f} s behind"
            found.append(event(Occasion.LAG, f"{sink}.{_doublings(lag, limits.lag)}", now, job, text, cluster))
        if limits.batch and age is not None and age > limits.batch:
            text = f"Job {job['name']}: {sink} has committed no batch for {age:.0f} s"
            number = f"{sink}.{log.last}.{_doublings(age, limits.batch)}"
            found.append(event(Occasion.MISSED_BATCH, number, now, job, text, cluster))
    return found


def _doublings(value: float, limit: float) -> int:
    """How often the limit was doubled to get there: it is told again when it has become twice as bad."""
    return int(value / limit).bit_length()
