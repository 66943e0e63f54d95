"""Answers as bytes. The spelling on the wire is the contract's, down to the content type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.responses import Response

JSON = "application/json; charset=UTF-8"
Json = dict[str, Any]
"""An object, on its way out."""


def encode(content: Any) -> bytes:
    """JSON; a float that is no number becomes null, so use the text "NaN" where the contract wants it."""
    return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return encoded(encode(content), status, headers)


def encoded(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """For bodies that were put together from parts."""
    return Response(body, status, {**(headers or {}), "content-type": JSON})


def errors(status: int, messages: Sequence[str], headers: Mapping[str, str] | None = None) -> Response:
    """The contract's error body: `errors` and nothing else, or its clients take it for a broken answer."""
    return encoded(error_body(messages), status, headers)


def error_body(messages: Sequence[str]) -> bytes:
    """Whatever is in a message can be sent: what is no Unicode, from the name of a file say, becomes a question mark."""
    return json.dumps({"errors": list(messages)}, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
