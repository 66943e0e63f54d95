"""Whether one path is inside another, however both are spelled."""

from __future__ import annotations

import os
import posixpath
import re

from firesteel.errors import FiresteelError
from firesteel.fs.store import locate

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def below(path: str, root: str) -> str | None:
    """`path` from `root`, empty when it is the root itself; None when it is elsewhere."""
    (protocol, place), (other, above) = _resolved(path), _resolved(root)
    if protocol != other:
        return None
    if place == above:
        return ""
    above = above.rstrip("/") + "/"
    return place[len(above) :] if place.startswith(above) else None


def _resolved(path: str) -> tuple[str, str]:
    """The file system of a path, and the one spelling that the path has there."""
    scheme = _SCHEME.match(path)
    if scheme is not None:
        path = scheme[0].lower() + path[scheme.end() :]
    try:
        location = locate(path, "", {})
        protocol, root = location.protocol, location.root
    except FiresteelError:  # one that only Spark knows
        protocol, _, root = path.partition("://")
    root = "/" + root.lstrip("/")
    return protocol, os.path.realpath(root) if protocol == "file" else posixpath.normpath(root)
