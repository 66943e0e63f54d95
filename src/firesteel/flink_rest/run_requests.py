"""Requests to run an uploaded program, from the query and the body."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from firesteel.flink_rest.aggregation import words
from firesteel.rest.errors import HttpError
from firesteel.rest.params import HEX_ID
from firesteel.types import JobID

MAX_TEXT = 20_000
MAX_ARGS = 1000
LARGEST_INT = 2**31 - 1
ClaimMode = Literal["CLAIM", "NO_CLAIM", "LEGACY"]
_Text = Annotated[str, Field(max_length=MAX_TEXT)]
_Id = Annotated[str, Field(pattern=HEX_ID)]
_Parallelism = Annotated[int, Field(ge=-1, le=LARGEST_INT)]


class ProgramRequestBody(BaseModel):
    """Unknown fields are ignored, as the contract requires."""

    model_config = ConfigDict(extra="ignore")

    entryClass: Annotated[str, Field(max_length=500)] | None = None  # noqa: N815 - the contract's spelling
    programArgsList: Annotated[list[_Text], Field(max_length=MAX_ARGS)] | None = None  # noqa: N815
    programArgs: _Text | None = None  # noqa: N815
    parallelism: _Parallelism | None = None
    jobId: _Id | None = None  # noqa: N815
    applicationId: _Id | None = None  # noqa: N815
    allowNonRestoredState: bool | None = None  # noqa: N815
    savepointPath: _Text | None = None  # noqa: N815
    claimMode: ClaimMode | None = None  # noqa: N815
    restoreMode: ClaimMode | None = None  # noqa: N815
    flinkConfiguration: Annotated[dict[str, str], Field(max_length=MAX_ARGS)] | None = None  # noqa: N815


@dataclass(frozen=True, slots=True)
class ProgramQuery:
    """The same fields in the query, as dashboards send them."""

    entry: Annotated[str | None, Query(alias="entry-class", max_length=500)] = None
    args: Annotated[str | None, Query(alias="programArg", max_length=MAX_TEXT, description="Separated by commas")] = (
        None
    )
    line: Annotated[str | None, Query(alias="program-args", max_length=MAX_TEXT, description="As in a shell")] = None
    parallelism: Annotated[int | None, Query(ge=-1, le=LARGEST_INT)] = None
    savepoint: Annotated[str | None, Query(alias="savepointPath", max_length=MAX_TEXT)] = None
    partial: Annotated[str | None, Query(alias="allowNonRestoredState", pattern="^(true|false|True|False)?$")] = None


@dataclass(frozen=True, slots=True)
class Wish:
    """The combined request."""

    entry: str = ""
    args: tuple[str, ...] = ()
    parallelism: int | None = None
    job_id: JobID | None = None
    savepoint: str | None = None
    allow_non_restored_state: bool = False
    configuration: Mapping[str, str] = field(default_factory=dict)


def wish_of(query: ProgramQuery, body: ProgramRequestBody) -> Wish:
    """The combined request; the body takes precedence. Raises HttpError 400."""
    parallelism = query.parallelism if body.parallelism is None else body.parallelism
    if parallelism == 0:
        raise HttpError(400, "Parallelism must be a positive number, or -1 for the default.")
    job_id = body.jobId or body.applicationId
    partial = (query.partial or "").lower() == "true"
    return Wish(
        entry=(body.entryClass if body.entryClass is not None else query.entry) or "",
        args=_args(query, body),
        parallelism=None if parallelism == -1 else parallelism,
        job_id=JobID(job_id.lower()) if job_id else None,
        savepoint=(_savepoint(query) if body.savepointPath is None else body.savepointPath) or None,
        allow_non_restored_state=partial if body.allowNonRestoredState is None else body.allowNonRestoredState,
        configuration=body.flinkConfiguration or {},
    )


def _savepoint(query: ProgramQuery) -> str | None:
    # Flink 2.3's dashboard also sends the program's arguments under this name; its own field is in the body.
    return None if query.savepoint == query.line else query.savepoint


def _args(query: ProgramQuery, body: ProgramRequestBody) -> tuple[str, ...]:
    if body.programArgsList is not None:
        return tuple(body.programArgsList)
    if body.programArgs is not None:
        return _split(body.programArgs, "programArgs")
    if query.args is not None:
        return tuple(words(query.args))
    return _split(query.line or "", "program-args")


def _split(text: str, name: str) -> tuple[str, ...]:
    """Split into words like a shell, but without expanding or running anything (S11)."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise HttpError(400, f"{name} cannot be split into arguments: {error}; close the quotes") from error
