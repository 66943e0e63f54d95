"""`GET /jobs/{jobid}/vertices/{vertexid}/log`: the driver's events about one vertex, one per line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.responses import PlainTextResponse, Response

from firesteel.attempts.events import LIMIT_BYTES, previous
from firesteel.masking import mask_text
from firesteel.rest.context import CallerParam, Context
from firesteel.rest.errors import HttpError
from firesteel.rest.logs import open_regular
from firesteel.rest.native.logs import TEXT, TEXT_ANSWERS, last_attempt
from firesteel.rest.params import JobIdParam
from firesteel.types import JobID, vertex_id

router = APIRouter(tags=["logs"])

LONGEST_VALUE = 2000
VertexParam = Annotated[
    str, Path(alias="vertexid", pattern=r"^[A-Za-z0-9_]{1,128}$", description="The id of the vertex, or its name.")
]


@router.get(
    "/jobs/{jobid}/vertices/{vertexid}/log",
    response_class=PlainTextResponse,
    responses=TEXT_ANSWERS,
    summary="The driver's events about a vertex",
)
async def vertex_log(context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexParam) -> Response:
    """The events of the last attempt about the vertex; for a long-running stream, only the recent ones."""
    job = await context.gateway.request_job(caller.read(job_id))
    name = vertex_name(job, vertex)
    events = context.logs.path(job_id, await last_attempt(context, job_id), "events")
    assert events is not None
    return Response(await asyncio.to_thread(vertex_text, events, name), headers=TEXT)


def vertex_name(job: Mapping[str, Any], wanted: str) -> str:
    """The vertex of a job by its name or its id. Raises HttpError 404."""
    names: list[str] = [v["name"] for v in job["vertices"]]
    if wanted in names:
        return wanted
    found = next((n for n in names if vertex_id(n) == wanted.lower()), None)
    if found is None:
        raise HttpError(404, f"Job {JobID(job['job_id'])} has no vertex of that name or id.")
    return found


def vertex_text(events: FilePath, vertex: str) -> str:
    """The lines about one vertex in an event log and in the one before it. Blocks."""
    return "".join(
        f"{line}\n"
        for path in (previous(events), events)
        for event in _events(path)
        if (line := line_of(event, vertex)) is not None
    )


def line_of(event: Mapping[str, Any], vertex: str) -> str | None:
    """The event as a line about the vertex; None when it is about another one."""
    failure = event.get("failure")
    rows = event.get("vertices")
    if event.get("vertex") == vertex:
        told = {k: v for k, v in event.items() if k not in ("t", "type", "vertex", "vertices")}
    elif isinstance(rows, dict) and vertex in rows:
        told = {"sink": event.get("vertex"), "batch": event.get("batch"), "rows": rows[vertex]}
    elif isinstance(failure, dict) and failure.get("vertex") == vertex:
        told = {k: failure.get(k) for k in ("kind", "error_class", "message", "traceback") if failure.get(k)}
    elif event.get("type") == "note" and f"'{vertex}'" in str(event.get("text")):
        told = {"text": event["text"]}
    else:
        return None
    said = " ".join(f"{k}={_value(v)}" for k, v in told.items() if v is not None)
    return mask_text(f"{_time(event.get('t'))} {event.get('type')} {said}".rstrip())


def _events(path: FilePath) -> Iterator[dict[str, Any]]:
    try:
        with open_regular(path) as f:
            text = f.read(2 * LIMIT_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue  # truncated by a kill, or not written by the driver
        if isinstance(event, dict):
            yield event


def _value(value: Any) -> str:
    """Any value on one line; words without quotes."""
    if isinstance(value, str) and value.replace("-", "").replace("_", "").replace(".", "").isalnum():
        return value
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def _time(t: Any) -> str:
    try:
        return datetime.fromtimestamp(float(t), UTC).isoformat(timespec="milliseconds")
    except (TypeError, ValueError, OverflowError, OSError):
        return "-"
