"""The files that travel with a job: where a graph names them, and how to replace them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .document import Loc, dotted
from .model import Artifacts, JobGraph, Script

ARTIFACTS = tuple(Artifacts.model_fields)


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that a graph names: a path, a URL, or a reference to an upload."""

    loc: Loc
    text: str
    vertex: str | None = None
    """The script whose program it is; None for the artifacts of the job."""

    @property
    def modules(self) -> bool:
        """Whether its name is that of a module, or it may be a directory of modules."""
        return self.loc[2] == "py_files"

    @property
    def field(self) -> str:
        return dotted(self.loc[2:] if self.loc[0] == "vertices" else self.loc)


def files_in(data: Any) -> Iterator[NamedFile]:
    """The files that a graph names, which is plain data and need not be valid."""
    if not isinstance(data, dict):
        return
    settings = data.get("settings")
    artifacts = settings.get("artifacts") if isinstance(settings, dict) else None
    for field in ARTIFACTS:
        entries = artifacts.get(field) if isinstance(artifacts, dict) else None
        for i, entry in enumerate(entries) if isinstance(entries, list | tuple) else ():
            if isinstance(entry, str):
                yield NamedFile(("settings", "artifacts", field, i), entry)
    vertices = data.get("vertices")
    for i, vertex in enumerate(vertices) if isinstance(vertices, list | tuple) else ():
        if isinstance(vertex, dict) and vertex.get("kind") == "script" and isinstance(vertex.get("file"), str):
            yield NamedFile(("vertices", i, "file"), vertex["file"], vertex=str(vertex.get("name")))


def files_of(graph: JobGraph) -> Iterator[NamedFile]:
    for field in ARTIFACTS:
        for i, entry in enumerate(getattr(graph.settings.artifacts, field)):
            yield NamedFile(("settings", "artifacts", field, i), entry)
    for i, vertex in enumerate(graph.vertices):
        if isinstance(vertex, Script):
            yield NamedFile(("vertices", i, "file"), vertex.file, vertex=vertex.name)


def with_files(graph: JobGraph, places: Mapping[Loc, str], modules: Sequence[str] = ()) -> JobGraph:
    """The graph with other files at `places`, and with further Python modules."""
    given = {field: list(getattr(graph.settings.artifacts, field)) for field in ARTIFACTS}
    vertices = list(graph.vertices)
    for loc, text in places.items():
        match loc:
            case ("settings", "artifacts", str(field), int(i)):
                given[field][i] = text
            case ("vertices", int(i), "file"):
                vertices[i] = vertices[i].model_copy(update={"file": text})
    given["py_files"] += modules
    artifacts = Artifacts(**{field: tuple(entries) for field, entries in given.items()})
    settings = graph.settings.model_copy(update={"artifacts": artifacts})
    return graph.with_(settings=settings, vertices=tuple(vertices))


def with_files_in(data: Mapping[str, Any], places: Mapping[Loc, str], modules: Sequence[str] = ()) -> dict[str, Any]:
    """`with_files` for plain data in which `files_in` has found those places. `data` stays as it is."""
    changed: dict[str, Any] = dict(data)
    for loc, text in places.items():
        holder: Any = changed
        for part in loc[:-1]:
            inner = holder[part]
            holder[part] = list(inner) if isinstance(inner, list | tuple) else dict(inner)
            holder = holder[part]
        holder[loc[-1]] = text
    if modules:
        settings = dict(changed.get("settings") or {})
        artifacts = dict(settings.get("artifacts") or {})
        artifacts["py_files"] = [*(artifacts.get("py_files") or ()), *modules]
        changed["settings"] = {**settings, "artifacts": artifacts}
    return changed
