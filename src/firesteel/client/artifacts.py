"""The local files of a job graph, uploaded and named by their content."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from firesteel.blob.keys import BlobRef, is_blob_name, is_blob_ref
from firesteel.client.names import acceptable_name
from firesteel.errors import InvalidPipelineError, Problem
from firesteel.module_files import TooManyModulesError, modules_beside, modules_in, zip_modules

if TYPE_CHECKING:
    from firesteel.jobgraph.model import JobGraph

T = TypeVar("T")
_LISTS = ("py_files", "archives", "files", "jars")


class InThread(Protocol):
    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class Uploads:
    """What is needed of a client."""

    upload: Callable[[Path, str], Awaitable[BlobRef]]
    in_thread: InThread


async def upload_artifacts(uploads: Uploads, graph: JobGraph, *, base: Path | None = None) -> JobGraph:
    """`graph` with every local file that it names uploaded, and named by its reference instead.

    Args:
        base: what relative paths are relative to; the working directory by default.

    Raises:
        InvalidPipelineError: with every file that is not there, before anything is uploaded.
    """
    from firesteel.jobgraph.model import JobGraph

    plain = graph.model_dump(mode="json", by_alias=True, exclude_none=True)
    return JobGraph.model_validate(await upload_files(uploads, plain, base=base))


async def upload_files(uploads: Uploads, graph: Mapping[str, Any], *, base: Path | None = None) -> dict[str, Any]:
    """As `upload_artifacts`, of a graph as plain JSON, which need not be a valid one: the cluster checks it."""
    changed = copy.deepcopy(dict(graph))
    places = [p for p in _places(changed) if _is_local(p.text)]
    if not places:
        return changed
    with tempfile.TemporaryDirectory(prefix="firesteel-") as scratch:
        prepared = await uploads.in_thread(lambda: _prepare(places, base, Path(scratch)))
        more = await uploads.in_thread(lambda: _beside_scripts(places, base, Path(scratch)))
        refs = {what: str(await uploads.upload(*what)) for what in dict.fromkeys([*prepared, *more])}
        for place, what in zip(places, prepared, strict=True):
            place.put(refs[what])
        if more:
            _add_modules(changed, [refs[what] for what in more])
    return changed


def _beside_scripts(places: Sequence[_Place], base: Path | None, scratch: Path) -> list[tuple[Path, str]]:
    """For each script the zip file of the modules beside it that it imports, which would not be found where it runs."""
    named = {_path(p.text, base).resolve() for p in places if p.modules}
    zips: list[tuple[Path, str]] = []
    for number, place in enumerate(p for p in places if p.vertex is not None):
        script = _path(place.text, base)
        if script.suffix != ".py":
            continue
        try:
            members = [m for m in modules_beside(script) if (script.parent / m).resolve() not in named]
        except TooManyModulesError as error:
            fix = "name those that are needed in settings.artifacts.py_files, or by -pyfs"
            raise InvalidPipelineError([Problem(str(error), fix, place.vertex, place.field)]) from error
        if members and not any(script.parent.resolve() == directory for directory in named):
            zips.append((scratch / f"beside-{number}.zip", f"{acceptable_name(script.stem)}-modules.zip"))
            zip_modules(script.parent, members, zips[-1][0])
    return zips


def _add_modules(graph: dict[str, Any], refs: Sequence[str]) -> None:
    settings = graph.setdefault("settings", {})
    artifacts = settings.setdefault("artifacts", {}) if isinstance(settings, dict) else None
    if isinstance(artifacts, dict):
        artifacts["py_files"] = [*artifacts.get("py_files", ()), *refs]


def _prepare(places: Sequence[_Place], base: Path | None, scratch: Path) -> list[tuple[Path, str]]:
    """For each place the file to upload, and under which name. Raises InvalidPipelineError."""
    paths = [_path(place.text, base) for place in places]
    problems = [problem for place, path in zip(places, paths, strict=True) if (problem := _problem(place, path))]
    if problems:
        raise InvalidPipelineError(problems)
    return [
        _prepared(path, scratch / f"{number}.zip", modules=place.modules)
        for number, (place, path) in enumerate(zip(places, paths, strict=True))
    ]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a graph names a file."""

    holder: Any
    key: str | int
    field: str
    vertex: str | None = None
    modules: bool = False
    """Its name is that of a module, or it may be a directory of them."""

    @property
    def text(self) -> str:
        text: str = self.holder[self.key]
        return text

    def put(self, text: str) -> None:
        self.holder[self.key] = text


def _places(graph: dict[str, Any]) -> Iterator[_Place]:
    settings = graph.get("settings")
    artifacts = settings.get("artifacts") if isinstance(settings, dict) else None
    for name in _LISTS:
        entries = artifacts.get(name) if isinstance(artifacts, dict) else None
        if isinstance(artifacts, dict) and isinstance(entries, tuple):
            artifacts[name] = entries = list(entries)
        for i, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, str):
                yield _Place(entries, i, f"settings.artifacts.{name}.{i}", modules=name == "py_files")
    vertices = graph.get("vertices")
    for vertex in vertices if isinstance(vertices, list | tuple) else ():
        if isinstance(vertex, dict) and vertex.get("kind") == "script" and isinstance(vertex.get("file"), str):
            yield _Place(vertex, "file", "file", vertex=str(vertex.get("name")))


def _is_local(text: str) -> bool:
    """Files that are elsewhere stay as they are; whether they are acceptable is for the cluster to say."""
    return text.startswith("file:") or not (is_blob_ref(text) or "://" in text)


def _path(text: str, base: Path | None) -> Path:
    path = unquote(urlsplit(text).path) if text.startswith("file:") else text
    return (base or Path.cwd()) / path


def _problem(place: _Place, path: Path) -> Problem | None:
    if path.is_dir():
        if not place.modules:
            return Problem(f"'{path}' is a directory", "name the files in it", place.vertex, place.field)
        if not modules_in(path):
            return Problem(f"there are no modules in '{path}'", "check the path", place.vertex, place.field)
    elif not path.is_file():
        return Problem(f"there is no file '{path}'", "check the path", place.vertex, place.field)
    return None


def _prepared(path: Path, archive: Path, *, modules: bool) -> tuple[Path, str]:
    """What to upload for `path`, and under which name; `archive` is where a zip file can be put."""
    name = acceptable_name(path.name or "modules")
    if path.is_dir():
        zip_modules(path, modules_in(path), archive)
        return archive, f"{name}.zip"
    if modules and path.suffix == ".py" and not is_blob_name(path.name):
        # Under another name it could not be imported. In a zip file it keeps its own.
        zip_modules(path.parent, [Path(path.name)], archive)
        return archive, f"{acceptable_name(path.stem)}.zip"
    return path, name
