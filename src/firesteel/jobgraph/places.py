"""The places to which a job graph from the network may point: those that mean the same on every node, and uploads (S9).

What a job reads and writes is Spark's business, by an absolute path or a URL. Files that travel with the job are
references to uploads: the control plane fetches nothing, and opens no path that a caller names, unless it is an admin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from firesteel.blob.keys import BlobRef, is_blob_ref
from firesteel.errors import Problem

from .document import Loc, Locator, vertex_at
from .files import files_in

_PATH_OPTIONS = ("path", "checkpointlocation")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def place_problems(data: Any, at: Locator, *, local_files: bool = False) -> list[Problem]:
    """What is wrong with the places that the graph in `data` (plain JSON) names.

    `local_files` allows files of the node to travel with the job. It is for admins, who could read them anyway.
    """
    if not isinstance(data, dict):
        return []
    found = []
    for file in files_in(data):
        if local_files and file.text.startswith("/"):
            continue
        if message := _not_a_ref(file.text):
            fix = "upload the file (POST /blobs) and refer to it as blob:<sha256>/<name>"
            found.append(at.problem(file.loc, message, fix, vertex=vertex_at(data, file.loc)))
    for loc, path in _paths(data):
        if not is_absolute(path):
            message = f"'{_shown(path)}' is a relative path"
            fix = "give an absolute path, or a URL such as s3a://bucket/path"
            found.append(at.problem(loc, message, fix, vertex=vertex_at(data, loc)))
    return found


def is_absolute(path: str) -> bool:
    """Whether the path means the same wherever Spark reads it."""
    scheme = _SCHEME.match(path)
    if scheme is None:
        return path.startswith("/")
    return scheme[0].lower() != "file:" or path[scheme.end() :].startswith("/")


def _not_a_ref(text: str) -> str:
    if not is_blob_ref(text):
        return f"'{_shown(text)}' is not an uploaded file, and the cluster accepts no others"
    try:
        BlobRef.parse(text)
    except ValueError as error:
        return str(error)
    return ""


def _paths(data: dict[str, Any]) -> Iterator[tuple[Loc, str]]:
    settings = data.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    restore = settings.get("restore")
    savepoint = restore.get("path") if isinstance(restore, dict) else None
    for loc, place in ((("directory",), settings.get("directory")), (("restore", "path"), savepoint)):
        if isinstance(place, str) and place:
            yield ("settings", *loc), place
    for i, vertex in _vertices(data):
        if vertex.get("kind") not in ("source", "sink"):
            continue
        if isinstance(path := vertex.get("path"), str) and path:
            yield ("vertices", i, "path"), path
        options = vertex.get("options")
        for name, value in options.items() if isinstance(options, dict) else ():
            if str(name).lower() in _PATH_OPTIONS and isinstance(value, str):
                yield ("vertices", i, "options", str(name)), value


def _vertices(data: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    vertices = data.get("vertices")
    for i, vertex in enumerate(vertices) if isinstance(vertices, list | tuple) else ():
        if isinstance(vertex, dict):
            yield i, vertex


def _shown(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:97]}..."
