"""Log files of nodes and engines: a fixed set of names in known directories. Names in requests are never paths (S4)."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from starlette.responses import Response, StreamingResponse

from firesteel.errors import ForbiddenError
from firesteel.flink_rest.cluster import sees_all
from firesteel.rest.answers import Json
from firesteel.rest.logs import read_range
from firesteel.rest.security.principals import Principal

TEXT = "text/plain"
"""Without a charset, as in the contract."""

LogFiles = Mapping[str, Path]
"""The names of logs, and their files."""


def require_all(principal: Principal) -> None:
    """Check that the caller may see all owners: logs of nodes and engines mention the jobs of all of them (S19)."""
    if not sees_all(principal):
        raise ForbiddenError(
            f"{principal.name} may only see jobs of {principal.owner}, but logs of nodes and engines cover all owners; "
            "read the logs of a job (/jobs/<id>/logs/stderr), or ask an admin"
        )


async def listed(files: LogFiles) -> Json:
    """The existing files."""
    return await asyncio.to_thread(_listed, files)


def _listed(files: LogFiles) -> Json:
    found: list[Json] = []
    for name, path in files.items():
        if (there := _regular(path)) is not None:
            found.append({"name": name, "size": there.st_size, "mtime": round(there.st_mtime * 1000)})
    return {"logs": found}


async def text_of(path: Path | None) -> Response | None:
    """The current content of the file; None when there is none."""
    there = None if path is None else await asyncio.to_thread(_regular, path)
    if path is None or there is None:
        return None
    # Without a content length: a log may be truncated while it is read.
    return StreamingResponse(read_range(path, 0, there.st_size), headers={"content-type": TEXT})


def empty_text() -> Response:
    return Response(b"", headers={"content-type": TEXT})


def _regular(path: Path) -> os.stat_result | None:
    """The status of a regular file; None for anything else, including links."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None
