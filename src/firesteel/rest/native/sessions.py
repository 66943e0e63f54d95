"""Interactive sessions: the way from a notebook or a shell to the Spark session of its job."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.attempts.attempt import AttemptDirectory
from firesteel.config.sections import Role
from firesteel.errors import FiresteelError, JobStateError
from firesteel.rest.answers import answer
from firesteel.rest.context import CallerParam, Context
from firesteel.rest.params import JobIdParam
from firesteel.rest.security.principals import require
from firesteel.status import JobStatus

router = APIRouter(tags=["jobs"])


class SessionMessage(TypedDict):
    remote: str
    """A Spark Connect URL with the credential of the session's engine: a secret."""
    engine: str


@router.get(
    "/jobs/{jobid}/session",
    response_model=SessionMessage,
    summary="The URL of the Spark session of an interactive job",
)
async def show_session(job_id: JobIdParam, context: Context, caller: CallerParam) -> Response:
    """For callers that may run jobs as its owner, as the answer allows to run any code in the session."""
    caller.read(job_id)
    require(caller.principal, Role.OPERATOR)
    caller.write(job_id)
    job = await context.gateway.request_job(job_id)
    if job["status"] != JobStatus.RUNNING.value:
        raise JobStateError(f"job {job_id} is {job['status']}; its session can only be used while it is RUNNING")
    directory = AttemptDirectory(context.logs.directory(job_id, job["attempt"]))
    try:
        spec = await asyncio.to_thread(directory.read_spec)
    except FiresteelError:
        raise JobStateError(f"the attempt of job {job_id} is about to start; try again in a moment") from None
    if spec.graph.interactive is None or spec.engine is None:
        raise JobStateError(f"job {job_id} is not an interactive session; start one with `firesteel shell`")
    content: SessionMessage = {
        "remote": spec.remote(),
        "engine": spec.engine.engine_id,
    }
    return answer(content)
