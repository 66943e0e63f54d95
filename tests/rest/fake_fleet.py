"""A fleet that writes down what it was asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from firesteel.errors import WorkerNotFoundError, WorkerStateError
from firesteel.fleet.view import Standing, WorkerView
from firesteel.stores.workers import WorkerRecord

ONE, TWO, THREE = (f"w{number:016x}" for number in (1, 2, 3))


def view(worker: str = ONE, name: str = "alpha", **given: Any) -> WorkerView:
    facts: dict[str, Any] = {
        "worker": worker,
        "name": name,
        "host": "alpha.internal",
        "address": "10.0.0.7",
        "standing": Standing.CONNECTED,
        "draining": False,
        "incarnation": "beef",
        "embedded": False,
        "cores": 8,
        "memory": "16g",
        "labels": {"zone": "a"},
        "sandbox": "landlock",
        "policy": "stop",
        "max_engines": 2,
        "engines": 1,
        "attempts": 3,
        "since": 1000.5,
        "last_heard": 1001.0,
        "gone_at": None,
    }
    return WorkerView(**{**facts, **given})


class FakeFleet:
    """Writes down what it was asked."""

    def __init__(self, *workers: WorkerView) -> None:
        self.views = {w.worker: w for w in workers}
        self.asked: list[tuple[str, ...]] = []

    def workers(self) -> Sequence[WorkerView]:
        return list(self.views.values())

    def joined(self, record: WorkerRecord) -> None:
        self.asked.append(("joined", record.id))

    async def drain(self, worker: str) -> None:
        self._ask("drain", worker, draining=True)

    async def undrain(self, worker: str) -> None:
        self._ask("undrain", worker, draining=False)

    async def declare_lost(self, worker: str, by: str) -> None:
        if self.views[worker].standing is Standing.CONNECTED:
            raise WorkerStateError(f"worker {worker} is connected")
        self._ask("lost", worker, by, standing=Standing.LOST)

    async def revoke(self, worker: str) -> None:
        self._ask("revoke", worker, revoked=True)

    def _ask(self, what: str, worker: str, *rest: str, **change: Any) -> None:
        if worker not in self.views:
            raise WorkerNotFoundError(worker)
        self.asked.append((what, worker, *rest))
        self.views[worker] = dataclasses.replace(self.views[worker], **change)
