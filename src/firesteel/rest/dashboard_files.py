"""Files of a dashboard as of the start of the node: a path in a request is never used as a path on disk (S4)."""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from firesteel.fs.files import NotAPlainFileError, open_plain

INDEX = "index.html"
KINDS: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".ttf": "font/ttf",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
MOST_FILES = 5000
LARGEST = 32 << 20
BUILT = Path(__file__).resolve().parents[1] / "dashboard_files"
"""The directory in which the package build puts Firesteel's own dashboard."""
_WORTH_PACKING = frozenset({".html", ".js", ".css", ".svg", ".json", ".txt"})


class TooManyFilesError(Exception):
    """The directory is not a dashboard."""


def plain_files(directory: Path) -> Iterator[tuple[str, Path]]:
    """Name and path of each file that a dashboard may have. Links are not followed. Raises TooManyFilesError."""
    count = 0
    for parent, _, names in os.walk(directory):  # does not follow links
        for name in names:
            path = Path(parent, name)
            facts = path.lstat()
            if path.suffix in KINDS and stat.S_ISREG(facts.st_mode) and facts.st_size <= LARGEST:
                count += 1
                if count > MOST_FILES:
                    raise TooManyFilesError(f"has more than {MOST_FILES} files")
                yield path.relative_to(directory).as_posix(), path


def read_plain(file: Path) -> bytes:
    """Read a file, but not through a link that may have replaced it."""
    with open_plain(file, os.O_NOFOLLOW) as opened:
        return opened.read(LARGEST)


@dataclass(frozen=True, slots=True)
class BuiltFile:
    content: bytes
    packed: bytes | None
    """The gzip-compressed content, if that is smaller."""
    kind: str


@dataclass(frozen=True, slots=True)
class BuiltDashboard:
    """Firesteel's own dashboard, in memory: it is small, and every visitor gets all of it."""

    by_name: Mapping[str, BuiltFile]

    @staticmethod
    def of(directory: Path = BUILT) -> BuiltDashboard | None:
        """Read the files; None when this installation has no dashboard."""
        found: dict[str, BuiltFile] = {}
        for name, path in plain_files(directory):
            try:
                content = read_plain(path)
            except (OSError, NotAPlainFileError):
                return None
            packed = gzip.compress(content, 9, mtime=0) if path.suffix in _WORTH_PACKING else None
            found[name] = BuiltFile(content, packed, KINDS[path.suffix])
        return BuiltDashboard(found) if INDEX in found else None

    def find(self, path: str) -> BuiltFile | None:
        return self.by_name.get(path.removeprefix("/") or INDEX)
