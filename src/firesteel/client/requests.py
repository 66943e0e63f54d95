"""Requests as values, and the errors that answers stand for. This module does no I/O."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from firesteel.client.errors import ClusterError
from firesteel.errors import (
    FiresteelError,
    ForbiddenError,
    InvalidRequestError,
    JobNotFoundError,
    JobStateError,
    Problem,
    RateLimitedError,
    TooLargeError,
    UnauthenticatedError,
)
from firesteel.types import JobID

RETRIED = frozenset({429, 502, 503, 504})
"""Answers that may change later, or at another node. No other 4xx is ever repeated."""
_LONGEST_SHOWN = 500


@dataclass(frozen=True, slots=True)
class Request:
    """A request. Sending it twice must be the same as sending it once, unless it is marked `once`."""

    method: str
    path: str
    """The path below the address of a node; quoted."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    missing: type[FiresteelError] = ClusterError
    """The error that 404 stands for."""
    conflict: type[FiresteelError] = JobStateError
    """The error that 409 stands for."""
    once: bool = False
    """Whether it must not be sent again once it may have arrived."""

    @property
    def target(self) -> str:
        return f"/v1{self.path}" + (f"?{urlencode(self.query)}" if self.query else "")


def get(path: str, query: Mapping[str, str] | None = None, **meaning: Any) -> Request:
    return Request("GET", path, query or {}, **meaning)


def of_job(job_id: JobID, below: str = "", query: Mapping[str, str] | None = None) -> Request:
    return get(f"/jobs/{job_id}{below}", query, missing=JobNotFoundError)


def as_json(content: object) -> bytes:
    """Encode the body. Raises InvalidRequestError for values that JSON does not have."""
    try:
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        problem = Problem(f"the request cannot be written as JSON: {error}", "use plain values")
        raise InvalidRequestError([problem]) from None


def with_json(
    method: str,
    path: str,
    content: Mapping[str, Any],
    query: Mapping[str, str] | None = None,
    *,
    graph: bytes | None = None,
    **meaning: Any,
) -> Request:
    """A request with a JSON object; `graph` is a part of it that is JSON already."""
    body = as_json(content)
    if graph is not None:
        body = b'%b,"graph":%b}' % (body.removesuffix(b"}"), graph)
    return Request(method, path, query or {}, body, {"content-type": "application/json"}, **meaning)


def segment(text: str) -> str:
    """`text` as one part of a path, whatever it holds."""
    return quote(text, safe="")


def error_of(request: Request, status: int, headers: Mapping[str, str], body: bytes) -> FiresteelError:
    """The error that an unsuccessful answer stands for."""
    messages = _messages(body)
    text = "; ".join(messages)
    match status:
        case 400:
            return InvalidRequestError([Problem(m) for m in messages] or [Problem(f"{_called(request)} was refused")])
        case 401:
            return UnauthenticatedError(text or "authentication required — set client.token")
        case 403:
            return ForbiddenError(text or f"{_called(request)} is not allowed with these credentials")
        case 404 if request.missing is not ClusterError:
            return request.missing(text or f"{_called(request)}: not found")
        case 409:
            return request.conflict(text or f"{_called(request)}: not possible in its current state")
        case 413:
            return TooLargeError(text or f"{_called(request)}: too large")
        case 429:
            return RateLimitedError(text or "too many requests", retry_after(headers) or 1.0)
        case _ if 300 <= status < 400:
            # Following it would show the credentials to any address that the answer names (S32).
            message = (
                f"{_called(request)} was answered with a redirect to {_shown(headers.get('location', 'nowhere'))}, "
                "which is not followed — if you trust that address, set client.addresses to it"
            )
            return ClusterError(message, status=status)
    said = text or _shown(body.decode("utf-8", "replace").strip()) or "nothing more"
    return ClusterError(f"{_called(request)} was answered with {status}: {said}", status=status, messages=messages)


def retry_after(headers: Mapping[str, str]) -> float:
    """The pause in seconds that an answer asks for; 0 when it asks for none, or in a form that we do not read."""
    try:
        seconds = float(headers.get("retry-after", "0"))
    except ValueError:
        return 0.0  # a date: the clocks of two machines are not worth the trouble
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def _messages(body: bytes) -> list[str]:
    try:
        data = json.loads(body)
    except ValueError:
        return []
    errors = data.get("errors") if isinstance(data, dict) else None
    return [str(e) for e in errors] if isinstance(errors, list) else []


def _called(request: Request) -> str:
    return f"{request.method} {request.path}"


def _shown(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
