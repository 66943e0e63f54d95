"""Files that jobs need: uploaded once, named by their content, visible only to their owner (S19)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.blob.keys import BlobKey
from firesteel.blob.store import BlobInfo
from firesteel.config.sections import Role
from firesteel.config.values import memory_bytes
from firesteel.errors import JobStateError, TooLargeError
from firesteel.jobgraph.files import files_in
from firesteel.rest.answers import answer
from firesteel.rest.context import Caller, CallerParam, CallerPrincipal, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.native.logs import RangeHeader
from firesteel.rest.native.ranges import part_answer, part_of, unsatisfiable
from firesteel.rest.security.principals import EVERYBODY, Principal, at_least, require

router = APIRouter(tags=["blobs"])

SHA256 = r"^[0-9a-fA-F]{64}$"
_BINARY: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_UPLOAD = {"requestBody": {"required": True, "content": _BINARY}}
_PART_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The bytes.", "content": _BINARY},
    206: {"description": "A part of them.", "content": _BINARY},
    416: {"description": "The range is not in the file."},
}

KeyParam = Annotated[str, Path(alias="key", pattern=SHA256, description="The SHA-256 of the file.")]


class StoredBlob(TypedDict):
    key: str
    size: int


class BlobMessage(TypedDict):
    key: str
    size: int
    created: int
    """Milliseconds since 1970."""


class BlobList(TypedDict):
    blobs: list[BlobMessage]


class Nothing(TypedDict):
    pass


@router.post("/blobs", status_code=201, response_model=StoredBlob, summary="Upload a file", openapi_extra=_UPLOAD)
async def upload(
    request: Request,
    context: Context,
    principal: CallerPrincipal,
    expected: Annotated[
        str | None,
        Header(alias="X-Content-SHA256", pattern=SHA256, description="The expected hash; another file is refused."),
    ] = None,
) -> Response:
    """The body is the file, of any content type. Jobs refer to it as `blob:<key>/<name>`; a file that no job needs is
    removed after a while."""
    require(principal, Role.OPERATOR)
    context.check_open_to(principal)
    limit = memory_bytes(context.configuration.blob.max_size)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:19]) > limit:
        raise TooLargeError(f"the file has {declared[:19]} bytes, but at most {limit:,} are allowed (blob.max-size)")
    try:
        stored = await context.blobs.put(
            request.stream(),
            owner=principal.submits_as,
            expected=None if expected is None else BlobKey(expected.lower()),
        )
    except ClientDisconnect:
        raise HttpError(400, "The upload was interrupted; nothing was stored.") from None
    content: StoredBlob = {"key": stored.key, "size": stored.size}
    return answer(content, 201, {"location": f"/blobs/{stored.key}"})


@router.get("/blobs", response_model=BlobList, summary="Files of the caller")
async def list_blobs(context: Context, principal: CallerPrincipal) -> Response:
    """The newest first; admins see the files of all owners."""
    content: BlobList = {"blobs": [_shown(b) for b in await context.blobs.list(_reads_as(principal))]}
    return answer(content)


@router.get("/blobs/{key}", response_class=Response, responses=_PART_ANSWERS, summary="The content of a file")
async def download(
    context: Context, principal: CallerPrincipal, text: KeyParam, range_: RangeHeader = None
) -> Response:
    key, owner = BlobKey(text.lower()), _reads_as(principal)
    part = part_of(range_, (await context.blobs.info(key, owner)).size)
    if part is None:
        return unsatisfiable((await context.blobs.info(key, owner)).size)
    _, body = await context.blobs.open_read(key, owner, offset=part.start, length=part.end - part.start)
    headers = {
        "content-type": "application/octet-stream",
        "content-disposition": f'attachment; filename="{key}"',
        "etag": f'"{key}"',
        "x-content-type-options": "nosniff",
    }
    return part_answer(body, part, headers)


@router.get("/blobs/{key}/info", response_model=BlobMessage, summary="Size and age of a file")
async def describe(context: Context, principal: CallerPrincipal, text: KeyParam) -> Response:
    key, owner = BlobKey(text.lower()), _reads_as(principal)
    info = await context.blobs.info(key, owner)
    if at_least(principal, Role.OPERATOR):
        # The caller may be about to name it in a job, so it must not be collected in between.
        await context.blobs.touch([key], owner=owner)
    return answer(_shown(info))


@router.delete("/blobs/{key}", response_model=Nothing, summary="Remove a file")
async def remove(context: Context, caller: CallerParam, text: KeyParam) -> Response:
    """Refused while a job that has not ended needs it. An admin removes it for all its uploaders."""
    principal, key = caller.principal, BlobKey(text.lower())
    require(principal, Role.OPERATOR)
    owner = _reads_as(principal)
    await context.blobs.info(key, owner)
    if (what := await _needed_by(context, caller, key)) is not None:
        raise JobStateError(f"{what} needs the file {key}; delete the file afterwards")
    await context.blobs.delete(key, owner)
    return answer({})


async def _needed_by(context: RestContext, caller: Caller, key: BlobKey) -> str | None:
    """What still needs the file: a job that has not ended, or an uploaded program. It is not named if it is not the caller's.

    Other owners who uploaded the same file have their own right to it.
    """

    async def theirs(owner: str) -> bool:
        return not caller.sees(owner) and await context.blobs.visible(key, owner)

    for upload in await context.gateway.list_uploads():
        if upload.key == key and not await theirs(upload.owner):
            return f"the program {upload.upload_id}" if caller.sees(upload.owner) else "another user's program"
    for row in await context.gateway.list_jobs():
        if row.status.terminal or await theirs(row.owner):
            continue
        job = await context.gateway.request_job(row.job_id)
        if any(file.text.startswith(f"blob:{key}/") for file in files_in(job.get("graph"))):
            return f"job {row.job_id}" if caller.sees(row.owner) else "another user's job"
    return None


def _reads_as(principal: Principal) -> str | None:
    """The owner whose files the principal sees; None for all owners."""
    # A worker fetches files of the jobs that it runs by digest, of any owner; the door allows it nothing else.
    everybodys = principal.role in (Role.ADMIN, Role.WORKER) or principal.owner == EVERYBODY
    return None if everybodys else principal.owner


def _shown(blob: BlobInfo) -> BlobMessage:
    return {"key": blob.key, "size": blob.size, "created": round(blob.created * 1000)}
