"""Uploaded programs, which take the place of the contract's jars: Python code and pipelines."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Depends, Path
from starlette.requests import Request
from starlette.responses import Response

from firesteel.blob.keys import BlobKey, BlobRef, parse_blob_name
from firesteel.config.sections import Role
from firesteel.config.values import memory_bytes
from firesteel.errors import ForbiddenError, TooLargeError
from firesteel.flink_rest.archives import has_main, has_module
from firesteel.flink_rest.contract import ERRORS
from firesteel.flink_rest.multipart import file_part
from firesteel.flink_rest.programs import ARCHIVES, MAIN, PIPELINES, kind_of, no_entry, plan_of, source_of
from firesteel.flink_rest.run_requests import ProgramQuery, ProgramRequestBody, Wish, wish_of
from firesteel.jobgraph.admission import NETWORK, AllowedPlaces, SubmittedDocument
from firesteel.rest.answers import Json, answer
from firesteel.rest.context import Caller, CallerParam, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.native.submit import accept, admit, admit_submission
from firesteel.rest.params import body_as, body_schema
from firesteel.rest.security.principals import may_read, may_write, require
from firesteel.rest.states import ms
from firesteel.stores.uploads import Upload, is_upload_id, new_upload_id
from firesteel.types import JobID, new_job_id

router = APIRouter(
    tags=["jars"],
    responses={
        **ERRORS,
        413: {"model": ERRORS[400]["model"], "description": "More bytes, or more programs, than allowed."},
    },
)

UPLOADS = "jars"
"""The prefix of the id in the answer to an upload. Clients use the last part; the real path of the file is not revealed."""

JarIdParam = Annotated[str, Path(alias="jarid", max_length=255, description="The id of an uploaded program")]
QueryParam = Annotated[ProgramQuery, Depends()]


_FILE = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "properties": {"jarfile": {"type": "string", "format": "binary"}}}
            }
        },
    }
}


@router.get("/jars", summary="The uploaded programs that the caller may see")
async def list_programs(request: Request, context: Context, caller: CallerParam) -> Response:
    seen = [u for u in await context.gateway.list_uploads() if may_read(caller.principal, u.owner)]
    address = context.address or str(request.base_url).rstrip("/")
    return answer(render_list(address, seen))


@router.post("/jars/upload", summary="Upload a program", openapi_extra=_FILE)
async def upload_program(request: Request, context: Context, caller: CallerParam) -> Response:
    """A `.py`, `.zip` or `.whl`, or a pipeline as `.yaml` or `.json`; one file, in a field of any name."""
    principal = caller.principal
    require(principal, Role.OPERATOR)
    context.check_open_to(principal)
    part = await file_part(request)
    name = _checked_name(part.name)
    suffix = kind_of(name)
    owner = principal.submits_as
    info = await context.blobs.put(part.chunks, owner=owner)
    entry = MAIN if suffix == ".py" else ""
    if suffix in ARCHIVES and await has_main(context, BlobRef(info.key, name)):
        entry = MAIN
    upload = Upload(new_upload_id(name), name, info.key, info.size, time.time(), owner, entry)
    await context.gateway.register_upload(upload)
    message: Json = {"filename": f"{UPLOADS}/{upload.upload_id}", "status": "success"}
    return answer(message)


@router.delete("/jars/{jarid}", summary="Remove an uploaded program; its jobs continue")
async def delete_program(context: Context, caller: CallerParam, jar_id: JarIdParam) -> Response:
    require(caller.principal, Role.OPERATOR)
    upload = await _find(context, caller, jar_id)
    if upload is None:
        raise HttpError(400, f"File {jar_id} does not exist in {UPLOADS}.")
    _check_write(caller, upload)
    # The file itself is collected later, unless a job needs it.
    await context.gateway.remove_upload(upload.upload_id)
    return answer({})


@router.get("/jars/{jarid}/plan", summary="The graph that would run")
async def show_plan(context: Context, caller: CallerParam, jar_id: JarIdParam, query: QueryParam) -> Response:
    return await _plan(context, caller, jar_id, wish_of(query, ProgramRequestBody()))


@router.post(
    "/jars/{jarid}/plan",
    summary="The graph that would run",
    openapi_extra=body_schema(ProgramRequestBody),
)
async def make_plan(
    request: Request, context: Context, caller: CallerParam, jar_id: JarIdParam, query: QueryParam
) -> Response:
    body = await body_as(request, ProgramRequestBody, "JarPlanRequestBody")
    return await _plan(context, caller, jar_id, wish_of(query, body))


@router.post("/jars/{jarid}/run", summary="Run a program as a job", openapi_extra=body_schema(ProgramRequestBody))
async def run_program(
    request: Request, context: Context, caller: CallerParam, jar_id: JarIdParam, query: QueryParam
) -> Response:
    body = await body_as(request, ProgramRequestBody, "JarRunRequestBody")
    job_id = await _run(request, context, caller, jar_id, wish_of(query, body))
    message: Json = {"jobid": job_id, "applicationId": job_id}
    return answer(message)


@router.post(
    "/jars/{jarid}/run-application",
    status_code=202,
    summary="Run a program as an application, which is a job",
    openapi_extra=body_schema(ProgramRequestBody),
)
async def run_application(
    request: Request, context: Context, caller: CallerParam, jar_id: JarIdParam, query: QueryParam
) -> Response:
    body = await body_as(request, ProgramRequestBody, "JarRunApplicationRequestBody")
    job_id = await _run(request, context, caller, jar_id, wish_of(query, body))
    message: Json = {"applicationid": job_id}
    return answer(message, 202)


async def _plan(context: RestContext, caller: Caller, jar_id: str, wish: Wish) -> Response:
    source = await _source(context, caller, jar_id, wish)
    admitted = await context.checks.admit(caller.principal.submits_as, source, NETWORK)
    return answer({"plan": await context.checks.in_thread(plan_of, admitted.graph, wish.job_id)})


async def _run(request: Request, context: RestContext, caller: Caller, jar_id: str, wish: Wish) -> JobID:
    admit_submission(context, caller)
    source = await _source(context, caller, jar_id, wish, to_run=True)
    admitted = await admit(context, caller, source, places=AllowedPlaces.UPLOADS)
    job_id = wish.job_id or new_job_id()
    if (audit := request.scope.get("firesteel.audit")) is not None:
        audit["job_id"] = job_id
    await accept(context, caller, admitted, job_id=job_id)
    return job_id


async def _source(
    context: RestContext, caller: Caller, jar_id: str, wish: Wish, *, to_run: bool = False
) -> SubmittedDocument:
    upload = await _find(context, caller, jar_id)
    if upload is None:
        raise HttpError(404, f"Jar file {jar_id} does not exist")
    if to_run:
        _check_write(caller, upload)
    kind = kind_of(upload.name)
    if kind in ARCHIVES and wish.entry and wish.entry != MAIN:
        ref = BlobRef(BlobKey(upload.key), upload.name)
        if not await has_module(context, ref, wish.entry):
            raise no_entry(upload, wish.entry, "name a module in it")
    text = await _text(context, upload) if kind in PIPELINES else None
    return source_of(upload, text, wish)


async def _find(context: RestContext, caller: Caller, jar_id: str) -> Upload | None:
    """The program of that id; programs of other owners count as missing."""
    if not is_upload_id(jar_id):
        return None
    uploads = await context.gateway.list_uploads()
    return next((u for u in uploads if u.upload_id == jar_id and may_read(caller.principal, u.owner)), None)


def _check_write(caller: Caller, upload: Upload) -> None:
    if not may_write(caller.principal, upload.owner):
        raise ForbiddenError(
            f"{caller.principal.name} may not run or delete what {upload.owner} uploaded; upload your own"
        )


async def _text(context: RestContext, upload: Upload) -> bytes:
    """The text of a pipeline, with the size limit of a submitted one."""
    limit = memory_bytes(context.configuration.rest.max_content_length)
    if upload.size > limit:
        raise TooLargeError(f"the pipeline {upload.name} has {upload.size:,} bytes, but at most {limit:,} are allowed")
    _, chunks = await context.blobs.open_read(BlobKey(upload.key))
    return b"".join([chunk async for chunk in chunks])


def _checked_name(name: str) -> str:
    try:
        return parse_blob_name(name)
    except ValueError as error:
        raise HttpError(400, str(error)) from error


def render_list(address: str, uploads: list[Upload]) -> Json:
    """Newest first."""
    return {
        "address": address,
        "files": [
            {
                "id": u.upload_id,
                "name": u.name,
                "uploaded": ms(u.uploaded_at),
                "entry": [{"name": u.entry, "description": None}] if u.entry else [],
            }
            for u in reversed(uploads)
        ],
    }
