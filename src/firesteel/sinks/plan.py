"""The plan of a commit, made from two listings: the new files with their names, and the files that they replace."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from firesteel.errors import CommitConflictError
from firesteel.sinks.record import StagedFile
from firesteel.types import JobID

SUCCESS = "_SUCCESS"

_SUMMARIES = ("_metadata", "_common_metadata")
"""Parquet summaries: hidden by name, yet Spark reads them. They describe the files beside them and go with them."""

_PART = re.compile(r"part-(\d+)(?:-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}))?")
_SPLIT = re.compile(r"^\.c\d+(?=\.|$)")
"""Spark writes `part-00000-<uuid>.c000.csv` where it writes partitions, `part-00000-<uuid>-c000.csv` elsewhere."""


def is_hidden(path: str) -> bool:
    """Whether Spark overlooks `path` (relative to the root that is read): some part of it begins with `_` or `.`.

    A partition directory such as `_year=2024` is not hidden: Spark lets `_` pass when there is a `=`.
    """
    return any(
        p.startswith(".") or p.endswith("._COPYING_") or (p[:1] == "_" and "=" not in p) for p in path.split("/")
    )


def staged_files(
    staging: Mapping[str, int], job_id: JobID, vertex: str, attempt: int, *, where: str
) -> tuple[StagedFile, ...]:
    """The data files of a finished staging directory, with the names that they get.

    Names are numbered in Spark's order and carry job, vertex and attempt: they collide with no others, and two
    processes that plan the same staging plan the same names. Partition directories stay as Spark escaped them.

    Raises:
        CommitConflictError: no Spark write has finished here, or two have.
    """
    if SUCCESS not in staging:
        raise CommitConflictError(
            f"attempt {attempt} of sink '{vertex}' cannot be committed: {where} has no {SUCCESS} — "
            "let Spark's write finish first; if it did, Spark wrote to another file system (give the path a scheme) or "
            "runs with mapreduce.fileoutputcommitter.marksuccessfuljobs=false (remove that setting)"
        )
    data = sorted((p for p in staging if not is_hidden(p)), key=_order)
    writes = {m[2] for p in data if (m := _PART.match(_name(p))) and m[2]}
    if len(writes) > 1:
        raise CommitConflictError(
            f"attempt {attempt} of sink '{vertex}' cannot be committed: {where} holds files of {len(writes)} Spark "
            "writes, so rows may be there twice — run a new attempt, overwriting, with partitionOverwriteMode=static"
        )
    mark = _mark(job_id, vertex)
    return tuple(
        StagedFile(path, f"{_directory(path)}part-{i:05d}{mark}{attempt}{_extension(_name(path))}", staging[path])
        for i, path in enumerate(data)
    )


def touched_directories(files: Iterable[StagedFile]) -> tuple[str, ...]:
    """The partition directories that get files; the root alone when a file lies there, as it contains all others."""
    directories = sorted({_directory(f.final).rstrip("/") for f in files})
    return ("",) if "" in directories else tuple(directories)


def replaced_files(existing: Collection[str], job_id: JobID, vertex: str) -> tuple[str, ...]:
    """The files of `existing` that an overwrite removes: all that Spark sees, with Hadoop's checksums beside them."""
    mark = _mark(job_id, vertex)
    gone = [p for p in existing if mark not in _name(p) and _is_data(p)]
    checksums = [c for p in gone if (c := f"{_directory(p)}.{_name(p)}.crc") in existing]
    return tuple(sorted(gone + checksums))


def emptied_directories(removed: Iterable[str]) -> tuple[str, ...]:
    """Directories that may be empty after `removed` are gone, deepest first; never the root."""
    found: set[str] = set()
    for path in removed:
        above = _directory(path).rstrip("/")
        while above and above not in found:
            found.add(above)
            above = _directory(above).rstrip("/")
    return tuple(sorted(found, key=lambda d: (-d.count("/"), d)))


def _is_data(path: str) -> bool:
    if _name(path) in _SUMMARIES:
        return not is_hidden(_directory(path).rstrip("/"))
    return not is_hidden(path)


def _mark(job_id: JobID, vertex: str) -> str:
    """The name prefix has the whole job id: over a table's many appends, its first eight digits could repeat."""
    return f"-{job_id}-{vertex}-"


def _order(path: str) -> tuple[str, int, str]:
    part = _PART.match(_name(path))
    return _directory(path), int(part[1]) if part else -1, path


def _extension(name: str) -> str:
    _, dot, rest = name.partition(".")
    return _SPLIT.sub("", dot + rest)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _directory(path: str) -> str:
    """The directory with its `/`; empty for the root."""
    head, slash, _ = path.rpartition("/")
    return head + slash
