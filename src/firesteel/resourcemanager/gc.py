"""Finds and removes what was left behind on this machine.

Nothing here belongs to a job that is alive (I13): a thing counts as left behind only when everybody who could need it is
known and does not. Where that cannot be known, it stays. Things younger than a while stay too: somebody may be about to say
that they are theirs.
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from firesteel.engines.launcher import remove as remove_record
from firesteel.engines.launcher import stop_engine
from firesteel.engines.record import EngineDirectory, EngineRecord
from firesteel.fs.files import read_json
from firesteel.fs.urls import open_url
from firesteel.hosts import Host, this_host
from firesteel.processes import ProcessIdentity
from firesteel.sandbox.owners import is_owner_directory
from firesteel.types import parse_job_id


class LeftoverKind(StrEnum):
    ENGINE = "engine"
    ENGINE_RECORD = "engine record"
    JOB_FILES = "job files"
    CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, slots=True)
class Leftover:
    kind: LeftoverKind
    what: str
    """An engine's id, or a path or URL; together with the kind it identifies one leftover."""
    why: str
    size: int | None = None
    """Bytes, where that is easy to tell."""
    since: float | None = None
    """When it was last changed or started (seconds since 1970)."""


@dataclass(frozen=True, slots=True)
class JobsKnown:
    """The jobs that may need something. Read before the search begins, so that anything newer is younger than this."""

    live: frozenset[str]
    """Jobs that run or may run again."""
    retained: frozenset[str]
    """Jobs that have ended and are remembered: their files go when they are forgotten."""
    asked_at: float
    unsettled: bool = False
    """A job that no cluster knows is running; any engine that no cluster has started may be its."""
    cluster_known: bool = True
    """Whether `live` holds all jobs of the cluster. The jobs of a cluster without a store cannot be listed."""
    cluster_live: bool = False
    """Whether the cluster has a leader, or one of its jobs waits for the next: then its engines are still needed."""


@dataclass(frozen=True, slots=True)
class ClusterPlaces:
    """The directories in which Firesteel leaves things."""

    data_dir: Path
    cluster_dir: Path
    """`<data.dir>/clusters/<cluster id>`"""
    checkpoints: str
    """A path or a URL."""


def find_leftovers(places: ClusterPlaces, known: JobsKnown, *, older_than: float = 600.0) -> list[Leftover]:
    """Everything that is no longer needed. Only reads."""
    before = known.asked_at - older_than
    known = _with_running(places, known)
    found = [
        *_engines(EngineDirectory(places.data_dir), known, before, cluster=False),
        *_job_files(places.data_dir / "jobs", known, before),
    ]
    if (places.cluster_dir / "engines").is_dir():
        found += _engines(EngineDirectory(places.cluster_dir), known, before, cluster=True)
    if known.cluster_known:
        found += _job_files(places.cluster_dir / "jobs", known, before)
        found += _checkpoints(places, known, before)
    return found


def _with_running(places: ClusterPlaces, known: JobsKnown) -> JobsKnown:
    """The known jobs, with those whose drivers run added: they are alive even if the store that was asked lacks
    them."""
    runs = _running(places.data_dir / "jobs")
    mine = _running(places.cluster_dir / "jobs")
    return replace(
        known,
        live=known.live | runs | mine,
        unsettled=known.unsettled or not runs <= known.live,
        cluster_live=known.cluster_live or bool(mine),
    )


def _running(jobs: Path) -> set[str]:
    found = set()
    for driver in jobs.glob("*/attempts/*/driver.json"):
        try:
            process = ProcessIdentity(**read_json(driver))
        except (ValueError, TypeError, OSError):
            continue
        if process.alive:
            found.add(driver.parents[2].name)
    return found


def remove(leftover: Leftover, places: ClusterPlaces, *, grace: float = 15.0) -> None:
    """Remove one thing that was found. One that is gone already is fine. Raises OSError when it cannot be removed."""
    match leftover.kind:
        case LeftoverKind.ENGINE | LeftoverKind.ENGINE_RECORD:
            for directory in _directories(places):
                record = directory.load(leftover.what)
                if record is None:
                    remove_record(directory, leftover.what)
                elif leftover.kind is LeftoverKind.ENGINE or record.process is None or not record.process.alive:
                    stop_engine(directory, record, grace=grace)
        case LeftoverKind.CHECKPOINTS if "://" in leftover.what:
            files, path = open_url(leftover.what)
            if files.exists(path):
                files.rm(path, recursive=True)
        case _:
            if Path(leftover.what).exists():
                shutil.rmtree(leftover.what)


def _directories(places: ClusterPlaces) -> Iterator[EngineDirectory]:
    yield EngineDirectory(places.data_dir)
    if (places.cluster_dir / "engines").is_dir():
        yield EngineDirectory(places.cluster_dir)


# -- engines ------------------------------------------------------------------------------------------------------


def _engines(directory: EngineDirectory, known: JobsKnown, before: float, *, cluster: bool) -> Iterator[Leftover]:
    for home in _entries(directory.root):
        record = directory.load(home.name)
        since = record.started_at if record else home.stat().st_mtime
        if since > before or _is_elsewhere(directory, home.name, record):
            continue
        if record is None:
            yield Leftover(LeftoverKind.ENGINE_RECORD, home.name, "its record cannot be read", _size(home), since)
        elif record.process is None or not record.process.alive:
            yield Leftover(LeftoverKind.ENGINE_RECORD, home.name, "its process is gone", _size(home), since)
        elif not record.shared and (why := _unneeded(record, known, cluster=cluster)):
            yield Leftover(LeftoverKind.ENGINE, home.name, why, _size(home), since)


def _is_elsewhere(directory: EngineDirectory, engine_id: str, record: EngineRecord | None) -> bool:
    """An engine of another host that has the same files: whether it lives can only be seen there."""
    host = Host.parse(directory.host(engine_id))
    seen = record is not None and record.process is not None and record.process.alive
    return host is not None and host.is_elsewhere(this_host(), seen=seen)


def _unneeded(record: EngineRecord, known: JobsKnown, *, cluster: bool) -> str | None:
    if cluster:
        unneeded = known.cluster_known and not known.cluster_live
        return "it runs, but its cluster has no leader and no job waits for one" if unneeded else None
    return None if known.unsettled else "it runs, but the run that started it is gone"


# -- files --------------------------------------------------------------------------------------------------------


def _job_files(root: Path, known: JobsKnown, before: float) -> Iterator[Leftover]:
    for home in _entries(root):
        if _gone(home.name, known) and (since := _newest(home)) <= before:
            yield Leftover(LeftoverKind.JOB_FILES, str(home), "its job is not known", _size(home), since)


def _checkpoints(places: ClusterPlaces, known: JobsKnown, before: float) -> Iterator[Leftover]:
    why = "its job is not known here"
    others = _jobs_of_other_clusters(places)
    if "://" not in places.checkpoints:
        root = Path(places.checkpoints)
        for home in (
            h for d in (root, *(o for o in _entries(root) if is_owner_directory(o.name))) for h in _entries(d)
        ):
            if _gone(home.name, known) and home.name not in others and (since := _newest(home)) <= before:
                yield Leftover(LeftoverKind.CHECKPOINTS, str(home), why, _size(home), since)
        return
    files, path = open_url(places.checkpoints)
    for above, entry in _remote_directories(files, path):
        name = _name(entry)
        if _gone(name, known) and name not in others:
            location = "/".join([places.checkpoints.rstrip("/"), *above, name])
            changed = _seconds(entry)
            # A store that does not say when a directory changed is asked for the files in it.
            if changed is None:
                changed = max((_seconds(f) or 0.0 for f in files.find(entry["name"], detail=True).values()), default=0)
            if changed <= before:
                yield Leftover(LeftoverKind.CHECKPOINTS, location, why, None, changed or None)


def _remote_directories(files: Any, path: str) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Those in `path` and in its directories of owners, with the name of the owner's."""
    for entry in _listed(files, path):
        yield [], entry
        if is_owner_directory(_name(entry)):
            yield from (([_name(entry)], below) for below in _listed(files, entry["name"]))


def _listed(files: Any, path: str) -> list[dict[str, Any]]:
    try:
        return [e for e in files.ls(path, detail=True) if e["type"] == "directory"]
    except FileNotFoundError:
        return []


def _name(entry: dict[str, Any]) -> str:
    return str(entry["name"].rstrip("/").rpartition("/")[2])


def _jobs_of_other_clusters(places: ClusterPlaces) -> set[str]:
    """Clusters that share this data directory share its checkpoints; which of their jobs live only they know."""
    clusters = [c for c in _entries(places.cluster_dir.parent) if c != places.cluster_dir]
    return {job.name for c in clusters for job in _entries(c / "jobs")}


def _gone(name: str, known: JobsKnown) -> bool:
    try:
        job_id = parse_job_id(name)
    except ValueError:
        return False  # not ours
    return job_id not in known.live and job_id not in known.retained


def _entries(root: Path) -> list[Path]:
    try:
        return sorted(p for p in root.iterdir() if p.is_dir() and not p.is_symlink())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _newest(root: Path) -> float:
    return max(_stats(root, lambda s: s.st_mtime), default=0.0)


def _size(root: Path) -> int:
    return int(sum(_stats(root, lambda s: s.st_size)))


def _stats(root: Path, read: Callable[[Any], float]) -> Iterable[float]:
    for path in (root, *root.rglob("*")):
        try:
            yield read(path.lstat())
        except FileNotFoundError:
            continue  # another process was faster


def _seconds(entry: dict[str, Any]) -> float | None:
    """When a remote file changed; each file system has its own words for it."""
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = entry.get(key)
        if isinstance(value, int | float):
            return float(value) if value < 1e11 else value / 1000
        if isinstance(value, dt.datetime):
            return value.timestamp()
    return None
