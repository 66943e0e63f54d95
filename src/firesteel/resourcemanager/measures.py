"""What is measured of engines and of the queue. Pure, but for what the kernel tells of a process."""

from __future__ import annotations

from firesteel.config.values import memory_bytes
from firesteel.engines.record import EngineRecord
from firesteel.metrics.declarations import (
    CLASSIC_DRIVERS,
    ENGINE_CORES,
    ENGINE_FREE,
    ENGINE_HEAP,
    ENGINE_SLOTS,
    ENGINES,
    FREE_SLOTS,
    SLOTS,
    STARTING_ENGINES,
    WAITING,
)
from firesteel.metrics.metric import Metric
from firesteel.metrics.process import engine_process_measures
from firesteel.resourcemanager.overview import EngineOverview, ResourceOverview
from firesteel.resourcemanager.state import EngineState


def resource_measures(resources: ResourceOverview) -> dict[Metric, float]:
    ready = resources.ready
    return {
        FREE_SLOTS: sum(e.free for e in ready),
        SLOTS: sum(e.slots for e in ready),
        ENGINES: len(ready),
        STARTING_ENGINES: sum(e.state is EngineState.STARTING for e in resources.engines),
        CLASSIC_DRIVERS: resources.classic,
        WAITING: resources.waiting,
    }


def engine_measures(engine: EngineOverview, record: EngineRecord | None) -> dict[Metric, float]:
    """What is known without asking the engine: what it was given, and what the kernel tells of its process."""
    known: dict[Metric, float] = {
        ENGINE_HEAP: memory_of(engine),
        ENGINE_SLOTS: engine.slots,
        ENGINE_FREE: engine.free,
        ENGINE_CORES: engine.cores,
    }
    if record is not None and record.process is not None and record.process.alive:
        known |= engine_process_measures(record.process.pid)
    return known


def memory_of(engine: EngineOverview) -> int:
    """Heap in bytes; 0 for an attached engine, whose heap is unknown."""
    if engine.master.startswith("sc://"):
        return 0
    try:
        return memory_bytes(engine.memory)
    except ValueError:
        return 0
