"""`POST /jobs/{id}/resume`: a new job that continues where a stream ended, with the same pipeline or a changed one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from firesteel.dispatcher.archiving import ARCHIVED
from firesteel.errors import JobNotFoundError, JobStateError
from firesteel.jobgraph.admission import SubmittedDocument
from firesteel.rest.answers import answer
from firesteel.rest.context import Caller, CallerParam, Context, RestContext
from firesteel.rest.native.submit import (
    LONGEST_HEARTBEAT,
    AcceptedJob,
    HexId,
    Priority,
    accept,
    admit,
    admit_submission,
    choose_id,
    texts,
)
from firesteel.rest.params import JobIdParam, body_as, body_schema
from firesteel.types import JobID

router = APIRouter(tags=["jobs"])


class Resumption(BaseModel):
    """All fields are optional; by default the job continues unchanged."""

    model_config = ConfigDict(extra="forbid")

    graph: dict[str, Any] | None = None
    """A changed JobGraph; by default the graph of the job. It cannot choose where it starts from."""
    variables: dict[str, str | int | float | bool] | None = None
    restore: dict[str, Any] = Field(default_factory=dict)
    """Fields of `settings.restore`, without the path."""
    job_id: HexId | None = Field(default=None, alias="jobId")
    """The id of the new job, chosen by the client so that a repeated request is recognised; random by default."""
    priority: Priority = 0
    client_heartbeat_timeout: Annotated[int, Field(ge=1, le=LONGEST_HEARTBEAT)] | None = Field(
        default=None, alias="clientHeartbeatTimeout"
    )


@router.post(
    "/jobs/{jobid}/resume",
    status_code=202,
    response_model=AcceptedJob,
    openapi_extra=body_schema(Resumption),
    summary="Resume a stream that has ended",
)
async def resume(request: Request, context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    """A new job starts from the kept checkpoint of the ended one, or else from its last savepoint. 409 if there is neither, or
    if another job has already resumed it. Repeating the request with the same id gets the same answer."""
    admit_submission(context, caller)
    wish = await body_as(request, Resumption)
    caller.read(job_id)
    caller.write(job_id)
    chosen = await choose_id(context, caller, wish.job_id, None)
    if (audit := request.scope.get("firesteel.audit")) is not None:
        audit["job_id"] = chosen
    if wish.graph is None and await _resumes(context, caller, chosen, job_id):
        status = await context.gateway.request_job_status(chosen)
    else:
        plain = _graph(await context.gateway.request_job(job_id), job_id, wish)
        admitted = await admit(context, caller, SubmittedDocument(plain, variables=texts(wish.variables)))
        heartbeat = None if wish.client_heartbeat_timeout is None else wish.client_heartbeat_timeout / 1000
        status = await accept(
            context, caller, admitted, job_id=chosen, priority=wish.priority, heartbeat=heartbeat, resumes=job_id
        )
    content: AcceptedJob = {"jobUrl": f"/jobs/{chosen}", "jobId": chosen, "status": status.value}
    return answer(content, 202)


async def _resumes(context: RestContext, caller: Caller, chosen: JobID, job_id: JobID) -> bool:
    """Whether the job `chosen` exists and resumes `job_id`: a repetition needs nothing that is kept of that job."""
    try:
        return bool((await context.gateway.request_job(caller.read(chosen))).get("resumes") == job_id)
    except JobNotFoundError:
        return False


def _graph(job: Mapping[str, Any], job_id: JobID, wish: Resumption) -> dict[str, Any]:
    """The graph of the new job. Raises JobStateError when `job` cannot be resumed."""
    if job.get("ended_at") is None:
        raise JobStateError(f"job {job_id} is {job['status']}; only ended jobs can be resumed")
    if job.get("mode") != "streaming":
        raise JobStateError(f"job {job_id} is a batch job, but only streams can be resumed; run it again")
    path = job.get("checkpoint") or job.get("savepoint")
    if not path:
        raise JobStateError(f"job {job_id} has nothing to resume from: its checkpoint was discarded, or it never ran")
    graph = wish.graph if wish.graph is not None else job.get("graph")
    if not graph or (wish.graph is None and job.get(ARCHIVED)):  # secrets are masked in an archive
        raise JobStateError(
            f"the pipeline of job {job_id} is no longer stored (jobstore.expiration-time, jobstore.max-capacity); name it: "
            f"`firesteel resume {job_id[:8]} PIPELINE`"
        )
    settings = graph.get("settings")
    settings = dict(settings) if isinstance(settings, Mapping) else {}
    return {**graph, "settings": {**settings, "restore": {**wish.restore, "path": path}}}
