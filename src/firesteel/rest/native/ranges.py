"""Parts of files by HTTP's `Range`, one range of bytes per request."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from starlette.responses import Response, StreamingResponse

from firesteel.rest.answers import errors

_RANGE = re.compile(r"bytes[ \t]*=[ \t]*(?P<first>[0-9]{0,18})[ \t]*-[ \t]*(?P<last>[0-9]{0,18})[ \t]*", re.IGNORECASE)


class Part(NamedTuple):
    """Bytes [start, end) of `size`."""

    start: int
    end: int
    size: int
    asked: bool = False
    """Whether the client asked for a range, so that the answer has to name it."""


def part_of(header: str | None, size: int) -> Part | None:
    """The part that a `Range` header asks for; None when it is outside of the file.

    A malformed header, or one with several ranges, is ignored (RFC 9110, 14.2).
    """
    match = _RANGE.fullmatch(header) if header else None
    if match is None or (not match["first"] and not match["last"]):
        return Part(0, size, size)
    if not match["first"]:
        wanted = min(int(match["last"]), size)
        return Part(size - wanted, size, size, asked=True) if wanted else None
    start = int(match["first"])
    end = min(int(match["last"]) + 1, size) if match["last"] else size
    if match["last"] and int(match["last"]) < start:
        return Part(0, size, size)  # not a range at all
    return Part(start, end, size, asked=True) if start < size else None


def part_answer(body: AsyncIterator[bytes], part: Part, headers: Mapping[str, str]) -> Response:
    said = {**headers, "accept-ranges": "bytes", "content-length": str(part.end - part.start)}
    if part.asked:
        said["content-range"] = f"bytes {part.start}-{part.end - 1}/{part.size}"
    return StreamingResponse(body, 206 if part.asked else 200, said)


def unsatisfiable(size: int) -> Response:
    message = f"The range is not in the file, which has {size} bytes."
    return errors(416, [message], {"content-range": f"bytes */{size}"})
