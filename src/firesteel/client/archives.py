"""Directories of modules as zip files that depend on nothing but their content, and names that a cluster accepts."""

from __future__ import annotations

import os
import re
import unicodedata
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

_LONGEST_NAME = 128
_REFUSED = re.compile(r"[^A-Za-z0-9._+-]")
_NEVER = ("__pycache__", "node_modules")
_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""A zip file knows no earlier time. It is that of every member, so that touching a file changes nothing."""


def modules_in(directory: Path) -> list[Path]:
    """The files below `directory` that belong to its modules, relative to it, in a fixed order.

    Those are all `.py` files, and everything inside a package: its data travels with it. Data that merely lies beside the
    modules stays where it is, as do hidden files and virtual environments.
    """
    found: list[Path] = []
    packages: set[Path] = set()
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


def acceptable_name(name: str) -> str:
    """`name`, or what is nearest to it among the names that a cluster accepts for an uploaded file. Idempotent."""
    plain = "".join(_plain(name))
    plain = re.sub(r"\.{2,}", ".", plain).rstrip(".").lstrip("._+-")
    stem, suffix = os.path.splitext(plain)
    suffix = suffix[:20]
    return (stem[: _LONGEST_NAME - len(suffix)] + suffix) or "file"


def _plain(name: str) -> Iterator[str]:
    for char in unicodedata.normalize("NFKD", name):
        if not unicodedata.combining(char):
            yield _REFUSED.sub("_", char)
