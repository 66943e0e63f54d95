"""Roster: the workers as their records tell of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from firesteel.errors import WorkerNotFoundError
from firesteel.fleet.view import Standing, WorkerView
from firesteel.ha.protocols import Epoch
from firesteel.stores.workers import LostWorker, WorkerRecord, WorkerStore


class Roster:
    """A FleetView of one leadership that hears from no worker: it knows what is durable. Read once, then from memory, as only
    the leader writes."""

    def __init__(self, store: WorkerStore, epoch: Epoch, *, now: Callable[[], float]) -> None:
        self._store = store
        self._epoch = epoch
        self._now = now
        self._records: dict[str, WorkerRecord] = {}

    async def start(self) -> None:
        self._records = await self._store.list()

    def joined(self, record: WorkerRecord) -> None:
        self._records[record.id] = record

    def workers(self) -> Sequence[WorkerView]:
        return [record_view(r) for r in self._records.values()]

    async def drain(self, worker: str) -> None:
        await self._change(worker, lambda r: replace(r, draining=True))

    async def undrain(self, worker: str) -> None:
        await self._change(worker, lambda r: replace(r, draining=False))

    async def declare_lost(self, worker: str, by: str) -> None:
        at = self._now()
        await self._change(worker, lambda r: r if r.lost else replace(r, lost=LostWorker(at, by, "")))

    async def revoke(self, worker: str) -> None:
        await self._change(worker, lambda r: replace(r, revoked=True))

    async def _change(self, worker: str, change: Callable[[WorkerRecord], WorkerRecord]) -> None:
        if worker not in self._records:
            raise WorkerNotFoundError(f"no worker {worker} has joined this cluster")
        self._records[worker] = await self._store.change(worker, change, epoch=self._epoch)


def record_view(record: WorkerRecord) -> WorkerView:
    """What is known of a worker that has not registered at this leader."""
    return WorkerView(
        worker=record.id,
        name=record.name,
        host=record.host,
        address="",
        standing=Standing.LOST if record.lost else Standing.EXPECTED,
        draining=record.draining,
        incarnation="",
        embedded=not record.secret_sha256,
        cores=0,
        memory="",
        labels=record.labels,
        sandbox="",
        policy=record.policy,
        max_engines=0,
        engines=0,
        attempts=0,
        since=record.lost.at if record.lost else record.joined_at,
        last_heard=None,
        gone_at=record.lost.at if record.lost else None,
        revoked=record.revoked,
    )
