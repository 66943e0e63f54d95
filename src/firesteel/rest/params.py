"""Path parameters and bodies. The contract is lenient about bodies: any content type, and an empty one is `{}`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import Depends, Path
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from firesteel.errors import InvalidRequestError, Problem
from firesteel.jobgraph.limits import MAX_DEPTH, too_deep
from firesteel.types import JobID

HEX_ID = r"^[0-9a-fA-F]{32}$"
_LARGE = 1 << 16
M = TypeVar("M", bound=BaseModel)


async def _job_id(jobid: Annotated[str, Path(pattern=HEX_ID, description="32 hex digits")]) -> JobID:
    return JobID(jobid.lower())


async def _trigger_id(triggerid: Annotated[str, Path(pattern=HEX_ID, description="32 hex digits")]) -> str:
    return triggerid.lower()


JobIdParam = Annotated[JobID, Depends(_job_id)]
"""`{jobid}` in the path."""
TriggerIdParam = Annotated[str, Depends(_trigger_id)]
"""`{triggerid}` in the path."""


async def json_body(request: Request) -> Any:
    """The body as JSON, whatever its content type. Raises InvalidRequestError."""
    raw = await request.body()
    if not raw.strip():
        return {}
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError([Problem(f"the body is not JSON: {error}", "send a JSON object")]) from None
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:  # few bodies have so many, and only those are checked
        deep = await asyncio.to_thread(too_deep, data) if len(raw) > _LARGE else too_deep(data)
        if deep:
            raise InvalidRequestError([Problem(f"the body is nested more than {MAX_DEPTH} levels deep", "flatten it")])
    return data


async def body_as(request: Request, model: type[M], name: str | None = None) -> M:
    """The body as `model`, whose fields carry the contract's names as aliases; unknown fields are ignored.

    Raises HttpError 400 with the contract's message; `name` is the contract's name for the body.
    """
    from firesteel.rest.errors import HttpError

    called = name or model.__name__
    try:
        data = await json_body(request)
    except InvalidRequestError:
        raise HttpError(400, f"Request did not match expected format {called}.") from None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            raise HttpError(400, f"Field {field} must not be omitted or be null.") from None
        raise HttpError(400, f"Request did not match expected format {called}. {field}: {first['msg']}") from None


def body_schema(model: type[BaseModel], *, required: bool = False) -> dict[str, Any]:
    """`openapi_extra` for a route that reads its body with `body_as`."""
    schema = model.model_json_schema(by_alias=True)
    inlined = _inlined(schema, schema.pop("$defs", {}))
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": inlined}}}}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema with its references replaced by definitions, as they would be dangling in the whole document. No body is
    recursive."""
    match schema:
        case {"$ref": str(reference)}:
            return _inlined(definitions[reference.rpartition("/")[2]], definitions)
        case dict():
            return {key: _inlined(value, definitions) for key, value in schema.items()}
        case list():
            return [_inlined(value, definitions) for value in schema]
        case _:
            return schema
