"""`/savepoint-disposal`: removing a savepoint, which no job needs to be there for."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.config.sections import Role
from firesteel.errors import OperationNotFoundError
from firesteel.rest.answers import answer
from firesteel.rest.context import CallerPrincipal, Context
from firesteel.rest.errors import HttpError
from firesteel.rest.flink.contract import ERRORS, TriggerMessage
from firesteel.rest.flink.details import COMPLETED, IN_PROGRESS, QueueStatus
from firesteel.rest.flink.operations import TriggerBody, cause_of
from firesteel.rest.flink.serialized_throwable import FailureCause
from firesteel.rest.params import TriggerIdParam, body_as, body_schema
from firesteel.rest.security.principals import require
from firesteel.stores.operations import NO_JOB, Operation, OperationStatus

router = APIRouter(prefix="/savepoint-disposal", tags=["operations"], responses=ERRORS)


class SavepointDisposalRequest(TriggerBody):
    path: str | None = Field(None, alias="savepoint-path")


DisposalInfo = TypedDict("DisposalInfo", {"failure-cause": FailureCause}, total=False)


class DisposalStatus(TypedDict):
    status: QueueStatus
    operation: DisposalInfo | None


def render_disposal(operation: Operation) -> DisposalStatus:
    if operation.status is OperationStatus.IN_PROGRESS:
        return {"status": IN_PROGRESS, "operation": None}
    if operation.status is OperationStatus.FAILED:
        return {"status": COMPLETED, "operation": {"failure-cause": cause_of(operation)}}
    return {"status": COMPLETED, "operation": {}}


@router.post(
    "",
    response_model=TriggerMessage,
    openapi_extra=body_schema(SavepointDisposalRequest, required=True),
    summary="Remove a savepoint",
)
async def dispose(context: Context, principal: CallerPrincipal, request: Request) -> Response:
    # Whose it is cannot be told from a path, so it is for those to whom nothing is another tenant's (S36).
    require(principal, Role.ADMIN)
    body = await body_as(request, SavepointDisposalRequest)
    if body.path is None:
        raise HttpError(400, "Field savepoint-path must not be omitted or be null.")
    trigger_id = body.draw()
    await context.gateway.dispose_savepoint(body.path, trigger_id)
    return answer({"request-id": trigger_id})


@router.get("/{triggerid}", response_model=DisposalStatus, summary="What became of it")
async def poll(context: Context, principal: CallerPrincipal, trigger_id: TriggerIdParam) -> Response:
    try:
        found = await context.gateway.request_operation(NO_JOB, trigger_id)
    except OperationNotFoundError:
        raise HttpError(404, f"There is no savepoint disposal operation with triggerId={trigger_id}.") from None
    return answer(render_disposal(found))
