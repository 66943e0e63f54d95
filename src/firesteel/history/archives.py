"""The archives of one or many directories: refreshed incrementally, never read again as a whole."""

from __future__ import annotations

import asyncio
import bisect
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firesteel.blob.threads import Threads
from firesteel.dispatcher.gateway import JobOverview
from firesteel.stores.archive_files import ArchiveFiles, open_archive
from firesteel.stores.codec import UnreadableRecordError
from firesteel.stores.history import job_of_archive
from firesteel.types import JobID

from .entry import ArchiveEntry, best, overview_of, read_details
from .index import ArchiveIndex, IndexedFile, changes

logger = logging.getLogger(__name__)

TOGETHER = 500
"""Archives that are read and put into the index together; a crash loses no more work than that."""
ARRANGED = 10 * TOGETHER
"""How many new entries are sorted together."""
READERS = 8
"""Remote file systems are slow, and can answer several requests at once."""
CACHED = 32
_DIRECTORIES = "historyserver.archive.fs.dir"


@dataclass(frozen=True, slots=True)
class Retention:
    """The limits beyond which archives are removed, oldest first. None means no limit."""

    jobs: int | None = None
    seconds: float | None = None

    def expired(self, newest_first: Sequence[ArchiveEntry], now: float) -> Sequence[ArchiveEntry]:
        kept = len(newest_first) if self.jobs is None else self.jobs
        if self.seconds is not None:
            oldest = now - self.seconds
            kept = min(kept, bisect.bisect_right(newest_first, -oldest, key=lambda e: -(e.overview.ended_at or 0.0)))
        return newest_first[kept:]


KEEPS_ALL = Retention()


class ArchivedJobs:
    """Archived jobs: their entries are in memory, and details are read on request.

    Belongs to one event loop; its own threads do blocking work.
    """

    def __init__(
        self,
        urls: Sequence[str],
        directory: Path,
        *,
        retention: Retention = KEEPS_ALL,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`directory` is the directory of the index."""
        self._urls = tuple(dict.fromkeys(urls))
        self._directory = directory
        self._retention = retention
        self._now = now
        self.on_new: Callable[[JobOverview], None] = lambda _: None
        """Called for each job that a refresh has found."""
        self._threads = Threads(1, "history-index")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="history-read")
        self._looking = Threads(2, "history-details")
        self._index: ArchiveIndex | None = None
        self._files: dict[int, ArchiveFiles] = {}
        self._entries: dict[JobID, ArchiveEntry] = {}
        self._newest_first: list[ArchiveEntry] = []
        self._jobs: list[JobOverview] = []
        self._details: OrderedDict[JobID, tuple[ArchiveEntry, dict[str, Any]]] = OrderedDict()

    async def open(self) -> None:
        """Load the index. Raises EnvironmentNotReadyError for a URL whose client is not installed."""
        self._entries = await self._threads.run(self._load)
        await self._arrange()

    async def close(self) -> None:
        await self._threads.close()
        await self._looking.close()
        await asyncio.to_thread(self._readers.shutdown)
        if self._index is not None:
            self._index.close()

    def _load(self) -> dict[JobID, ArchiveEntry]:
        for source, url in enumerate(self._urls):
            self._files[source] = open_archive(url, _DIRECTORIES)
        self._index = ArchiveIndex(self._directory)
        entries: dict[JobID, ArchiveEntry] = {}
        for entry in self._index.load(self._urls):
            entries[entry.overview.job_id] = best(entries, entry)
        return entries

    # -- what there is --------------------------------------------------------------------------------------------

    def newest_first(self) -> Sequence[JobOverview]:
        return self._jobs

    def get(self, job_id: JobID) -> JobOverview | None:
        entry = self._entries.get(job_id)
        return None if entry is None else entry.overview

    async def details(self, job_id: JobID) -> dict[str, Any] | None:
        """The execution graph of a job; None when its archive is missing or malformed. Raises errors of the file system."""
        entry = self._entries.get(job_id)
        if entry is None:
            return None
        kept = self._details.get(job_id)
        if kept is not None and kept[0] is entry:
            self._details.move_to_end(job_id)
            return kept[1]
        found = await self._looking.run(self._read, entry)
        if found is not None and found.get("owner") != entry.overview.owner:
            logger.warning("the archive of job %s names another owner than before and is not shown", job_id)
            return None
        if found is not None:
            self._details[job_id] = (entry, found)
            while len(self._details) > CACHED:
                self._details.popitem(last=False)
        return found

    def _read(self, entry: ArchiveEntry) -> dict[str, Any] | None:
        raw = self._files[entry.source].read(entry.name)
        try:
            return None if raw is None else read_details(entry.name, raw)
        except UnreadableRecordError as error:
            logger.warning("skipping an archive: %s", error)
            return None

    # -- refreshing -----------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Find files that were added, changed or removed, and remove expired ones. A failure is logged, and known entries are
        kept."""
        for source, url in enumerate(self._urls):
            try:
                await self._refresh(source, url)
            except Exception as error:  # each client has its own errors
                logger.warning("cannot list the archives in %s; keeping the known ones: %s", url, error)
        await self._expire()

    async def _refresh(self, source: int, url: str) -> None:
        to_read, gone, stamps = await self._threads.run(self._look, source, url)
        if gone:
            await self._threads.run(self._note, url, (), gone)
            await self._forget(source, url, gone)
        for done in range(0, len(to_read), TOGETHER):
            names = to_read[done : done + TOGETHER]
            files = await self._threads.run(self._read_new, source, url, [(n, stamps[n]) for n in names])
            new = self._add(source, files)
            if done % ARRANGED == 0 or done + TOGETHER >= len(to_read):
                await self._arrange()
                if len(to_read) > TOGETHER:
                    logger.info("indexed %d of %d new archives in %s", done + len(names), len(to_read), url)
            for overview in new:
                self.on_new(overview)

    def _look(self, source: int, url: str) -> tuple[list[str], list[str], dict[str, str]]:
        assert self._index is not None
        found = {f.name: f.stamp for f in self._files[source].list() if job_of_archive(f.name) is not None}
        to_read, gone = changes(self._index.stamps(url), found)
        return to_read, gone, found

    def _read_new(self, source: int, url: str, wanted: Iterable[tuple[str, str]]) -> list[IndexedFile]:
        files = [f for f in self._readers.map(lambda w: self._indexed(source, *w), wanted) if f is not None]
        self._note(url, files, ())
        return files

    def _indexed(self, source: int, name: str, stamp: str) -> IndexedFile | None:
        """None when it cannot be read now; the next refresh tries again."""
        try:
            raw = self._files[source].read(name)
            return None if raw is None else IndexedFile(name, stamp, overview_of(name, raw))
        except UnreadableRecordError as error:
            logger.warning("skipping an archive in %s: %s", self._urls[source], error)
            return IndexedFile(name, stamp, None)
        except Exception as error:
            logger.warning("cannot read the archive %s in %s: %s", name, self._urls[source], error)
            return None

    def _note(self, url: str, files: Iterable[IndexedFile], gone: Iterable[str]) -> None:
        assert self._index is not None
        self._index.write(url, files, gone)

    def _add(self, source: int, files: Iterable[IndexedFile]) -> list[JobOverview]:
        """Add entries, and return the jobs that were not known before."""
        new = []
        for file in files:
            if file.overview is None:
                continue
            entry = ArchiveEntry(source, file.name, file.overview)
            if best(self._entries, entry) is entry:
                if file.overview.job_id not in self._entries:
                    new.append(file.overview)
                self._entries[file.overview.job_id] = entry
        return new

    async def _forget(self, source: int, url: str, names: Iterable[str]) -> None:
        away = set(names)
        lost = {e.overview.job_id for e in self._entries.values() if e.source == source and e.name in away}
        for job_id in lost:
            del self._entries[job_id]
            self._details.pop(job_id, None)
        if lost:  # another directory, or an uncompressed file beside it, may have the same job
            for entry in await self._threads.run(self._others, lost):
                self._entries[entry.overview.job_id] = best(self._entries, entry)
            await self._arrange()
        logger.info("%d archives in %s were removed", len(away), url)

    def _others(self, lost: set[JobID]) -> list[ArchiveEntry]:
        assert self._index is not None
        return [e for e in self._index.load(self._urls) if e.overview.job_id in lost]

    async def _arrange(self) -> None:
        """Sort in a thread: a hundred thousand entries take a while."""
        self._newest_first, self._jobs = await self._threads.run(_arranged, list(self._entries.values()))

    async def _expire(self) -> None:
        expired = self._retention.expired(self._newest_first, self._now())
        for at in range(0, len(expired), TOGETHER):
            entries = expired[at : at + TOGETHER]
            removed = await self._threads.run(self._remove, entries)
            for source, url in enumerate(self._urls):
                names = [e.name for e in removed if e.source == source]
                if names:
                    await self._threads.run(self._note, url, (), names)
                    await self._forget(source, url, names)
            if len(removed) < len(entries):
                return

    def _remove(self, entries: Iterable[ArchiveEntry]) -> list[ArchiveEntry]:
        """The removed entries: all, or those before one that cannot be removed."""
        removed: list[ArchiveEntry] = []
        for entry in entries:
            try:
                self._files[entry.source].remove(entry.name)
            except Exception as error:
                logger.warning("cannot remove the expired archive %s: %s", entry.name, error)
                break
            removed.append(entry)
        return removed


def _arranged(entries: list[ArchiveEntry]) -> tuple[list[ArchiveEntry], list[JobOverview]]:
    entries.sort(key=lambda e: e.rank, reverse=True)
    return entries, [e.overview for e in entries]
