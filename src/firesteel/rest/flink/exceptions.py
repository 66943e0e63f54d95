"""`/jobs/:job/exceptions`: why attempts failed, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

from fastapi import APIRouter, Query
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.failure import FailureKind
from firesteel.rest.answers import answer
from firesteel.rest.context import CallerParam, Context
from firesteel.rest.flink.contract import ERRORS, bad_query
from firesteel.rest.flink.details import failure_words
from firesteel.rest.flink.reading import read_job
from firesteel.rest.flink.states import ms
from firesteel.rest.flink.view import UNASSIGNED, JobView
from firesteel.rest.params import JobIdParam

DEFAULT_MOST = 20
_OF_A_PROGRAM = {k.value for k in (FailureKind.USER_CODE, FailureKind.IMPORT, FailureKind.DATA, FailureKind.EXIT_CODE)}


class ExceptionInfo(TypedDict):
    exceptionName: str
    stacktrace: str
    timestamp: int
    failureLabels: dict[str, str]
    taskName: NotRequired[str]
    endpoint: NotRequired[str]
    taskManagerId: NotRequired[str]
    concurrentExceptions: NotRequired[list[Any]]


class ExceptionHistory(TypedDict):
    entries: list[ExceptionInfo]
    truncated: bool


class ExceptionsMessage(TypedDict):
    exceptionHistory: ExceptionHistory


def render_exceptions(job: JobView, most: int, labels: Mapping[str, str]) -> ExceptionsMessage:
    """At most `most` failures, of those that have all of `labels`."""
    matching = [e for e in job.exceptions if labels.items() <= e["labels"].items()]
    return {
        "exceptionHistory": {
            "entries": [_entry(job, e) for e in matching[:most]],
            "truncated": len(matching) > most,
        }
    }


def _entry(job: JobView, failure: Mapping[str, Any]) -> ExceptionInfo:
    name, _, stack_trace = failure_words(failure)
    entry: ExceptionInfo = {
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
    """Where it failed. Whatever the code of a program raises is the program's; what became of its process is not."""
    if failure["vertex"]:
        return str(failure["vertex"])
    if failure["kind"] in _OF_A_PROGRAM:
        return next((v.name for v in job.vertices if v.data["kind"] == "script"), None)
    return None


def parse_labels(text: str | None) -> dict[str, str]:
    """`key:value` pairs, with commas between them."""
    labels: dict[str, str] = {}
    for pair in filter(None, (text or "").split(",")):
        key, colon, value = pair.partition(":")
        if not (key and colon and value):
            raise bad_query("failureLabelFilter", pair)
        labels[key] = value
    return labels


router = APIRouter(tags=["jobs"], responses=ERRORS)


@router.get("/jobs/{jobid}/exceptions", response_model=ExceptionsMessage)
async def exceptions(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    most: Annotated[int, Query(alias="maxExceptions", ge=0, le=2**31 - 1)] = DEFAULT_MOST,
    labels: Annotated[
        str | None, Query(alias="failureLabelFilter", description="`key:value`, several with commas")
    ] = None,
) -> Response:
    """Failures of the job's attempts, newest first, with the labels that the enrichers gave them."""
    wanted = parse_labels(labels)
    job = await read_job(context, caller, job_id)
    return answer(render_exceptions(job, most, wanted))
