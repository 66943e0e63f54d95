"""Savepoints, stops, checkpoints and disposals: triggered under an id, and polled later.

A trigger is refused at once if the job is unknown or in the wrong state, and is durable once it is answered (I19).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from firesteel.config.sections import Role
from firesteel.errors import JobNotFoundError, OperationNotFoundError
from firesteel.flink_rest.contract import ERRORS, no_job
from firesteel.flink_rest.details import COMPLETED, IN_PROGRESS
from firesteel.flink_rest.serialized_throwable import failure_cause
from firesteel.masking import mask_text
from firesteel.rest.answers import Json, answer
from firesteel.rest.context import Caller, CallerParam, CallerPrincipal, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.params import HEX_ID, JobIdParam, TriggerIdParam, body_as, body_schema
from firesteel.rest.security.principals import require
from firesteel.rest.security.savepoint_places import check_savepoint_place
from firesteel.stores.operations import NO_JOB, Operation, OperationKind, OperationStatus
from firesteel.types import JobID

router = APIRouter(tags=["operations"], responses=ERRORS)

FAILURE_CLASS = "firesteel.OperationFailed"
"""The prefix that Flink's client shows before the message."""

TriggerId = Annotated[str, Field(pattern=HEX_ID)]


class SavepointFormat(StrEnum):
    CANONICAL = "CANONICAL"
    NATIVE = "NATIVE"


class CheckpointKind(StrEnum):
    CONFIGURED = "CONFIGURED"
    FULL = "FULL"
    INCREMENTAL = "INCREMENTAL"


class TriggerBody(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    trigger_id: TriggerId | None = Field(None, alias="triggerId")

    def draw(self) -> str:
        """The id that the client chose in order to repeat the request, or a new one."""
        return self.trigger_id.lower() if self.trigger_id else uuid.uuid4().hex


class SavepointTriggerRequestBody(TriggerBody):
    target: str | None = Field(None, alias="target-directory")
    """None means `state.savepoints.dir`."""
    cancel: bool | None = Field(False, alias="cancel-job")
    format: SavepointFormat | None = Field(None, alias="formatType")
    """There is one format; both names are accepted."""


class StopWithSavepointRequestBody(TriggerBody):
    target: str | None = Field(None, alias="targetDirectory")
    drain: bool | None = False
    """Accepted without effect: a stop always waits for the current batch."""
    format: SavepointFormat | None = Field(None, alias="formatType")
    savepoint: bool | None = True
    """Not in Flink's contract: false stops without a savepoint."""


class CheckpointTriggerRequestBody(TriggerBody):
    kind: CheckpointKind | None = Field(None, alias="checkpointType")
    """A committed batch is complete, so all kinds are the same."""


class SavepointDisposalRequest(TriggerBody):
    path: str | None = Field(None, alias="savepoint-path")


# -- outcomes -------------------------------------------------------------------------------------------------------


def render_savepoint(operation: Operation) -> Json:
    if operation.status is OperationStatus.IN_PROGRESS:
        return {"status": IN_PROGRESS, "operation": None}
    if operation.status is OperationStatus.FAILED:
        return {"status": COMPLETED, "operation": {"failure-cause": cause_of(operation)}}
    # A stop without a savepoint leaves a checkpoint, from which the next run can start.
    location = operation.result.get("location") or operation.result.get("checkpoint") or ""
    return {"status": COMPLETED, "operation": {"location": mask_text(str(location))}}


def render_checkpoint(operation: Operation) -> Json:
    """In camel case, unlike the others, as in the contract."""
    if operation.status is OperationStatus.IN_PROGRESS:
        return {"status": IN_PROGRESS, "operation": None}
    if operation.status is OperationStatus.FAILED:
        return {"status": COMPLETED, "operation": {"failureCause": cause_of(operation)}}
    return {"status": COMPLETED, "operation": {"checkpointId": _furthest(operation.result.get("batches"))}}


def render_disposal(operation: Operation) -> Json:
    if operation.status is OperationStatus.IN_PROGRESS:
        return {"status": IN_PROGRESS, "operation": None}
    if operation.status is OperationStatus.FAILED:
        return {"status": COMPLETED, "operation": {"failure-cause": cause_of(operation)}}
    return {"status": COMPLETED, "operation": {}}


def _furthest(batches: Any) -> int:
    """The number that the checkpoint has in the job's statistics."""
    return max((int(n) for n in batches.values()), default=-1) if isinstance(batches, Mapping) else -1


def cause_of(operation: Operation) -> Json:
    """Why an operation failed."""
    return failure_cause(FAILURE_CLASS, mask_text(operation.error))


# -- triggers -------------------------------------------------------------------------------------------------------


@router.post(
    "/jobs/{jobid}/savepoints",
    status_code=202,
    openapi_extra=body_schema(SavepointTriggerRequestBody),
    summary="Take a savepoint of a stream, and optionally cancel it",
)
async def trigger_savepoint(context: Context, caller: CallerParam, job_id: JobIdParam, request: Request) -> Response:
    body = await body_as(request, SavepointTriggerRequestBody)
    _writable(caller, job_id)
    await _check_target(context, caller, body.target)
    trigger_id = body.draw()
    await context.gateway.trigger_savepoint(job_id, trigger_id, body.target, cancel=bool(body.cancel))
    return answer({"request-id": trigger_id}, 202)


@router.post(
    "/jobs/{jobid}/stop",
    status_code=202,
    openapi_extra=body_schema(StopWithSavepointRequestBody),
    summary="Stop a stream after its current batch, with a savepoint",
)
async def stop(context: Context, caller: CallerParam, job_id: JobIdParam, request: Request) -> Response:
    body = await body_as(request, StopWithSavepointRequestBody)
    _writable(caller, job_id)
    await _check_target(context, caller, body.target)
    trigger_id = body.draw()
    await context.gateway.stop_job(job_id, trigger_id, body.target, savepoint=body.savepoint is not False)
    return answer({"request-id": trigger_id}, 202)


@router.post(
    "/jobs/{jobid}/checkpoints",
    status_code=202,
    openapi_extra=body_schema(CheckpointTriggerRequestBody),
    summary="Determine the last batch that is committed everywhere",
)
async def trigger_checkpoint(context: Context, caller: CallerParam, job_id: JobIdParam, request: Request) -> Response:
    body = await body_as(request, CheckpointTriggerRequestBody)
    _writable(caller, job_id)
    trigger_id = body.draw()
    await context.gateway.trigger_checkpoint(job_id, trigger_id)
    return answer({"request-id": trigger_id}, 202)


def _writable(caller: Caller, job_id: JobID) -> None:
    require(caller.principal, Role.OPERATOR)
    try:
        caller.write(job_id)
    except JobNotFoundError:
        raise no_job(job_id) from None


async def _check_target(context: RestContext, caller: Caller, target: str | None) -> None:
    """Check that a non-admin's savepoint is below a configured directory (S42)."""
    if target is not None and caller.principal.role is not Role.ADMIN:
        await asyncio.to_thread(check_savepoint_place, context.configuration, target, "target-directory")


# -- polls ----------------------------------------------------------------------------------------------------------


@router.get("/jobs/{jobid}/savepoints/{triggerid}", summary="The outcome of an operation")
async def poll_savepoint(
    context: Context, caller: CallerParam, job_id: JobIdParam, trigger_id: TriggerIdParam
) -> Response:
    """The operation may be a savepoint or a stop."""
    kinds = (OperationKind.SAVEPOINT, OperationKind.STOP)
    return answer(render_savepoint(await _operation(context, caller, job_id, trigger_id, "savepoint", kinds)))


@router.get("/jobs/{jobid}/checkpoints/{triggerid}", summary="The outcome of an operation")
async def poll_checkpoint(
    context: Context, caller: CallerParam, job_id: JobIdParam, trigger_id: TriggerIdParam
) -> Response:
    kinds = (OperationKind.CHECKPOINT,)
    return answer(render_checkpoint(await _operation(context, caller, job_id, trigger_id, "checkpoint", kinds)))


async def _operation(
    context: RestContext,
    caller: Caller,
    job_id: JobID,
    trigger_id: str,
    what: str,
    kinds: Collection[OperationKind],
) -> Operation:
    try:
        found = await context.gateway.request_operation(caller.read(job_id), trigger_id)
    except (JobNotFoundError, OperationNotFoundError):
        found = None
    if found is None or found.kind not in kinds:
        raise HttpError(404, f"There is no {what} operation with triggerId={trigger_id} for job {job_id}.")
    return found


# -- disposal, which no job needs to be there for -----------------------------------------------------------------


@router.post(
    "/savepoint-disposal",
    openapi_extra=body_schema(SavepointDisposalRequest, required=True),
    summary="Remove a savepoint",
)
async def dispose(context: Context, principal: CallerPrincipal, request: Request) -> Response:
    # A path does not tell the owner, so this is for callers that may see all tenants (S36).
    require(principal, Role.ADMIN)
    body = await body_as(request, SavepointDisposalRequest)
    if body.path is None:
        raise HttpError(400, "Field savepoint-path must not be omitted or be null.")
    trigger_id = body.draw()
    await context.gateway.dispose_savepoint(body.path, trigger_id, owner=principal.submits_as)
    return answer({"request-id": trigger_id})


@router.get("/savepoint-disposal/{triggerid}", summary="The outcome of an operation")
async def poll_disposal(context: Context, principal: CallerPrincipal, trigger_id: TriggerIdParam) -> Response:
    try:
        found = await context.gateway.request_operation(NO_JOB, trigger_id)
    except OperationNotFoundError:
        raise HttpError(404, f"There is no savepoint disposal operation with triggerId={trigger_id}.") from None
    return answer(render_disposal(found))
