"""Cluster data sets, which Spark has not: the list is empty, and deleting one has nothing to do."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.config.sections import Role
from firesteel.rest.answers import answer
from firesteel.rest.context import CallerPrincipal
from firesteel.rest.errors import HttpError
from firesteel.rest.flink.contract import ERRORS, Empty, TriggerMessage
from firesteel.rest.params import HEX_ID, TriggerIdParam
from firesteel.rest.security.principals import require

router = APIRouter(tags=["datasets"], responses=ERRORS)


class DataSetEntry(TypedDict):
    id: str
    isComplete: bool


class DataSets(TypedDict):
    dataSets: list[DataSetEntry]


class OperationState(TypedDict):
    id: str


class DataSetDeletion(TypedDict):
    status: OperationState
    operation: Empty


@router.get("/datasets", response_model=DataSets, summary="Always empty: Spark has no cluster data sets")
async def list_data_sets() -> Response:
    return answer({"dataSets": []})


@router.delete(
    "/datasets/{datasetid}",
    status_code=202,
    response_model=TriggerMessage,
    summary="Accepted; there is nothing to delete",
)
async def delete_data_set(principal: CallerPrincipal, datasetid: Annotated[str, Path(pattern=HEX_ID)]) -> Response:
    require(principal, Role.OPERATOR)
    return answer({"request-id": new_trigger()}, 202)


@router.get("/datasets/delete/{triggerid}", response_model=DataSetDeletion, summary="The outcome of a deletion")
async def show_deletion(triggerid: TriggerIdParam) -> Response:
    if not is_trigger(triggerid):
        raise HttpError(404, f"Operation not found under key: {triggerid}")
    return answer({"status": {"id": "COMPLETED"}, "operation": {}})


def new_trigger() -> str:
    """An id that can be told from others without being remembered, by whichever node leads then."""
    drawn = secrets.token_hex(8)
    return drawn + _mark(drawn)


def is_trigger(trigger_id: str) -> bool:
    return _mark(trigger_id[:16]) == trigger_id[16:]


def _mark(drawn: str) -> str:
    return hashlib.sha256(f"data set deletion {drawn}".encode()).hexdigest()[:16]
