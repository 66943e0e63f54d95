"""Opening what the configuration names; following the leader; the hooks of the backend in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.contracts.ha_contract import Recorder, eventually

from firesteel.config import load_configuration
from firesteel.errors import FencingError, InvalidConfigError, StoreUnavailableError
from firesteel.ha.memory import MemoryHighAvailabilityServices
from firesteel.ha.protocols import Epoch, LeaderInformation, LeaderListener, Stored
from firesteel.ha.retrieval import LeaderRetrieval
from firesteel.ha.services import open_high_availability
from firesteel.ha.sql.services import SqlHighAvailabilityServices


async def open_with(tmp_path: Path, **options: str) -> MemoryHighAvailabilityServices | SqlHighAvailabilityServices:
    overrides = {"data.dir": str(tmp_path / "da?ta%20")}
    overrides |= {f"high-availability.{key.replace('__', '.')}": value for key, value in options.items()}
    configuration = load_configuration(overrides=overrides, environ={"HOME": str(tmp_path)}, cwd=tmp_path)
    services = await open_high_availability(configuration)
    assert isinstance(services, MemoryHighAvailabilityServices | SqlHighAvailabilityServices)
    return services


def test_default_is_a_file_in_the_data_directory_that_remembers(tmp_path: Path) -> None:
    async def main() -> None:
        services = await open_with(tmp_path)
        listener = Recorder()
        await services.election("node").start(listener)
        epoch = await listener.granted()
        version = await services.store.put("a", b"kept", epoch=epoch)
        await services.close()
        assert (tmp_path / "da?ta%20" / "cluster.db").is_file()
        services = await open_with(tmp_path)
        assert await services.store.get("a") == Stored(b"kept", version)
        listener = Recorder()
        await services.election("node").start(listener)
        assert await listener.granted() == epoch + 1
        await services.close()

    asyncio.run(main())


def test_named_database(tmp_path: Path) -> None:
    async def main() -> None:
        await (await open_with(tmp_path, sql__url=f"sqlite:///{tmp_path}/other.db")).close()
        assert (tmp_path / "other.db").is_file()
        with pytest.raises(InvalidConfigError):
            await open_with(tmp_path, sql__url="mysql://host/db")

    asyncio.run(main())


def test_none_keeps_nothing_on_disk(tmp_path: Path) -> None:
    async def main() -> None:
        services = await open_with(tmp_path, type="none")
        assert isinstance(services, MemoryHighAvailabilityServices)
        await services.close()

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


def test_retrieval_follows_the_leader() -> None:
    async def main() -> None:
        services = MemoryHighAvailabilityServices()
        retrieval = LeaderRetrieval(services.election("client"), interval=0.005)
        await retrieval.start()
        assert retrieval.current is None
        with pytest.raises(TimeoutError, match=r"no leader .* within 0\.03 s"):
            await retrieval.wait_for_leader(0.03)
        one, listener = services.election("one"), Recorder()
        await one.start(listener)
        epoch = await listener.granted()

        async def seen_without_address() -> bool:
            return retrieval.current == LeaderInformation(epoch, "")

        await eventually(seen_without_address)
        waiting = asyncio.create_task(retrieval.wait_for_leader(10))
        await one.publish(epoch, "http://one")
        assert await waiting == LeaderInformation(epoch, "http://one") == retrieval.current
        await one.close()

        async def forgotten() -> bool:
            return retrieval.current is None

        await eventually(forgotten)
        await retrieval.close()
        await LeaderRetrieval(one).close()

    asyncio.run(main())


class OutOfReach:
    """A driver whose store comes and goes."""

    def __init__(self) -> None:
        self.answer: LeaderInformation | StoreUnavailableError = StoreUnavailableError("no route to the store")

    async def start(self, listener: LeaderListener) -> None: ...

    def holds(self, epoch: Epoch) -> bool:
        return False

    async def publish(self, epoch: Epoch, address: str) -> None: ...

    async def leader(self) -> LeaderInformation | None:
        if isinstance(self.answer, StoreUnavailableError):
            raise self.answer
        return self.answer

    async def close(self) -> None: ...


def test_retrieval_outlives_a_store_out_of_reach_and_keeps_what_it_knows() -> None:
    async def main() -> None:
        driver = OutOfReach()
        retrieval = LeaderRetrieval(driver, interval=0.005)
        await retrieval.start()
        with pytest.raises(TimeoutError, match="the store said: no route"):
            await retrieval.wait_for_leader(0.03)
        leader = LeaderInformation(Epoch(1), "http://one")
        driver.answer = leader
        assert await retrieval.wait_for_leader(10) == leader
        driver.answer = StoreUnavailableError("no route to the store")
        for _ in range(5):
            await asyncio.sleep(0.005)
            assert retrieval.current == leader
        await retrieval.close()

    asyncio.run(main())


def test_memory_revoke_tells_the_holder_and_goes_to_the_next() -> None:
    async def main() -> None:
        services = MemoryHighAvailabilityServices()
        listeners = [Recorder(), Recorder()]
        for n, listener in enumerate(listeners):
            await services.election(f"c{n}").start(listener)
        await listeners[0].granted()
        services.revoke()
        assert listeners[0].events == ["grant", "revoke"]
        assert listeners[1].epochs == [2]
        services.revoke()
        assert listeners[0].epochs == [1, 3]
        assert listeners[0].events == ["grant", "revoke", "grant"]

    asyncio.run(main())


def test_memory_expire_makes_the_epoch_stale_and_tells_nobody_until_resume() -> None:
    async def main() -> None:
        services = MemoryHighAvailabilityServices()
        driver, listener = services.election("alone"), Recorder()
        await driver.start(listener)
        stale = await listener.granted()
        services.expire()
        assert listener.events == ["grant"]
        assert not driver.holds(stale)
        assert await driver.leader() is None
        with pytest.raises(FencingError):
            await services.store.put("a", b"", epoch=stale)
        services.resume()
        assert listener.events == ["grant", "revoke", "grant"]
        assert listener.epochs[1] > stale
        await services.store.put("a", b"", epoch=listener.epochs[1])

    asyncio.run(main())
