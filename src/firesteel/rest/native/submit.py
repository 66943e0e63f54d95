"""`POST /jobs`: a job graph is checked, made durable, and answered with its id.

Flink's own client sends a serialised Java program to the same path. It gets a message that explains why this cannot run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.blob.keys import BlobRef, is_blob_ref
from firesteel.config import Configuration
from firesteel.config.sections import Role, SandboxKind
from firesteel.errors import (
    BlobNotFoundError,
    DuplicateJobError,
    ForbiddenError,
    InvalidPipelineError,
    InvalidRequestError,
    JobNotFoundError,
    NoSavepointError,
    Problem,
    RateLimitedError,
    SavepointError,
)
from firesteel.jobgraph.admission import Admitted, AllowedPlaces, SubmittedDocument
from firesteel.jobgraph.files import NamedFile
from firesteel.jobgraph.model import JobGraph
from firesteel.rest.answers import answer
from firesteel.rest.context import Caller, CallerParam, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.flink_programs import FLINK_PROGRAM, FORM
from firesteel.rest.native.reserved_places import NamedPlace, ReservedPlaces
from firesteel.rest.params import HEX_ID, json_body
from firesteel.rest.security.admission import policy_for
from firesteel.rest.security.principals import require
from firesteel.rest.security.savepoint_places import check_restore_place
from firesteel.sandbox.owners import owner_directory
from firesteel.savepoint.fit import nothing_to_restore, refusal
from firesteel.savepoint.naming import plain
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.types import JobID, is_job_id, new_job_id
from firesteel.worker.sandboxing import check_owner

logger = logging.getLogger(__name__)

router = APIRouter(tags=["jobs"])

YAML = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})
LONGEST_HEARTBEAT = 7 * 86_400_000
Priority = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
HexId = Annotated[str, Field(pattern=HEX_ID)]


class JobSubmission(BaseModel):
    """A job graph with the options of its submission."""

    model_config = ConfigDict(extra="forbid")

    graph: dict[str, Any]
    """A JobGraph: see `job-graph.schema.json`."""
    job_id: HexId | None = Field(default=None, alias="jobId")
    """Chosen by the client so that a repeated submission is recognised; random by default."""
    priority: Priority = 0
    """Waiting jobs get an engine in the order of their priorities, highest first."""
    client_heartbeat_timeout: Annotated[int, Field(ge=1, le=LONGEST_HEARTBEAT)] | None = Field(
        default=None, alias="clientHeartbeatTimeout"
    )
    """Milliseconds. If set, the job is cancelled when its client has been silent for so long."""
    variables: dict[str, str | int | float | bool] | None = None
    """Values for `${name}` in the graph. If there are none, and the graph declares none, the graph is taken literally."""


class AcceptedJob(TypedDict):
    jobUrl: str
    jobId: str
    status: str


_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": JobSubmission.model_json_schema(by_alias=True)},
            "application/yaml": {"schema": {"type": "string", "description": "A pipeline, as in a file."}},
        },
    }
}


@router.post(
    "/jobs",
    status_code=202,
    response_model=AcceptedJob,
    summary="Submit a job",
    openapi_extra=_BODY,
)
async def submit(
    request: Request,
    context: Context,
    caller: CallerParam,
    job_id: Annotated[str | None, Query(alias="jobId", pattern=HEX_ID, description="32 hex digits")] = None,
    priority: Annotated[int, Query(ge=-(2**31), le=2**31 - 1)] = 0,
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            min_length=1,
            max_length=255,
            description="Replaces a jobId: the same key of the same owner stands for the same job.",
        ),
    ] = None,
) -> Response:
    """Answers once the job is durable. Repeating a submission gets the same answer, and the job runs once."""
    admit_submission(context, caller)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    heartbeat = None
    if kind == FORM:
        raise HttpError(400, FLINK_PROGRAM)
    if kind in YAML:
        source = SubmittedDocument(yaml=pipeline_text(await request.body()))
    else:
        wanted = parse_submission(await json_body(request))
        source = SubmittedDocument(wanted.graph, variables=texts(wanted.variables))
        job_id = wanted.job_id or job_id
        priority = wanted.priority if "priority" in wanted.model_fields_set else priority
        if wanted.client_heartbeat_timeout is not None:
            heartbeat = wanted.client_heartbeat_timeout / 1000
    admitted = await admit(context, caller, source)
    chosen = await choose_id(context, caller, job_id, key)
    if (audit := request.scope.get("firesteel.audit")) is not None:
        audit["job_id"] = chosen
    status = await accept(context, caller, admitted, job_id=chosen, priority=priority, heartbeat=heartbeat)
    content: AcceptedJob = {"jobUrl": f"/jobs/{chosen}", "jobId": chosen, "status": status.value}
    return answer(content, 202)


def admit_submission(context: RestContext, caller: Caller) -> None:
    """Check that the caller may submit a job now (S26), before the request is processed.

    Raises:
        ForbiddenError: The caller is a viewer.
        RateLimitedError: The owner has submitted too many jobs in a short time.
    """
    require(caller.principal, Role.OPERATOR)
    context.check_open_to(caller.principal)
    owner = caller.principal.submits_as
    if wait := context.submissions.take(owner):
        raise RateLimitedError(
            f"{owner} submits more than {context.configuration.rest.submit_rate} jobs per second "
            "(rest.rate-limit.submissions-per-second); try again in a moment",
            retry_after=wait,
        )


async def admit(
    context: RestContext, caller: Caller, source: SubmittedDocument, *, places: AllowedPlaces | None = None
) -> Admitted:
    """Check the graph of a job against the caller's policy, without its references. Raises InvalidPipelineError.

    `places`: the paths that it may name, if they differ from the policy of the caller.
    """
    policy = policy_for(caller.principal, context.configuration.security.spark_settings)
    policy = policy if places is None else replace(policy, places=places)
    return await context.checks.admit(caller.principal.submits_as, source, policy)


async def accept(
    context: RestContext,
    caller: Caller,
    admitted: Admitted,
    *,
    job_id: JobID,
    priority: int = 0,
    heartbeat: float | None = None,
    resumes: JobID | None = None,
) -> JobStatus:
    """Submit a graph that was admitted for the caller as the caller's job.

    Its references are checked here: directories of the cluster, savepoints and uploads have owners. Repeating the same
    submission gets the same answer.

    Args:
        heartbeat: Seconds of silence of the client after which the job is cancelled.
        resumes: The ended job that it resumes, which the caller may change. The new job starts from the state of that job
            and belongs to the same owner.

    Raises:
        InvalidPipelineError: The graph names directories, savepoints or uploads that are not the caller's.
        DuplicateJobError: The id belongs to another job.
    """
    principal, graph = caller.principal, admitted.graph
    known = _is_known(context, caller, job_id)
    owner = principal.submits_as if resumes is None else context.gateway.owner_of(resumes)
    if not known and context.configuration.security.sandbox is SandboxKind.USER:
        await context.checks.in_thread(check_owner, context.configuration, owner)
    if principal.role is not Role.ADMIN and not known:
        await _check_places(context, caller, graph)
    trusted = known or resumes is not None or principal.role is Role.ADMIN
    if graph.settings.restore is not None and not trusted:
        path = graph.settings.restore.path
        await context.checks.in_thread(check_restore_place, context.configuration, path)
        await _check_savepoint(context, caller, path)
    if graph.settings.restore is not None and not known:
        await _check_state(context, caller, admitted, resumed=resumes is not None)
    if not known:  # a repetition is not checked again: its job may have ended and its files may be gone
        await _keep_files(context, caller, admitted.files)
    submission = Submission(
        job_id,
        graph,
        time.time(),
        await context.checks.in_thread(admitted.digest, priority=priority, heartbeat=heartbeat),
        priority=priority,
        initial_client_heartbeat_timeout=heartbeat,
        owner=owner,
        # A job that an admin resumes keeps its owner.
        restricted=principal.role is not Role.ADMIN or owner != principal.submits_as,
        resumes=resumes or "",
    )
    gateway = context.gateway
    try:
        await gateway.submit_job(submission)
    finally:
        _is_known(context, caller, job_id)  # another caller may have been faster, and must not be revealed
    return await gateway.request_job_status(job_id)


async def choose_id(context: RestContext, caller: Caller, job_id: str | None, key: str | None) -> JobID:
    """The id that the client chose, or the id for its idempotency key, or a new one."""
    if job_id is not None:
        return JobID(job_id.lower())
    if key is not None:
        return await context.job_of_key(caller.principal.submits_as, key)
    return new_job_id()


def parse_submission(data: Any) -> JobSubmission:
    """Parse a submission. Raises InvalidRequestError with all problems outside of the graph."""
    try:
        return JobSubmission.model_validate(data)
    except ValidationError as error:
        problems = [
            Problem(e["msg"], _FIXES.get(e["type"], ""), field=".".join(str(part)[:100] for part in e["loc"]) or None)
            for e in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise InvalidRequestError(problems) from None


_FIXES = {
    "missing": 'send {"graph": {...}}',
    "extra_forbidden": "the fields are graph, jobId, priority, clientHeartbeatTimeout and variables",
}


def _is_known(context: RestContext, caller: Caller, job_id: JobID) -> bool:
    """Whether there is a job of this id. Raises DuplicateJobError when the caller may not see it (S19)."""
    try:
        owner = context.gateway.owner_of(job_id)
    except JobNotFoundError:
        return False
    if not caller.sees(owner):
        raise DuplicateJobError(f"job id {job_id} cannot be used; choose a new one")
    return True


def _reserved_in(configuration: Configuration, graph: JobGraph) -> list[NamedPlace]:
    reserved = ReservedPlaces(configuration)
    return [*reserved.data_in(graph), *reserved.checkpoints_in(graph)]


async def _check_places(context: RestContext, caller: Caller, graph: JobGraph) -> None:
    """Check that a job uses none of the cluster's own files except checkpoints of its owner's jobs (S36, S39)."""
    problems = []
    for place in await context.checks.in_thread(_reserved_in, context.configuration, graph):
        try:
            if place.job is None:
                raise JobNotFoundError("it does not belong to a job")
            job = caller.write(caller.read(JobID(place.job)))
            owner = context.gateway.owner_of(job)
            if place.owner != (owner_directory(owner) if owner else None):
                raise JobNotFoundError("it belongs to another owner")
        except (JobNotFoundError, ForbiddenError):
            problems.append(place.problem)
    if problems:
        raise InvalidPipelineError(problems)


async def _check_savepoint(context: RestContext, caller: Caller, path: str) -> None:
    """Check that the savepoint belongs to a job that the caller may see; others look as if they did not exist (S36)."""
    if await _is_kept_checkpoint(context, caller, plain(path)):
        return
    try:
        caller.read(await context.checks.job_of_savepoint(caller.principal.submits_as, path))
    except (SavepointError, JobNotFoundError):
        problem = Problem(
            f"'{path}' is not a savepoint of a known job of yours",
            "name a savepoint of your own, or ask an admin",
            field="settings.restore.path",
        )
        raise InvalidPipelineError([problem]) from None


async def _check_state(context: RestContext, caller: Caller, admitted: Admitted, *, resumed: bool) -> None:
    """Check that there is state, and that it fits the queries (I31). If it cannot be read here, the driver checks before it
    starts them."""
    graph = admitted.graph
    restore = graph.settings.restore
    assert restore is not None
    verdict = None
    try:
        verdict = await context.checks.fit_of_savepoint(caller.principal.submits_as, restore.path, admitted.canonical)
    except NoSavepointError as error:
        # A job that has ended a moment ago has a checkpoint, which its clean-up makes one to start from.
        if not resumed and not await _is_kept_checkpoint(context, caller, plain(restore.path)):
            raise nothing_to_restore(error) from None
    if restore.allow_incompatible_state:
        logger.warning(
            "%s starts '%s' from %s without a check that the state fits",
            caller.principal.name,
            graph.name,
            restore.path,
        )
        return
    if verdict is not None and verdict.refusals:
        raise refusal(restore.path, verdict)


async def _is_kept_checkpoint(context: RestContext, caller: Caller, path: str) -> bool:
    """Whether it is the kept checkpoint of a job that the caller may see, according to its result; nothing is opened."""
    name = path.rpartition("/")[2]
    if not is_job_id(name):
        return False
    try:
        job = await context.gateway.request_job(caller.read(JobID(name)))
    except JobNotFoundError:
        return False
    return bool(job.get("checkpoint")) and plain(str(job["checkpoint"])) == path


async def _keep_files(context: RestContext, caller: Caller, files: Iterable[NamedFile]) -> None:
    """Check that the uploads in a graph exist and belong to the caller, and reset their age (I13)."""
    refs = {BlobRef.parse(file.text).key for file in files if is_blob_ref(file.text)}
    if not refs:
        return
    owner = None if caller.principal.role is Role.ADMIN else caller.principal.submits_as
    try:
        await context.blobs.touch(refs, owner=owner)
    except BlobNotFoundError as error:
        raise InvalidPipelineError([Problem(str(error), field="settings.artifacts")]) from None


def pipeline_text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequestError([Problem("the pipeline is not UTF-8 text", "save it as UTF-8")]) from None


def texts(variables: Mapping[str, str | int | float | bool] | None) -> dict[str, str] | None:
    if variables is None:
        return None
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in variables.items()}
