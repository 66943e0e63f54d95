"""`/jobs/:job/exceptions`: why attempts failed, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firesteel.failure import FailureKind
from firesteel.flink_rest.contract import bad_query
from firesteel.flink_rest.details import failure_words
from firesteel.flink_rest.view import UNASSIGNED, JobView
from firesteel.rest.answers import Json
from firesteel.rest.states import ms

DEFAULT_MOST = 20
_OF_A_PROGRAM = {k.value for k in (FailureKind.USER_CODE, FailureKind.IMPORT, FailureKind.DATA, FailureKind.EXIT_CODE)}


def render_exceptions(job: JobView, most: int, labels: Mapping[str, str]) -> Json:
    """At most `most` failures that have all of `labels`."""
    matching = [e for e in job.exceptions if labels.items() <= e["labels"].items()]
    return {
        "exceptionHistory": {
            "entries": [_entry(job, e) for e in matching[:most]],
            "truncated": len(matching) > most,
        }
    }


def _entry(job: JobView, failure: Mapping[str, Any]) -> Json:
    name, _, stack_trace = failure_words(failure)
    entry: Json = {
        "exceptionName": name,
        "stacktrace": stack_trace,
        "timestamp": ms(failure["at"]),
        "failureLabels": dict(failure["labels"]),
        "concurrentExceptions": [],
    }
    attempt = max(0, failure["attempt"] - 1)
    if (vertex := _vertex(job, failure)) is not None:
        entry["taskName"] = f"{vertex} (1/1) - execution #{attempt}"
    engine_id, endpoint = job.location(attempt) if failure["attempt"] else (UNASSIGNED, UNASSIGNED)
    if vertex is not None or engine_id != UNASSIGNED:
        entry["endpoint"] = endpoint
        entry["taskManagerId"] = engine_id
    return entry


def _vertex(job: JobView, failure: Mapping[str, Any]) -> str | None:
    """The vertex that failed. Errors raised by a program's code belong to the program; the death of its process does not."""
    if failure["vertex"]:
        return str(failure["vertex"])
    if failure["kind"] in _OF_A_PROGRAM:
        return next((v.name for v in job.vertices if v.data["kind"] == "script"), None)
    return None


def parse_labels(text: str | None) -> dict[str, str]:
    """Parse `key:value` pairs, separated by commas."""
    labels: dict[str, str] = {}
    for pair in filter(None, (text or "").split(",")):
        key, colon, value = pair.partition(":")
        if not (key and colon and value):
            raise bad_query("failureLabelFilter", pair)
        labels[key] = value
    return labels
