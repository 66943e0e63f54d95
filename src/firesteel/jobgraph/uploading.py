"""Uploading the local files of a job graph, which are named by their content."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from firesteel.blob.keys import BlobRef, is_blob_name, is_blob_ref
from firesteel.blob.names import acceptable_name
from firesteel.errors import InvalidPipelineError, Problem
from firesteel.module_files import TooManyModulesError, modules_beside, modules_in, zip_modules

from .document import Loc
from .files import NamedFile

T = TypeVar("T")


class InThread(Protocol):
    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class Uploads:
    """The part of a client that this module needs."""

    upload: Callable[[Path, str], Awaitable[BlobRef]]
    in_thread: InThread


@dataclass(frozen=True, slots=True)
class Uploaded:
    """References to the files of a graph that were local."""

    places: Mapping[Loc, str]
    modules: Sequence[str]
    """References to the modules beside its scripts."""


async def upload_files(uploads: Uploads, named: Iterable[NamedFile], *, base: Path | None = None) -> Uploaded:
    """Upload every local file that a graph names.

    Args:
        base: the directory that relative paths start at; by default the working directory.

    Raises:
        InvalidPipelineError: names every file that does not exist, before anything is uploaded.
    """
    files = [f for f in named if _is_local(f.text)]
    if not files:
        return Uploaded({}, ())
    with tempfile.TemporaryDirectory(prefix="firesteel-") as scratch:
        prepared = await uploads.in_thread(lambda: _prepare(files, base, Path(scratch)))
        more = await uploads.in_thread(lambda: _beside_scripts(files, base, Path(scratch)))
        refs = {what: str(await uploads.upload(*what)) for what in dict.fromkeys([*prepared, *more])}
    places = {file.loc: refs[what] for file, what in zip(files, prepared, strict=True)}
    return Uploaded(places, [refs[what] for what in more])


def _beside_scripts(places: Sequence[NamedFile], base: Path | None, scratch: Path) -> list[tuple[Path, str]]:
    """For each script, zip the modules beside it that it imports: they would not be found where it runs."""
    named = {_path(p.text, base).resolve() for p in places if p.modules}
    zips: list[tuple[Path, str]] = []
    for number, place in enumerate(p for p in places if p.vertex is not None):
        script = _path(place.text, base)
        if script.suffix != ".py":
            continue
        try:
            members = [m for m in modules_beside(script) if (script.parent / m).resolve() not in named]
        except TooManyModulesError as error:
            fix = "list the modules that it needs in settings.artifacts.py_files, or with -pyfs"
            raise InvalidPipelineError([Problem(str(error), fix, place.vertex, place.field)]) from error
        if members and not any(script.parent.resolve() == directory for directory in named):
            zips.append((scratch / f"beside-{number}.zip", f"{acceptable_name(script.stem)}-modules.zip"))
            zip_modules(script.parent, members, zips[-1][0])
    return zips


def _prepare(places: Sequence[NamedFile], base: Path | None, scratch: Path) -> list[tuple[Path, str]]:
    """For each place the file to upload, and under which name. Raises InvalidPipelineError."""
    paths = [_path(place.text, base) for place in places]
    problems = [problem for place, path in zip(places, paths, strict=True) if (problem := _problem(place, path))]
    if problems:
        raise InvalidPipelineError(problems)
    return [
        _prepared(path, scratch / f"{number}.zip", modules=place.modules)
        for number, (place, path) in enumerate(zip(places, paths, strict=True))
    ]


def _is_local(text: str) -> bool:
    """Whether a file is on this machine. Others stay as they are; the cluster decides whether it accepts them."""
    return text.startswith("file:") or not (is_blob_ref(text) or "://" in text)


def _path(text: str, base: Path | None) -> Path:
    path = unquote(urlsplit(text).path) if text.startswith("file:") else text
    return (base or Path.cwd()) / path


def _problem(place: NamedFile, path: Path) -> Problem | None:
    if path.is_dir():
        if not place.modules:
            return Problem(f"'{path}' is a directory", "list the files in it", place.vertex, place.field)
        if not modules_in(path):
            return Problem(f"no Python modules in '{path}'", "check the path", place.vertex, place.field)
    elif not path.is_file():
        return Problem(f"no such file: '{path}'", "check the path", place.vertex, place.field)
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
