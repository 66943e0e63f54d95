"""Flink's dashboard below `/flink/`: its files, and the API at the paths that it expects.

The files are Flink's and are not part of Firesteel. Only files that were in the directory when the node started are served,
by exact name.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.responses import Response
from starlette.types import Scope

from firesteel.errors import InvalidConfigError, Problem
from firesteel.fs.files import NotAPlainFileError
from firesteel.rest.answers import errors
from firesteel.rest.dashboard_files import INDEX, KINDS, TooManyFilesError, plain_files, read_plain

logger = logging.getLogger(__name__)

FLINK = "/flink"
_ON_EVENT = re.compile(rb"""\son[a-z]+=(?:"([^"]*)"|'([^']*)')""")


@dataclass(frozen=True, slots=True)
class FlinkFiles:
    """The served files by their paths below `/flink/`."""

    by_name: Mapping[str, Path]
    policy: bytes

    @staticmethod
    def of(directory: Path) -> FlinkFiles:
        """Raises InvalidConfigError when there is no dashboard."""
        try:
            found = dict(plain_files(directory))
        except TooManyFilesError as error:
            raise _no_dashboard(directory, str(error)) from None
        if INDEX not in found:
            raise _no_dashboard(directory, f"has no {INDEX}")
        return FlinkFiles(found, policy_for(found[INDEX].read_bytes()))

    async def answer(self, path: str) -> Response | None:
        """The file at that path below `/flink`; None when there is none."""
        file = self.by_name.get(path.removeprefix("/") or INDEX)
        if file is None:
            return None
        try:
            content = await asyncio.to_thread(read_plain, file)
        except (OSError, NotAPlainFileError) as error:
            logger.warning("%s of Flink's dashboard cannot be read: %s", file, error)
            return errors(404, ["This file of the dashboard was removed; restart the node."])
        return Response(content, headers={"content-type": KINDS[file.suffix]})


def below_flink(path: str) -> str | None:
    """A path below `/flink` without that prefix; None for any other path."""
    return path.removeprefix(FLINK) if path.startswith(f"{FLINK}/") else None


def without_prefix(scope: Scope) -> Scope:
    """The same request without the prefix: Flink's dashboard sends requests below the path that it was loaded from."""
    raw: bytes = scope["raw_path"]
    return {
        **scope,
        "path": scope["path"].removeprefix(FLINK),
        "raw_path": raw.removeprefix(FLINK.encode()),
    }


def policy_for(page: bytes) -> bytes:
    """Allow only scripts of the node, the page's own handlers by their hashes, and all styles, as it makes some at run time."""
    handlers = {a or b for a, b in _ON_EVENT.findall(page)}
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(h).digest()).decode()}'" for h in sorted(handlers)]
    scripts = " ".join(["'self'", *(["'unsafe-hashes'", *hashes] if hashes else [])])
    parts = (
        "default-src 'none'",
        f"script-src {scripts}",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "manifest-src 'self'",
        "base-uri 'self'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return "; ".join(parts).encode()


def _no_dashboard(directory: Path, why: str) -> InvalidConfigError:
    fix = "name the unpacked directory `web` of Flink's flink-dist jar, or remove the option"
    return InvalidConfigError([Problem(f"web.flink-dashboard.dir: {directory} {why}", fix)])
