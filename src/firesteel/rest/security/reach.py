"""Paths that are reserved for some roles, and roles that may use nothing else (S47).

The door checks them before any route is called, so no route can forget it.
"""

from __future__ import annotations

import re

from firesteel.config.sections import Role
from firesteel.rest.security.principals import SCRAPED, Principal

JOIN_PATH = "/workers/join"
WORKERS_VERBS_OF_PEOPLE = frozenset({"drain", "undrain", "lost"})
"""Requests of people below the path of a worker. All others there come from the worker itself."""
_OF_WORKER = re.compile(r"/workers/([^/]+)/([^/]+)(?:/.*)?", re.DOTALL)
_BLOB = re.compile(r"/blobs/[0-9a-fA-F]{64}")


def out_of_reach(principal: Principal, method: str, path: str) -> str | None:
    """Why the principal may not send this request; None when the route decides."""
    path = path.rstrip("/") or "/"
    path = path.removeprefix("/v1") if path.startswith("/v1/") else path
    match principal.role:
        case Role.SCRAPER if method not in ("GET", "HEAD") or path != SCRAPED:
            return f"{principal.name} has the role scraper, which may only read {SCRAPED}."
        case Role.JOINER if (method, path) != ("POST", JOIN_PATH):
            return f"A join token may only be used to join (POST {JOIN_PATH})."
        case Role.WORKER if not _is_for_worker(principal.name, method, path):
            return f"{principal.name} has the role worker, which may only report on itself and fetch files of jobs."
    if principal.role is not Role.JOINER and path == JOIN_PATH:
        return "Only workers may join, with a token from `firesteel worker token`."
    if principal.role is not Role.WORKER and (found := _OF_WORKER.fullmatch(path)):
        return None if found[2] in WORKERS_VERBS_OF_PEOPLE else "Only the worker itself may send this request."
    return None


def _is_for_worker(worker: str, method: str, path: str) -> bool:
    if found := _OF_WORKER.fullmatch(path):
        return found[1] == worker and found[2] not in WORKERS_VERBS_OF_PEOPLE
    return method in ("GET", "HEAD") and _BLOB.fullmatch(path) is not None
