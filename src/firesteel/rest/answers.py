"""Answers as bytes, spelled as in Flink's contract, down to the content type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.responses import Response

JSON = "application/json; charset=UTF-8"
Json = dict[str, Any]
"""An object to be sent."""


def encode(content: Any) -> bytes:
    """JSON; a float NaN becomes null, so use the text "NaN" where the contract requires it."""
    return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return encoded(encode(content), status, headers)


def encoded(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer whose body was assembled from parts."""
    return Response(body, status, {**(headers or {}), "content-type": JSON})


def errors(status: int, messages: Sequence[str], headers: Mapping[str, str] | None = None) -> Response:
    """The contract's error body: only `errors`, as its clients consider anything else a malformed answer."""
    return encoded(error_body(messages), status, headers)


def error_body(messages: Sequence[str]) -> bytes:
    """The body for any messages: text that is not valid Unicode, say from a file name, becomes a question mark."""
    return json.dumps({"errors": list(messages)}, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
