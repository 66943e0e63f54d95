"""Directories of the cluster itself: its data directory, checkpoints and savepoints. Only admins may name a path inside of
them; other callers may only name the checkpoint of a job of theirs (S36).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from firesteel.config import Configuration
from firesteel.errors import Problem
from firesteel.jobgraph.model import JobGraph, Sink, Source
from firesteel.jobgraph.modes import CHECKPOINT_LOCATION, option
from firesteel.rest.params import HEX_ID
from firesteel.rest.security.spellings import may_reach
from firesteel.sandbox.owners import is_owner_directory
from firesteel.savepoint.places import below


@dataclass(frozen=True, slots=True)
class NamedPlace:
    """A reserved path that a graph names."""

    problem: Problem
    job: str | None
    """The job whose checkpoint it is, if it is one."""
    owner: str | None = None
    """The owner's directory that it is in, if any."""


class ReservedPlaces:
    def __init__(self, configuration: Configuration) -> None:
        security = configuration.security
        own = [configuration.data.dir, security.tokens_file, security.ssl_key, security.audit_log]
        self._private = [*(str(path) for path in own if path is not None), "/proc"]
        self._checkpoints = configuration.state.checkpoints_dir
        self._others = (configuration.state.savepoints_dir, str(configuration.data.dir))

    def data_in(self, graph: JobGraph) -> list[NamedPlace]:
        """Sources and sinks that could read or write the cluster's own files, or inspect other processes (S39)."""
        return [
            place
            for vertex in graph.vertices
            if isinstance(vertex, Source | Sink)
            for field, text in _places_of(vertex)
            if (place := self._data_place(vertex, field, text)) is not None
        ]

    def _data_place(self, vertex: Source | Sink, field: str, text: str) -> NamedPlace | None:
        state = (self._checkpoints, self._others[0])
        local = [*self._private, *(root.removeprefix("file://").removeprefix("file:") for root in state)]
        roots = {spelling for root in local if root.startswith("/") for spelling in (root, os.path.realpath(root))}
        remote = [root for root in state if "://" in root and not root.startswith("file:")]
        if field in ("path", "options.path"):
            refused = any(may_reach(text, root) for root in roots) or any(
                below(text, root) is not None or below(root, text) is not None for root in remote
            )
        else:  # a list of paths, a database URL: it depends on the format
            refused = any(root != "/" and root in text for root in roots)
        if not refused:
            return None
        inside = below(text, self._checkpoints) if isinstance(vertex, Source) and "*" not in text else None
        job = (inside or "").partition("/")[0]
        problem = Problem(
            f"'{text[:100]}' belongs to the cluster's own files",
            "use a path of your own, or ask an admin",
            vertex=vertex.name,
            field=field,
        )
        return NamedPlace(problem, job if re.fullmatch(HEX_ID, job) else None)

    def checkpoints_in(self, graph: JobGraph) -> list[NamedPlace]:
        """The checkpoints of streams that are in reserved directories. Follows links, so it may block."""
        named = []
        for sink in graph.sinks:
            path = option(sink, CHECKPOINT_LOCATION)
            if not path:
                continue
            problem = Problem(
                "the checkpoint is in a directory of the cluster that does not belong to a known job of yours",
                "use a directory of your own, or remove the option",
                vertex=sink.name,
                field=f"options.{CHECKPOINT_LOCATION}",
            )
            inside = below(path, self._checkpoints)
            if inside is not None:
                first, _, rest = inside.partition("/")
                owner = first if is_owner_directory(first) else None
                job = rest.partition("/")[0] if owner else first
                named.append(NamedPlace(problem, job if re.fullmatch(HEX_ID, job) else None, owner))
            elif (
                any(below(path, other) is not None or below(other, path) is not None for other in self._others)
                or below(self._checkpoints, path) is not None
            ):
                named.append(NamedPlace(problem, None))
        return named


def _places_of(vertex: Source | Sink) -> Iterator[tuple[str, str]]:
    """Each text of a vertex that could name a file, except the checkpoint."""
    if vertex.path:
        yield "path", vertex.path
    for name, value in vertex.options.items():
        if name.lower() == "path":
            yield "options.path", str(value)
        elif name.lower() != CHECKPOINT_LOCATION.lower():
            yield f"options.{name}", str(value)
