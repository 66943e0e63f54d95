"""ExecutionGraphInfoStore: the details of ended jobs, as the API shows them.

    <directory>/<first two digits of the job id>/<job id>-<ended at, ms>.json

Each job has a file; the most recently used ones are also in memory. File names hold everything that the index needs, so
opening the store only reads directories. The files are a view: losing them loses no job.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from firesteel.fs.files import NotAPlainFileError, open_plain, private_dir, write_atomically
from firesteel.types import JobID

from .codec import UnreadableRecordError, decode, encode, take, take_job_id

logger = logging.getLogger(__name__)

_NAME = re.compile(r"([0-9a-f]{32})-(\d{1,16})\.json")
_DIRECTORY = re.compile(r"[0-9a-f]{2}")
_LEFTOVER_SECONDS = 600.0
"""The writer of a temporary file of that age has died."""
_PARSED_ON_THE_LOOP = 32 * 1024
"""JSON of at most this size is parsed in well below a millisecond."""
_COST_OF_ENTRY = 200
"""Memory that a cached entry takes in addition to its bytes."""


class _Entry(NamedTuple):
    """Entries compare by age, oldest first."""

    ended_ms: int
    job_id: JobID


def _ignore(_: JobID) -> None:
    pass


class ExecutionGraphInfoStore:
    """A store of at most `max_count` jobs, each for at most `max_age` seconds after it ended.

    `on_evict` is called on the event loop for each job that is removed, possibly twice. `open`, `put` and `expire` check the
    age.
    """

    def __init__(
        self,
        directory: Path,
        *,
        max_count: int,
        max_age: float,
        cache_bytes: int,
        now: Callable[[], float] = time.time,
        on_evict: Callable[[JobID], None] = _ignore,
    ) -> None:
        self._directory = directory
        self._max_count = max_count
        self._max_age = max_age
        self._cache = _Cache(cache_bytes)
        self._now = now
        self._on_evict = on_evict
        self._index: dict[JobID, int] = {}
        """When each job ended, in ms."""
        self._broken: dict[JobID, int] = {}
        """The same for files that could not be read. They count as absent but still expire by age, with their logs."""
        self._by_age: list[_Entry] = []
        """A heap; entries of jobs that are in neither map above are stale."""
        self._writing = asyncio.Lock()

    async def open(self) -> None:
        """Index the files that an earlier process left."""
        async with self._writing:
            self._cache.clear()
            self._broken.clear()
            self._index, self._by_age = await asyncio.to_thread(_scan, self._directory)
            await self._evict()

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._index

    def __len__(self) -> int:
        return len(self._index)

    def job_ids(self) -> list[JobID]:
        return list(self._index)

    async def put(self, job_id: JobID, ended_at: float, data: Mapping[str, Any]) -> None:
        """Store the details of an ended job, replacing existing ones. `data` must not change afterwards.

        Raises OSError when they cannot be written.
        """
        entry = _Entry(max(0, round(ended_at * 1000)), job_id)
        async with self._writing:
            raw = await asyncio.to_thread(self._write, entry, data)
            before = self._index.get(job_id, self._broken.pop(job_id, None))
            self._index[job_id] = entry.ended_ms
            self._cache.put(job_id, raw)
            if before != entry.ended_ms:
                heapq.heappush(self._by_age, entry)
                if before is not None:
                    await asyncio.to_thread(self._remove, [_Entry(before, job_id)])
            await self._evict()

    async def get(self, job_id: JobID) -> dict[str, Any] | None:
        ended_ms = self._index.get(job_id)
        if ended_ms is None:
            return None
        entry = _Entry(ended_ms, job_id)
        raw = self._cache.get(job_id)
        try:
            if raw is None:
                read, data = await asyncio.to_thread(self._read, entry)
                if self._index.get(job_id) == ended_ms:
                    self._cache.put(job_id, read)
                return data
            if len(raw) > _PARSED_ON_THE_LOOP:
                return await asyncio.to_thread(self._parse, entry, raw)
            return self._parse(entry, raw)
        except (OSError, NotAPlainFileError, UnreadableRecordError) as error:
            logger.warning("the details of job %s are lost: %s", job_id, error)
            if self._index.get(job_id) == ended_ms:  # else replaced or evicted meanwhile
                self._broken[job_id] = self._index.pop(job_id)
                self._cache.remove(job_id)
            return None

    async def expire(self) -> None:
        """Remove jobs that are too old. A timer calls this, as an idle cluster has no other occasion."""
        async with self._writing:
            await self._evict()

    async def _evict(self) -> None:
        oldest_kept = (self._now() - self._max_age) * 1000
        gone: list[_Entry] = []
        while self._by_age and (len(self._index) > self._max_count or self._by_age[0].ended_ms < oldest_kept):
            entry = heapq.heappop(self._by_age)
            for known in (self._index, self._broken):
                if known.get(entry.job_id) == entry.ended_ms:
                    del known[entry.job_id]
                    self._cache.remove(entry.job_id)
                    gone.append(entry)
        if not gone:
            return
        await asyncio.to_thread(self._remove, gone)
        for entry in gone:
            try:
                self._on_evict(entry.job_id)
            except Exception:
                # Only its logs are left, and `firesteel cluster gc` finds them.
                logger.exception("the files of job %s could not be evicted", entry.job_id)

    def _file(self, entry: _Entry) -> Path:
        return self._directory / entry.job_id[:2] / f"{entry.job_id}-{entry.ended_ms}.json"

    def _write(self, entry: _Entry, data: Mapping[str, Any]) -> bytes:
        raw = encode({"job_id": entry.job_id, "data": dict(data)})
        file = self._file(entry)
        private_dir(file.parent)
        write_atomically(file, raw, durable=False)
        return raw

    def _read(self, entry: _Entry) -> tuple[bytes, dict[str, Any]]:
        with open_plain(self._file(entry)) as f:
            raw = f.read()
        return raw, self._parse(entry, raw)

    def _parse(self, entry: _Entry, raw: bytes) -> dict[str, Any]:
        def build(data: Mapping[str, Any]) -> dict[str, Any]:
            take_job_id(data, entry.job_id)
            details: dict[str, Any] = take(data, "data", dict)
            return details

        return decode(str(self._file(entry)), raw, build)

    def _remove(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            try:
                self._file(entry).unlink(missing_ok=True)
            except OSError as error:
                logger.warning("cannot remove %s: %s", self._file(entry), error)


class _Cache:
    """The most recently used entries, up to a number of bytes. It holds JSON, whose size is exact and which cannot change."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._entries: OrderedDict[JobID, bytes] = OrderedDict()

    def get(self, job_id: JobID) -> bytes | None:
        raw = self._entries.get(job_id)
        if raw is not None:
            self._entries.move_to_end(job_id)
        return raw

    def put(self, job_id: JobID, raw: bytes) -> None:
        self.remove(job_id)
        if len(raw) + _COST_OF_ENTRY > self._limit:
            return
        self._entries[job_id] = raw
        self._bytes += len(raw) + _COST_OF_ENTRY
        while self._bytes > self._limit:
            self.remove(next(iter(self._entries)))

    def remove(self, job_id: JobID) -> None:
        raw = self._entries.pop(job_id, None)
        if raw is not None:
            self._bytes -= len(raw) + _COST_OF_ENTRY

    def clear(self) -> None:
        self._entries.clear()
        self._bytes = 0


def _scan(directory: Path) -> tuple[dict[JobID, int], list[_Entry]]:
    """Index and heap of the files on disk. Opens none of them."""
    index: dict[JobID, int] = {}
    for file in _files(private_dir(directory)):
        match = _NAME.fullmatch(file.name)
        if match is None:
            _remove_leftover(file)
            continue
        job_id, ended_ms = JobID(match[1]), int(match[2])
        other = index.get(job_id)
        if other is not None:  # a process crashed between writing the new file and removing the old one
            older = min(other, ended_ms)
            Path(file.path).with_name(f"{job_id}-{older}.json").unlink(missing_ok=True)
        index[job_id] = max(ended_ms, other or 0)
    heap = [_Entry(ended_ms, job_id) for job_id, ended_ms in index.items()]
    heapq.heapify(heap)
    return index, heap


def _files(directory: Path) -> Iterable[os.DirEntry[str]]:
    with os.scandir(directory) as parts:
        names = [part.path for part in parts if _DIRECTORY.fullmatch(part.name) and part.is_dir()]
    for name in names:
        with os.scandir(name) as files:
            yield from files


def _remove_leftover(file: os.DirEntry[str]) -> None:
    if not (file.name.startswith(".") and file.name.endswith(".tmp")):
        return
    try:
        if time.time() - file.stat().st_mtime > _LEFTOVER_SECONDS:
            Path(file.path).unlink(missing_ok=True)
    except OSError:
        pass
