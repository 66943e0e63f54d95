"""The routes of operations that are empty or refused by design, made from the rows of `coverage`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from firesteel.flink_rest.aggregation import MetricsParam
from firesteel.flink_rest.contract import ERRORS, LARGEST_INT, AttemptParam, Errors, SubtaskParam, VertexIdParam
from firesteel.flink_rest.coverage import SECTIONS
from firesteel.flink_rest.guards import GUARDS, Question
from firesteel.flink_rest.log_files import empty_text
from firesteel.flink_rest.table import ContractRow, Fixed
from firesteel.rest.answers import answer
from firesteel.rest.context import CallerPrincipal, Context
from firesteel.rest.params import HEX_ID, JobIdParam, TriggerIdParam

_PLACEHOLDER = re.compile(r"\{(\w+)\}")

# -- parameters, by their names in paths and queries ------------------------------------------------------------------------


class FlameGraphType(StrEnum):
    FULL = "full"
    ON_CPU = "on_cpu"
    OFF_CPU = "off_cpu"
    # Flink also accepts upper case.
    FULL_UPPER = "FULL"
    ON_CPU_UPPER = "ON_CPU"
    OFF_CPU_UPPER = "OFF_CPU"


async def _job(job_id: JobIdParam) -> None: ...
async def _vertex(vertex: VertexIdParam) -> None: ...
async def _subtask(subtask: SubtaskParam) -> None: ...
async def _attempt(attempt: AttemptParam) -> None: ...
async def _trigger(trigger: TriggerIdParam) -> None: ...
async def _rescale(rescaleuuid: Annotated[str, Path(pattern=HEX_ID)]) -> None: ...
async def _data_set(datasetid: Annotated[str, Path(pattern=HEX_ID)]) -> None: ...
async def _operator(operator_uid: Annotated[str, Path(alias="operatorUid")]) -> None: ...
async def _engine(
    engine: Annotated[str, Path(alias="taskmanagerid", max_length=255, description="The id of an engine")],
) -> None: ...
async def _metrics(get: MetricsParam = None) -> None: ...
async def _serialized(included: Annotated[bool, Query(alias="includeSerializedValue")] = False) -> None: ...
async def _flame_graph(kind: Annotated[FlameGraphType, Query(alias="type")] = FlameGraphType.FULL) -> None: ...
async def _one_subtask(
    subtask: Annotated[int | None, Query(alias="subtaskindex", ge=0, le=LARGEST_INT)] = None,
) -> None: ...
async def _parallelism(parallelism: Annotated[int, Query(ge=1, le=LARGEST_INT)]) -> None: ...


Check = Callable[..., Awaitable[None]]
PATH: Mapping[str, Check] = {
    "jobid": _job,
    "vertexid": _vertex,
    "subtaskindex": _subtask,
    "attempt": _attempt,
    "triggerid": _trigger,
    "rescaleuuid": _rescale,
    "datasetid": _data_set,
    "operatorUid": _operator,
    "taskmanagerid": _engine,
}
AS_IT_IS = {"operatorUid", "taskmanagerid"}
"""All others are numbers or hex digits, which may be in upper case."""
QUERY: Mapping[str, Check] = {
    "get": _metrics,
    "includeSerializedValue": _serialized,
    "type": _flame_graph,
    "subtaskindex": _one_subtask,
    "parallelism": _parallelism,
}

# -- routes -----------------------------------------------------------------------------------------------------------------


def filled(template: Any, facts: Mapping[str, object]) -> Any:
    """`template` with facts in place of their names; a text that is only one name becomes the fact itself."""
    match template:
        case str():
            alone = _PLACEHOLDER.fullmatch(template)
            return facts[alone[1]] if alone else template.format_map(facts)
        case dict():
            return {key: filled(value, facts) for key, value in template.items()}
        case list():
            return [filled(value, facts) for value in template]
        case _:
            return template


def _endpoint(fixed: Fixed) -> Callable[..., Awaitable[Response]]:
    guard = GUARDS[fixed.asker]

    async def answer_as_written(request: Request, context: Context, principal: CallerPrincipal) -> Response:
        path = {n: v if n in AS_IT_IS else v.lower() for n, v in request.path_params.items()}
        facts = await guard(Question(context, principal, path))
        return empty_text() if fixed.body == "" else answer(filled(fixed.body, {**path, **facts}), fixed.status)

    return answer_as_written


def _add(router: APIRouter, row: ContractRow, fixed: Fixed, tag: str) -> None:
    responses = {**ERRORS, fixed.status: {"model": Errors, "description": row.shows}} if fixed.status >= 300 else ERRORS
    router.add_api_route(
        row.path,
        _endpoint(fixed),
        methods=[row.method],
        status_code=fixed.status,
        tags=[tag],
        responses=responses,
        response_class=Response if fixed.body == "" else JSONResponse,
        summary=f"{row.how.value.capitalize()}: {row.shows}",
        dependencies=[
            *(Depends(PATH[name]) for name in _PLACEHOLDER.findall(row.path)),
            *(Depends(QUERY[name]) for name in fixed.query),
        ],
    )


def _router() -> APIRouter:
    router = APIRouter()
    for section in SECTIONS:
        for row in section.rows:
            if row.answer is not None:
                _add(router, row, row.answer, section.tag)
    return router


router = _router()
"""Tried before the others, as its paths have words where others have parameters."""
