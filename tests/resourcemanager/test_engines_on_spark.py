"""The ResourceManager with real engines: lost ones are replaced, those of an earlier life adopted, leftovers removed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.guards import certain

from firesteel.config import Configuration, load_configuration
from firesteel.engines.launcher import healthy, stop_engine
from firesteel.engines.record import EngineDirectory, EngineSpec
from firesteel.resourcemanager.gateway import SlotRequest
from firesteel.resourcemanager.gc import ClusterPlaces, JobsKnown, LeftoverKind, find_leftovers, remove
from firesteel.resourcemanager.manager import ResourceManager
from firesteel.resourcemanager.state import EngineState
from firesteel.types import JobID
from firesteel.worker.engines import LocalEngineProvider
from firesteel.worker.launch_options import launch_options
from firesteel.worker.offer import local_offer

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SPEC = EngineSpec("local[1]", memory="512m")


@pytest.fixture
def mine(configuration: Configuration, tmp_path: Path) -> Iterator[Configuration]:
    """A cluster of its own. What a test leaves running is ended."""
    made = load_configuration(
        overrides={
            "data.dir": str(tmp_path / "data"),
            "data.cache-dir": str(configuration.data.cache_dir),
            "heartbeat.interval": "100 ms",
            "engine.max": "1",
        },
        environ={k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")},
    )
    yield made
    for directory in (EngineDirectory(made.data.dir), EngineDirectory(made.data.dir / "clusters" / "default")):
        for record in directory.all():
            stop_engine(directory, record, grace=5)


def provider(configuration: Configuration) -> LocalEngineProvider:
    return LocalEngineProvider(EngineDirectory(configuration.data.dir), launch_options(configuration))


def request(job: str) -> SlotRequest:
    return SlotRequest(JobID(job), SPEC)


def test_killed_engine_is_told_and_replaced(mine: Configuration) -> None:
    async def scene() -> None:
        source = provider(mine)
        manager = ResourceManager(mine, source, default_spec=SPEC, guard=certain)
        manager.offer([local_offer(mine, SPEC, "w")])
        await manager.start()
        manager.recovered()
        slot = await asyncio.wait_for(manager.request_slot(request("a")), 90)
        assert slot.engine is not None
        assert slot.engine.process is not None
        slot.engine.process.signal(signal.SIGKILL, group=True)
        reason = await asyncio.wait_for(slot.lost, 20)
        assert slot.engine.engine_id in reason
        assert EngineDirectory(mine.data.dir).load(slot.engine.engine_id) is None
        again = await asyncio.wait_for(manager.request_slot(request("a")), 90)
        assert again.engine is not None
        assert again.engine.engine_id != slot.engine.engine_id
        assert healthy(again.engine)
        await manager.close()
        await source.close()

    asyncio.run(scene())
    assert len(EngineDirectory(mine.data.dir).alive()) == 1  # it outlives the control plane


def test_engines_are_adopted_by_the_next_life_also_one_that_was_just_starting(
    mine: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firesteel.engines.launcher.HEALTH_SECONDS", 2.0)

    async def dropped() -> None:
        """Ends as a crash does: nothing is closed, and the engine is still starting."""
        manager = ResourceManager(mine, provider(mine), default_spec=SPEC, guard=certain)
        manager.offer([local_offer(mine, SPEC, "w")])
        await manager.start()
        manager.recovered()
        asking = asyncio.create_task(manager.request_slot(request("a")))
        async with asyncio.timeout(30):
            while not EngineDirectory(mine.data.dir).alive():  # noqa: ASYNC110 - a file, not an event
                await asyncio.sleep(0.01)
        assert not asking.done()

    asyncio.run(dropped())
    [left] = EngineDirectory(mine.data.dir).alive()

    async def next_life() -> None:
        source = provider(mine)
        manager = ResourceManager(mine, source, default_spec=SPEC, guard=certain)
        manager.offer([local_offer(mine, SPEC, "w")])
        await manager.start()
        slot = await asyncio.wait_for(manager.reclaim_slot(request("a"), left.engine_id), 90)
        assert slot is not None
        assert slot.engine is not None
        assert (slot.engine.engine_id, slot.engine.process) == (left.engine_id, left.process)
        manager.recovered()
        # A new job has to wait for the engine to come up.
        other = await asyncio.wait_for(manager.request_slot(request("b")), 90)
        assert other.engine == slot.engine
        assert [e.state for e in manager.overview().engines] == [EngineState.READY]
        # A hung engine is found out by whoever suspects it, and nothing of it stays.
        assert left.process is not None
        left.process.signal(signal.SIGSTOP)
        await manager.suspect(left.engine_id)
        assert slot.lost.done()
        assert other.lost.done()
        assert not left.process.alive
        await manager.close()
        await source.close()

    asyncio.run(next_life())
    assert EngineDirectory(mine.data.dir).all() == []


def test_engine_that_was_left_behind_is_found_and_removed(mine: Configuration) -> None:
    root = mine.data.dir / "clusters" / "default"

    async def life() -> None:
        source = LocalEngineProvider(EngineDirectory(root), launch_options(mine))
        manager = ResourceManager(mine, source, default_spec=SPEC, guard=certain)
        manager.offer([local_offer(mine, SPEC, "w")])
        await manager.start()
        manager.recovered()
        await asyncio.wait_for(manager.request_slot(request("a")), 90)
        await manager.close()
        await source.close()

    asyncio.run(life())
    [engine] = EngineDirectory(root).alive()
    places = ClusterPlaces(mine.data.dir, root, mine.state.checkpoints_dir)
    needed = JobsKnown(frozenset(), frozenset(), time.time(), cluster_live=True)
    assert find_leftovers(places, needed, older_than=0) == []
    [left] = find_leftovers(places, JobsKnown(frozenset(), frozenset(), time.time()), older_than=0)
    assert (left.kind, left.what) == (LeftoverKind.ENGINE, engine.engine_id)
    remove(left, places)
    assert engine.process is not None
    assert not engine.process.alive
    assert EngineDirectory(root).all() == []
