"""Who asks in the tests of the native resources, and for which jobs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.rest.desk import Desk, submission_of

from firesteel.attempts.attempt import OUTPUT
from firesteel.config.sections import Role
from firesteel.jobgraph.admission import digest_of
from firesteel.jobgraph.model import JobGraph, NoRestart
from firesteel.jobmaster.machine import JobState
from firesteel.rest.app import TidyPaths
from firesteel.rest.security.principals import Principal
from firesteel.status import JobStatus
from firesteel.stores.job_results import JobResult
from firesteel.types import JobID

ALICE = Principal("alice's laptop", Role.OPERATOR, "alice")
BOB = Principal("bob", Role.OPERATOR, "bob")
EYE = Principal("eye", Role.VIEWER, "alice")
ONE, TWO, THREE, FOUR = (f"{n:032x}" for n in (1, 2, 3, 4))
NOBODY = "f" * 32
MARKUP = "<img src=x onerror=alert(1)>"


def plain(name: str = "etl", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "vertices": [
            {"kind": "source", "name": "orders", "format": "csv", "path": "/data/in"},
            {"kind": "sql", "name": "big", "query": "SELECT * FROM orders WHERE amount > 100"},
            {"kind": "sink", "name": "out", "input": "big", "format": "parquet", "path": "/data/out"},
        ],
        **more,
    }


def graph(name: str = "etl", **more: Any) -> JobGraph:
    data = plain(name, **more)
    said: dict[str, dict[str, Any]] = {"sql": {"inputs": ["orders"]}, "sink": {"mode": "error"}}
    data["vertices"] = [{**said.get(v["kind"], {}), **v} for v in data["vertices"]]
    return JobGraph.model_validate(data)


def put(
    desk: Desk,
    job_id: str,
    *,
    owner: str = "alice",
    status: JobStatus = JobStatus.RUNNING,
    name: str = "etl",
    job: JobGraph | None = None,
    ended_at: float | None = None,
    progress: dict[str, Any] | None = None,
) -> JobID:
    """A job in the Dispatcher."""
    job = job or graph(name)
    submission = submission_of(job, job_id, owner=owner)
    result = None
    if status.terminal:
        result = JobResult(
            job_id=JobID(job_id),
            name=job.name,
            status=status,
            failure=None,
            submitted_at=1000.0,
            started_at=1001.0,
            ended_at=2000.0 if ended_at is None else ended_at,
            attempts=1,
            restarts=0,
            digest=digest_of(job),
            owner=owner,
        )
    state = JobState(NoRestart(), attempt=1, status=status)
    return desk.gateway.add(submission, state, progress=progress, result=result)


def attempt_file(desk: Desk, job_id: str, file: str, text: str | bytes, attempt: int = 1) -> Path:
    """A file of an attempt, as a driver leaves it, or the node."""
    directory = desk.context.logs.directory(JobID(job_id), attempt)
    path = (directory if file in ("spec.json", "jvm.log", "engine.log") else directory / OUTPUT) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def attempt_events(desk: Desk, job_id: str, *events: dict[str, Any], attempt: int = 1) -> Path:
    return attempt_file(desk, job_id, "events.jsonl", "".join(f"{json.dumps(e)}\n" for e in events), attempt)


def asked_raw(desk: Desk, who: Principal, path: str) -> tuple[int, bytes]:
    """GET exactly this path; clients tidy theirs up before they send it."""
    answer: list[Any] = []

    async def ask() -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            answer.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [],
            "firesteel.principal": who,
        }
        await TidyPaths(desk.app)(scope, receive, send)

    asyncio.run(ask())
    return answer[0]["status"], b"".join(m.get("body", b"") for m in answer[1:])
