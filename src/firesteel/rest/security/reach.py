"""Paths that some callers alone may use, and callers that may use nothing else (S47).

The door asks before any route is looked for, so there is no route that could forget it.
"""

from __future__ import annotations

import re

from firesteel.config.sections import Role
from firesteel.rest.security.principals import SCRAPED, Principal

JOIN_PATH = "/workers/join"
WORKERS_VERBS_OF_PEOPLE = frozenset({"drain", "undrain", "lost"})
"""What people say of a worker, below its path. Everything else there is said by the worker itself."""
_OF_WORKER = re.compile(r"/workers/([^/]+)/([^/]+)(?:/.*)?", re.DOTALL)
_BLOB = re.compile(r"/blobs/[0-9a-fA-F]{64}")


def out_of_reach(principal: Principal, method: str, path: str) -> str | None:
    """Why the principal may not even ask for this; None when a route decides."""
    path = path.rstrip("/") or "/"
    path = path.removeprefix("/v1") if path.startswith("/v1/") else path
    match principal.role:
        case Role.SCRAPER if method not in ("GET", "HEAD") or path != SCRAPED:
            return f"{principal.name} is a scraper, who may read {SCRAPED} and nothing else."
        case Role.JOINER if (method, path) != ("POST", JOIN_PATH):
            return f"A join token is for joining (POST {JOIN_PATH}) and nothing else."
        case Role.WORKER if not _is_for_worker(principal.name, method, path):
            return f"{principal.name} is a worker, who may speak for itself, fetch files of jobs, and nothing else."
    if principal.role is not Role.JOINER and path == JOIN_PATH:
        return "Workers join with a token of `firesteel worker token`."
    if principal.role is not Role.WORKER and (found := _OF_WORKER.fullmatch(path)):
        return None if found[2] in WORKERS_VERBS_OF_PEOPLE else "Only the worker itself may speak for itself."
    return None


def _is_for_worker(worker: str, method: str, path: str) -> bool:
    if found := _OF_WORKER.fullmatch(path):
        return found[1] == worker and found[2] not in WORKERS_VERBS_OF_PEOPLE
    return method in ("GET", "HEAD") and _BLOB.fullmatch(path) is not None
