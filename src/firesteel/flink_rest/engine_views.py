"""Engines in the form of the contract: each is a task manager. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firesteel.metrics.process import physical_memory
from firesteel.resourcemanager.measures import memory_of
from firesteel.resourcemanager.overview import EngineOverview
from firesteel.rest.answers import Json
from firesteel.types import JobID

MEBIBYTE = 1 << 20


def render_engine(engine: EngineOverview, now: float) -> Json:
    heap = memory_of(engine)
    share = engine.free / engine.slots if engine.slots else 0.0
    host, _, port = engine.address.rpartition(":")
    return {
        "id": engine.engine_id,
        "path": f"sc://{engine.address}" if host else engine.master,
        "dataPort": int(port) if port.isdigit() else -1,
        "jmxPort": -1,
        "timeSinceLastHeartbeat": round(now * 1000),
        "slotsNumber": engine.slots,
        "freeSlots": engine.free,
        "assignedTasks": len(engine.jobs),
        "totalResource": _profile(engine.cores, heap),
        "freeResource": _profile(engine.cores * share, heap * share),
        "hardware": {
            "cpuCores": engine.cores,
            "physicalMemory": physical_memory(),
            "freeMemory": heap,
            "managedMemory": 0,
        },
        "memoryConfiguration": {
            "frameworkHeap": 0,
            "taskHeap": heap,
            "frameworkOffHeap": 0,
            "taskOffHeap": 0,
            "networkMemory": 0,
            "managedMemory": 0,
            "jvmMetaspace": 0,
            "jvmOverhead": 0,
            "totalFlinkMemory": heap,
            "totalProcessMemory": heap,
        },
    }


def render_details(engine: EngineOverview, jobs: Sequence[JobID], metrics: Mapping[str, float], now: float) -> Json:
    slots = max(1, engine.slots)
    resource = _profile(engine.cores / slots, memory_of(engine) / slots)
    return {
        **render_engine(engine, now),
        "allocatedSlots": [{"jobId": j, "resource": resource, "assignedTasks": 1} for j in jobs],
        "metrics": {
            "heapUsed": metrics.get("Status.JVM.Memory.Heap.Used", 0),
            "heapCommitted": metrics.get("Status.JVM.Memory.Heap.Committed", 0),
            "heapMax": metrics.get("Status.JVM.Memory.Heap.Max", 0),
            # Spark has no such parts, or does not report them by itself.
            "nonHeapUsed": 0,
            "nonHeapCommitted": 0,
            "nonHeapMax": 0,
            "directCount": 0,
            "directUsed": 0,
            "directMax": 0,
            "mappedCount": 0,
            "mappedUsed": 0,
            "mappedMax": 0,
            "nettyShuffleMemorySegmentsAvailable": 0,
            "nettyShuffleMemorySegmentsUsed": 0,
            "nettyShuffleMemorySegmentsTotal": 0,
            "nettyShuffleMemoryAvailable": 0,
            "nettyShuffleMemoryUsed": 0,
            "nettyShuffleMemoryTotal": 0,
            "garbageCollectors": [],
        },
    }


def _profile(cores: float, memory: float) -> Json:
    """Memory in mebibytes, as the contract counts it here."""
    return {
        "cpuCores": float(cores),
        "taskHeapMemory": int(memory) // MEBIBYTE,
        "taskOffHeapMemory": 0,
        "managedMemory": 0,
        "networkMemory": 0,
        "extendedResources": {},
    }
