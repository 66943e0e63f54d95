"""The files of modules: those of a directory, those that a script finds beside itself; and zip files of them."""

from __future__ import annotations

import ast
import os
import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path

MOST_FILES = 2_000
MOST_BYTES = 32 << 20
"""Limits of the files that are found beside a script and sent with it; further files have to be named."""
_NEVER = ("__pycache__", "node_modules")
_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""A zip file knows no earlier time. It is that of every member, so that touching a file changes nothing."""


def modules_in(directory: Path, *, package: bool = False) -> list[Path]:
    """The files below `directory` that belong to its modules, relative to it, in a fixed order.

    Those are all `.py` files, and everything inside a package: its data travels with it. Data that merely lies beside the
    modules stays where it is, as do hidden files and virtual environments. With `package`, the directory is one itself.
    """
    found: list[Path] = []
    packages: set[Path] = {Path()} if package else set()
    for parent, directories, files in os.walk(directory):
        here = Path(parent).relative_to(directory)
        if here != Path() and (here.parent in packages or "__init__.py" in files):
            packages.add(here)
        directories[:] = [d for d in directories if _travels(d) and not Path(parent, d, "pyvenv.cfg").exists()]
        found += [
            here / name
            for name in files
            if _travels(name) and (name.endswith(".py") or here in packages) and Path(parent, name).is_file()
        ]
    return sorted(found, key=lambda p: p.as_posix())


def _travels(name: str) -> bool:
    return not name.startswith(".") and name not in _NEVER and not name.endswith((".pyc", ".pyo"))


def zip_modules(directory: Path, members: Iterable[Path], target: Path) -> None:
    """Write the zip file `target` of these files below `directory`. Equal files give equal bytes, on any machine.

    They are not compressed: what a compressor makes of its input depends on its version, and modules are small.
    """
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for member in members:
            info = zipfile.ZipInfo(member.as_posix(), _EARLIEST)
            info.create_system = 3
            info.external_attr = 0o100644 << 16
            with (directory / member).open("rb") as source, archive.open(info, "w") as copy:
                while data := source.read(1 << 20):
                    copy.write(data)


class TooManyModulesError(ValueError):
    """More lies beside the script than is sent without being named."""


def modules_beside(script: Path) -> list[Path]:
    """The files of the modules in the directory of `script` that it imports, and that those import; relative to it.

    A package comes whole, as in `modules_in`. Imports are read, also those inside functions; names that are computed are
    not seen. Nothing outside the directory counts, and no symbolic link that leads out of it.

    Raises:
        TooManyModulesError: they are more than MOST_FILES, or larger than MOST_BYTES together.
    """
    directory = script.parent
    files: set[Path] = set()
    known = {script.stem, "pyspark", "firesteel"}
    size = 0
    waiting = [script]
    while waiting:
        for name in _imported(waiting.pop()) - known:
            known.add(name)
            for member in _files_of(directory, name):
                if member in files or not _is_inside(directory / member, directory):
                    continue
                files.add(member)
                size += (directory / member).stat().st_size
                if len(files) > MOST_FILES or size > MOST_BYTES:
                    raise TooManyModulesError(
                        f"the modules beside {script.name} are more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB"
                    )
                if member.suffix == ".py":
                    waiting.append(directory / member)
    return sorted(files, key=lambda p: p.as_posix())


def _imported(file: Path) -> set[str]:
    """The first names of what `file` imports; nothing for one that is not Python, which is for others to say."""
    try:
        with warnings.catch_warnings(action="ignore"):
            nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return set()
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module and not n.level}
    return {name.partition(".")[0] for name in names}


def _files_of(directory: Path, name: str) -> list[Path]:
    """Of the module or package `name` in `directory`, as Python would choose: a package is before a module."""
    package = directory / name
    if (package / "__init__.py").is_file():
        return [Path(name) / member for member in modules_in(package, package=True)]
    if (directory / f"{name}.py").is_file():
        return [Path(f"{name}.py")]
    return [Path(name) / member for member in modules_in(package)] if package.is_dir() else []


def _is_inside(file: Path, directory: Path) -> bool:
    return file.resolve().is_relative_to(directory.resolve())
