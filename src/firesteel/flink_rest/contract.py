"""What all resources of the contract share: the form of errors, and the texts of common ones."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Path
from typing_extensions import TypedDict

from firesteel.rest.errors import HttpError
from firesteel.rest.params import HEX_ID
from firesteel.types import JobID


class Errors(TypedDict):
    errors: list[str]


ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": Errors, "description": "The request is malformed."},
    403: {"model": Errors, "description": "The caller is not allowed to do this."},
    404: {"model": Errors, "description": "The resource does not exist, or the caller may not see it."},
    409: {"model": Errors, "description": "The state of the job does not allow this."},
}
"""`responses` of the routers, for the OpenAPI document."""

_LONGEST_SHOWN = 100


def no_job(job_id: JobID) -> HttpError:
    return HttpError(404, f"Job {job_id} not found")


def no_vertex(vertex: str) -> HttpError:
    return HttpError(404, f"No vertex with ID '{vertex}' exists.")


def bad_query(name: str, value: str) -> HttpError:
    shown = value if len(value) <= _LONGEST_SHOWN else f"{value[:_LONGEST_SHOWN]}..."
    return HttpError(
        400, f'Bad request, could not parse parameters: Cannot resolve query parameter ({name}) from value "{shown}".'
    )


async def _vertex_id(vertexid: Annotated[str, Path(pattern=HEX_ID, description="32 hex digits")]) -> str:
    return vertexid.lower()


VertexIdParam = Annotated[str, Depends(_vertex_id)]
"""`{vertexid}` in the path."""
LARGEST_INT = 2**31 - 1
SubtaskParam = Annotated[int, Path(alias="subtaskindex", ge=0, le=LARGEST_INT)]
AttemptParam = Annotated[int, Path(alias="attempt", ge=0, le=LARGEST_INT)]
