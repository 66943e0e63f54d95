"""The index of the archives on disk: after the first time, only files that were added, changed or removed are processed.

It is a copy of the archives' data in SQLite. An index that is damaged or has another version is rebuilt.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from firesteel.dispatcher.gateway import JobOverview
from firesteel.fs.files import private_dir

from .entry import ArchiveEntry, from_row, to_row

logger = logging.getLogger(__name__)

VERSION = 1
FILE = "index.sqlite"
_SCHEMA = """
create table archives (
  url text not null,
  name text not null,
  stamp text not null,
  job_id text,          -- null: not an archive, and not read again while it is unchanged
  title blob, status text, submitted real, ended real, attempt integer, restarts integer, owner blob, mode text,
  vertices integer,
  primary key (url, name)
) without rowid;
"""


_ROW = "name, job_id, title, status, submitted, ended, attempt, restarts, owner, mode, vertices"


class IndexedFile(NamedTuple):
    name: str
    stamp: str
    overview: JobOverview | None
    """None if it is not an archive."""


class ArchiveIndex:
    """Calls block, and only one thread may use it at a time."""

    def __init__(self, directory: Path) -> None:
        self._file = private_dir(directory) / FILE
        self._database = _open(self._file)

    def close(self) -> None:
        self._database.close()

    def load(self, urls: Sequence[str]) -> Iterator[ArchiveEntry]:
        """The archived jobs below `urls`, whose positions are the numbers of their directories."""
        for source, url in enumerate(urls):
            rows = self._database.execute(f"select {_ROW} from archives where url = ? and job_id is not null", (url,))
            for name, job_id, *row in rows:
                try:
                    yield ArchiveEntry(source, name, from_row(job_id, tuple(row)))
                except (ValueError, TypeError, KeyError, AttributeError):
                    logger.warning("an entry of the index is damaged; remove %s to rebuild the index", self._file)

    def stamps(self, url: str) -> dict[str, str]:
        """The stamps of known files by name."""
        return dict(self._database.execute("select name, stamp from archives where url = ?", (url,)))

    def write(self, url: str, files: Iterable[IndexedFile], gone: Iterable[str] = ()) -> None:
        """Write all changes in one transaction."""
        with self._database:
            self._database.execute("begin")
            self._database.executemany(
                f"insert or replace into archives values ({', '.join('?' * 13)})",
                [(url, f.name, f.stamp, *_columns(f.overview)) for f in files],
            )
            self._database.executemany("delete from archives where url = ? and name = ?", [(url, n) for n in gone])


def _columns(job: JobOverview | None) -> tuple[object, ...]:
    return (None,) * 10 if job is None else (job.job_id, *to_row(job))


def changes(known: Mapping[str, str], found: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The files that have to be read, and those that are gone."""
    return [n for n, stamp in found.items() if known.get(n) != stamp], [n for n in known if n not in found]


def _open(file: Path) -> sqlite3.Connection:
    try:
        return _usable(file)
    except sqlite3.DatabaseError as error:
        logger.warning("rebuilding the index %s: %s", file, error)
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                file.with_name(file.name + suffix).unlink()
        return _usable(file)


def _usable(file: Path) -> sqlite3.Connection:
    # Each step is called by one thread only, and not always by the same one.
    database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    try:
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = normal")
        (version,) = database.execute("pragma user_version").fetchone()
        if version == 0:
            database.executescript(f"begin; {_SCHEMA} pragma user_version = {VERSION}; commit;")
        elif version != VERSION:
            raise sqlite3.DatabaseError(f"it has version {version}")
        database.execute(f"select url, stamp, {_ROW} from archives limit 1").fetchall()
    except BaseException:
        database.close()
        raise
    return database
