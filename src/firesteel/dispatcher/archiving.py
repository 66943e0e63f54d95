"""What is written to the archive of an ended job, and read from it.

The archive holds the last answers of the API, so secrets are masked in it. Others may be able to write to it: for a job that
has a result it never decides anything, and for a forgotten job it is only shown.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firesteel.dispatcher.services import DispatcherServices
from firesteel.errors import FiresteelError
from firesteel.jobmaster.execution_graph import bare, makes_sense
from firesteel.masking import mask
from firesteel.records import from_json, to_json
from firesteel.stores.history import HistoryArchivist
from firesteel.stores.job_results import JobResult
from firesteel.stores.operations import Operation
from firesteel.types import JobID

logger = logging.getLogger(__name__)

OPERATIONS = "operations"
ARCHIVED = "archived"
"""True in details that came from an archive: secrets are masked in them, so they cannot be submitted again."""
LAST_OPERATIONS_SECONDS = 60.0
"""How long an archive waits for the savepoint with which a job was stopped."""
_POLL_SECONDS = 0.2
_DECIDED_BY_THE_RESULT = (
    "name", "mode", "owner", "status", "submitted_at", "ended_at", "duration", "attempt", "restarts", "stopped",
    "checkpoint", "resumes", "failure",
)  # fmt: skip
RECALL_SECONDS = 10.0
"""How long one lookup in the archive may take, and how long a missing job is not looked up again."""
_RECALLED = 64
_MISSED = 10_000


def archived(details: Mapping[str, Any], operations: Sequence[Operation]) -> dict[str, Any]:
    """The archive of a job: its execution graph and what was triggered for it, without secrets."""
    return mask({**details, OPERATIONS: [to_json(o) for o in operations]})


def operations_in(details: Mapping[str, Any]) -> list[Operation]:
    """The operations of an archived job, oldest first, without malformed ones (S17)."""
    found = details.get(OPERATIONS)
    operations = []
    for one in found if isinstance(found, list) else ():
        try:
            operation = from_json(one, Operation)
        except ValueError:
            continue
        if operation.job_id == details["job_id"]:
            operations.append(operation)
    return sorted(operations, key=lambda o: o.started_at)


def decided(found: Mapping[str, Any], result: JobResult) -> dict[str, Any]:
    """Archived details of a job whose result is known; the result takes precedence."""
    known = bare(result)
    return {**found, **{key: known[key] for key in _DECIDED_BY_THE_RESULT}}


class JobArchives:
    """The archive of one leadership's jobs."""

    def __init__(self, services: DispatcherServices) -> None:
        self._services = services
        self._memory = RecalledJobs(services.archivist)

    async def write(self, job_id: JobID) -> None:
        """Archive what the live view showed last (I26)."""
        services = self._services
        if not services.archivist.archives:
            return
        data = await services.finished.get(job_id)
        if data is None:
            return
        await self._last_operations(job_id)
        latest = services.operations.latest_savepoint(job_id)
        shown = {**data, "savepoint": "" if latest is None else latest.savepoint}
        operations = services.operations.of_job(job_id)
        packed = await asyncio.to_thread(archived, shown, operations)
        await services.archivist.archive(job_id, packed)

    async def _last_operations(self, job_id: JobID) -> None:
        """Wait for the savepoint of a stopped stream, which is taken after its end and belongs to its archive."""
        deadline = self._services.now() + LAST_OPERATIONS_SECONDS
        while any(o.job_id == job_id for o in self._services.operations.unfinished()):
            if self._services.now() >= deadline:
                logger.warning("job %s is archived without the outcome of its last operation", job_id)
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def of_result(self, result: JobResult) -> dict[str, Any] | None:
        """Archived details of a job that has its result, for display only."""
        found = await self._memory.find(result.job_id)
        # A forgotten id may be used again, and then its archive belongs to the earlier job.
        return None if found is None or found["ended_at"] != result.ended_at else decided(found, result)

    async def find(self, job_id: JobID) -> dict[str, Any] | None:
        return await self._memory.find(job_id)

    def recalled(self, job_id: JobID) -> dict[str, Any] | None:
        """The recent result of `find`, if there is one."""
        return self._memory.get(job_id)


class RecalledJobs:
    """A cache of requested archived jobs, including missing ones."""

    def __init__(self, archivist: HistoryArchivist, clock: Callable[[], float] = time.monotonic) -> None:
        self._archivist = archivist
        self._clock = clock
        self._found: OrderedDict[JobID, dict[str, Any]] = OrderedDict()
        self._missed: OrderedDict[JobID, float] = OrderedDict()
        self._one_at_a_time = asyncio.Semaphore(2)

    def get(self, job_id: JobID) -> dict[str, Any] | None:
        return self._found.get(job_id)

    async def find(self, job_id: JobID) -> dict[str, Any] | None:
        """None when the archive is missing or malformed, or takes longer than `RECALL_SECONDS`."""
        if not self._archivist.archives:
            return None
        if (known := self._found.get(job_id)) is not None:
            self._found.move_to_end(job_id)
            return known
        if self._clock() - self._missed.get(job_id, -RECALL_SECONDS) < RECALL_SECONDS:
            return None
        found = await self._read(job_id)
        if found is None:
            self._missed[job_id] = self._clock()
            while len(self._missed) > _MISSED:
                self._missed.popitem(last=False)
            return None
        self._missed.pop(job_id, None)
        self._found[job_id] = found
        while len(self._found) > _RECALLED:
            self._found.popitem(last=False)
        return found

    async def _read(self, job_id: JobID) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(RECALL_SECONDS), self._one_at_a_time:
                found = await self._archivist.read_archive(job_id)
        except (FiresteelError, OSError, TimeoutError) as error:
            logger.warning("cannot read the archive of job %s: %s", job_id, error or "it took too long")
            return None
        if found is not None and not makes_sense(found, job_id):
            logger.warning("skipping the malformed archive of job %s", job_id)
            return None
        return None if found is None else {**found, ARCHIVED: True}
