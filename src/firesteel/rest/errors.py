"""The HTTP status of each error. Domain errors do not know HTTP; the lookup follows the ancestors of the class."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from firesteel.errors import (
    BlobNotFoundError,
    DuplicateJobError,
    FencingError,
    FiresteelError,
    ForbiddenError,
    InvalidInputError,
    JobNotFoundError,
    JobStateError,
    NotLeadingError,
    OperationNotFoundError,
    QuotaExceededError,
    RateLimitedError,
    ResourcesUnavailableError,
    SavepointError,
    StoreError,
    TooLargeError,
    UnauthenticatedError,
    WorkerNotFoundError,
    WorkerStateError,
)
from firesteel.rest.answers import errors

logger = logging.getLogger(__name__)

STATUS: Mapping[type[FiresteelError], int] = {
    InvalidInputError: 400,
    UnauthenticatedError: 401,
    ForbiddenError: 403,
    JobNotFoundError: 404,
    OperationNotFoundError: 404,
    BlobNotFoundError: 404,
    WorkerNotFoundError: 404,
    DuplicateJobError: 409,
    JobStateError: 409,
    SavepointError: 409,
    WorkerStateError: 409,
    ResourcesUnavailableError: 400,
    TooLargeError: 413,
    QuotaExceededError: 413,
    RateLimitedError: 429,
    NotLeadingError: 503,
    FencingError: 503,
    StoreError: 503,
}
RETRY_AFTER = "1"
"""Seconds of `Retry-After`, for conditions that may soon change."""


class HttpError(FiresteelError):
    """An answer whose text the contract prescribes."""

    def __init__(self, status: int, *messages: str) -> None:
        self.status = status
        self.messages = messages
        super().__init__("; ".join(messages))


def status_of(error: FiresteelError) -> int:
    return next((STATUS[c] for c in type(error).__mro__ if c in STATUS), 500)


def error_answer(error: Exception) -> Response:
    """The answer for an error. An unexpected error gets an id, which is also in the log, and no details (S35)."""
    match error:
        case HttpError():
            return errors(error.status, error.messages)
        case InvalidInputError():
            return errors(400, [str(p) for p in error.problems])
        case FiresteelError() if (status := status_of(error)) != 500:
            headers: dict[str, str] = {}
            if status == 503:
                headers["retry-after"] = RETRY_AFTER
            if isinstance(error, RateLimitedError):
                headers["retry-after"] = str(math.ceil(error.retry_after))
            if status == 401:
                headers["www-authenticate"] = "Bearer"
            return errors(status, [str(error)], headers)
    error_id = uuid.uuid4().hex[:12]
    logger.error("error %s: %s", error_id, error, exc_info=error)
    return errors(500, ["Internal server error.", f"See the log of the node for the error id {error_id}."])


def install(app: FastAPI) -> None:
    """Answer every error of `app` as in the contract."""

    async def on_error(_: Request, error: Exception) -> Response:
        return error_answer(error)

    async def on_disconnect(_: Request, __: Exception) -> Response:
        # This answer is not sent: the client is gone, or the door has answered. It is not an error of ours either.
        return errors(400, ["The request was interrupted."])

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code in (404, 405):
            return not_found(request)
        return errors(error.status_code, [str(error.detail)])

    async def on_validation(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return errors(400, [unparsable(e) for e in error.errors()[:1]])

    app.add_exception_handler(FiresteelError, on_error)
    app.add_exception_handler(ClientDisconnect, on_disconnect)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(Exception, on_error)


def not_found(request: Request) -> Response:
    """The contract has no 405; a missing path or method is 404."""
    path = request.scope.get("firesteel.path", request.url.path)
    if request.method == "GET":
        return errors(404, [f"Unable to load requested file {path}."])
    return errors(404, [f"Not found: {path}"])


def unparsable(error: Mapping[str, Any]) -> str:
    where, name = (*error["loc"], "", "")[:2]
    kind = "path" if where == "path" else "query"
    return (
        "Bad request, could not parse parameters: "
        f'Cannot resolve {kind} parameter ({name}) from value "{_shown(error.get("input"))}".'
    )


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
