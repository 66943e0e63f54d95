"""Small jobs. They run on an engine that never answers, so what they say is all that matters."""

from __future__ import annotations

import copy
from typing import Any

BATCH: dict[str, Any] = {
    "name": "small",
    "vertices": [
        {"kind": "source", "name": "a", "format": "csv", "path": "/nonexistent/in", "schema": "id INT"},
        {"kind": "sql", "name": "q", "query": "SELECT * FROM a"},
        {"kind": "sink", "name": "o", "input": "q", "format": "csv", "path": "/nonexistent/out"},
    ],
}
STREAM: dict[str, Any] = {**BATCH, "mode": "streaming"}


def changed(graph: dict[str, Any], *path: str | int, to: Any) -> dict[str, Any]:
    """The graph with another value at `path`."""
    whole = copy.deepcopy(graph)
    place: Any = whole
    for part in path[:-1]:
        place = place.setdefault(part, {}) if isinstance(place, dict) else place[part]
    place[path[-1]] = to
    return whole
