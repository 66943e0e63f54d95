"""Flink's dashboard under the node's own address: its files, and how a browser enters.

The files are Flink's and are not shipped. What is served is what was in the directory when the node started, by exact name:
no path of a request is ever a path on the disk (S4).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firesteel.errors import InvalidConfigError, Problem
from firesteel.fs.files import NotAPlainFileError, open_plain
from firesteel.rest.answers import answer, errors
from firesteel.rest.security.answers import POLICY
from firesteel.rest.security.principals import Principal
from firesteel.rest.security.sessions import LINK_SECONDS, Sessions, set_cookie

logger = logging.getLogger(__name__)

LINKS = "/dashboard/links"
ENTER = "/dashboard/enter/"
INDEX = "index.html"
KINDS: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".ttf": "font/ttf",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
NONE_HERE = (
    "This node serves no dashboard; set web.flink-dashboard.dir to the directory with Flink's files and restart it."
)
MOST_FILES = 5000
LARGEST = 32 << 20
_ON_EVENT = re.compile(rb"""\son[a-z]+=(?:"([^"]*)"|'([^']*)')""")


@dataclass(frozen=True, slots=True)
class Files:
    """What is served, by the path of its address."""

    by_name: Mapping[str, Path]
    policy: bytes

    @staticmethod
    def of(directory: Path) -> Files:
        """Raises InvalidConfigError when there is no dashboard."""
        found: dict[str, Path] = {}
        for parent, _, names in os.walk(directory):  # does not follow links
            for name in names:
                path = Path(parent, name)
                facts = path.lstat()
                if path.suffix in KINDS and stat.S_ISREG(facts.st_mode) and facts.st_size <= LARGEST:
                    found[path.relative_to(directory).as_posix()] = path
                if len(found) > MOST_FILES:
                    raise _no_dashboard(directory, f"has more than {MOST_FILES} files")
        if INDEX not in found:
            raise _no_dashboard(directory, f"has no {INDEX}")
        return Files(found, policy_for(found[INDEX].read_bytes()))

    def find(self, path: str) -> Path | None:
        return self.by_name.get(path.removeprefix("/") or INDEX)


def policy_for(page: bytes) -> bytes:
    """Scripts of the node only. The page's own handlers are let in by what they say; styles, which it makes as it runs, all."""
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
    fix = "name the directory `web` of Flink's flink-dist jar, unpacked, or remove the option"
    return InvalidConfigError([Problem(f"web.flink-dashboard.dir: {directory} {why}", fix)])


class Dashboard:
    """ASGI middleware behind the door, on every node: links, sessions and files are the node's own.

    Without files it only says that there is no dashboard. `address` is the node's.
    """

    def __init__(self, app: ASGIApp, files: Files | None, sessions: Sessions, address: Callable[[], str]) -> None:
        self._app = app
        self._files = files
        self._sessions = sessions
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(scope) if scope["type"] == "http" else None
        if response is None:
            await self._app(scope, receive, send)
            return

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start" and self._files is not None:
                message = {**message, POLICY: self._files.policy}
            await send(message)

        await response(scope, receive, with_policy)

    async def _answer(self, scope: Scope) -> Response | None:
        method, path = scope["method"], scope["path"]
        tls = scope.get("scheme") == "https"
        if path.removeprefix("/v1") == LINKS and method == "POST":
            if self._files is None:
                return errors(404, [NONE_HERE])
            principal: Principal = scope["firesteel.principal"]
            link = f"{self._address()}{ENTER}{self._sessions.link(principal)}"
            return answer({"link": link, "seconds": LINK_SECONDS}, 201)
        if self._files is None:
            return None
        if path.startswith(ENTER):
            if method != "GET":
                return errors(405, ["A link is opened with GET."])
            cookie = self._sessions.begin(path.removeprefix(ENTER))
            if cookie is None:
                return errors(403, ["This link was used before, or is too old; `firesteel dashboard` makes a new one."])
            return Response(status_code=303, headers={"location": "/", "set-cookie": set_cookie(cookie, tls=tls)})
        if method not in ("GET", "HEAD") or (file := self._files.find(path)) is None:
            return None
        try:
            content = await asyncio.to_thread(_read, file)
        except (OSError, NotAPlainFileError) as error:
            logger.warning("%s of the dashboard cannot be read: %s", file, error)
            return errors(404, ["This file of the dashboard is gone; restart the node."])
        return Response(content, headers={"content-type": KINDS[file.suffix]})


def _read(file: Path) -> bytes:
    """Not through a link, should somebody have put one there since."""
    with open_plain(file, os.O_NOFOLLOW) as opened:
        return opened.read(LARGEST)
