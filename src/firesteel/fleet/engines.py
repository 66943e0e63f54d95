"""The EngineProvider of a leader: engines of its own host directly, those of workers over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.errors import EngineLostError, EngineStartError, FiresteelError, WorkerLostError
from firesteel.fleet.link import WorkerRestartedError
from firesteel.fleet.registry import Fleet
from firesteel.records import to_json
from firesteel.resourcemanager.provider import EngineHealth, EngineProvider
from firesteel.types import Guard

HEALTH_SECONDS = 10.0


class FleetEngines:
    """Implements EngineProvider. Whether an engine of a worker is well is what its worker says of it; while the worker is
    silent, nothing is concluded: what becomes of it decides about its engines too."""

    def __init__(self, local: EngineProvider, fleet: Fleet) -> None:
        self._local = local
        self._fleet = fleet

    async def start(self, spec: EngineSpec, worker: str) -> EngineRecord:
        """See EngineProvider."""
        if self._fleet.is_local(worker):
            return replace(await self._local.start(spec, worker), worker=worker)
        try:
            # Not repeated: a second process of the worker finds the engine that the first one was starting.
            data = await self._fleet.call(worker, "start_engine", {"spec": to_json(spec)}, repeat=False)
        except (WorkerLostError, WorkerRestartedError) as error:
            raise EngineStartError(
                f"an engine did not start: the worker that was to start it has ended ({error})"
            ) from error
        record = replace(EngineRecord.from_json(data), worker=worker)
        if (link := self._fleet.link(worker)) is not None:
            link.engines[record.engine_id] = record
        return record

    async def adopt(self, record: EngineRecord) -> EngineRecord:
        """See EngineProvider."""
        if self._is_local(record):
            return replace(await self._local.adopt(record), worker=record.worker)
        try:
            data = await self._fleet.call(record.worker, "adopt_engine", {"record": record.as_json()})
        except WorkerLostError as error:
            raise EngineLostError(f"engine {record.engine_id} ({record.spec.master}) is gone: {error}") from error
        return replace(EngineRecord.from_json(data), worker=record.worker)

    async def there(self, record: EngineRecord) -> bool:
        """See EngineProvider."""
        if self._is_local(record):
            return await self._local.there(record)
        link = self._fleet.link(record.worker)
        return link is not None and not link.lost and record.engine_id in link.engines

    async def stop(self, record: EngineRecord, *, guard: Guard, force: bool = False) -> None:
        """See EngineProvider. One of a worker that was given up has ended."""
        if self._is_local(record):
            await self._local.stop(record, guard=guard, force=force)
            return
        guard()
        try:
            await self._fleet.call(record.worker, "stop_engine", {"record": record.as_json(), "force": force})
        except WorkerLostError:
            return
        if (link := self._fleet.link(record.worker)) is not None:
            link.engines.pop(record.engine_id, None)

    async def health(self, record: EngineRecord) -> EngineHealth:
        """See EngineProvider."""
        if self._is_local(record):
            return await self._local.health(record)
        link = self._fleet.link(record.worker)
        if link is None or link.lost:
            return EngineHealth.GONE
        if not link.is_open:
            return EngineHealth.UNKNOWN
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                return EngineHealth[
                    await self._fleet.call(record.worker, "engine_health", {"record": record.as_json()})
                ]
        except TimeoutError:
            return EngineHealth.UNKNOWN
        except WorkerLostError:
            return EngineHealth.GONE

    async def last_words(self, record: EngineRecord) -> str:
        """See EngineProvider."""
        if self._is_local(record):
            return await self._local.last_words(record)
        link = self._fleet.link(record.worker)
        if link is None or not link.is_open:
            return ""
        try:
            words: str = await self._fleet.call(record.worker, "last_words", {"record": record.as_json()})
        except FiresteelError:
            return ""
        return words

    async def existing(self) -> Sequence[EngineRecord]:
        """See EngineProvider. Those of workers that have registered."""
        local = [replace(r, worker=self._fleet.local_id) for r in await self._local.existing()]
        return [*local, *(e for link in self._fleet.links() for e in link.engines.values())]

    async def shared(self) -> Sequence[EngineRecord]:
        """See EngineProvider. Those of this host."""
        return [replace(r, worker=self._fleet.local_id) for r in await self._local.shared()]

    def _is_local(self, record: EngineRecord) -> bool:
        return self._fleet.is_local(record.worker)
