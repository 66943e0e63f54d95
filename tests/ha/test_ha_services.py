"""Opening what the configuration names; following the leader; the hooks of the backend in memory."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.config import load_configuration
from firesteel.errors import FencingError, InvalidConfigError, StoreBrokenError, StoreUnavailableError
from firesteel.ha.memory import MemoryHighAvailabilityServices
from firesteel.ha.protocols import Epoch, HighAvailabilityServices, LeaderInformation, LeaderListener, Stored
from firesteel.ha.retrieval import LeaderRetrieval
from firesteel.ha.services import open_high_availability
from firesteel.ha.sql.services import SqlHighAvailabilityServices
from firesteel.testing.ha_contract.harness import Recorder, eventually
from firesteel.testing.memory_ha import SteeredHighAvailabilityServices


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

    async def resign(self, epoch: Epoch, *, patience: float) -> None: ...

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
        services = SteeredHighAvailabilityServices()
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
        services = SteeredHighAvailabilityServices()
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


async def open_factory(tmp_path: Path, name: str) -> HighAvailabilityServices:
    overrides = {"high-availability.type": name, "data.dir": str(tmp_path)}
    configuration = load_configuration(overrides=overrides, environ={"HOME": str(tmp_path)}, cwd=tmp_path)
    return await open_high_availability(configuration)


FACTORY = """
from firesteel.errors import StoreBrokenError
from firesteel.ha.memory import MemoryHighAvailabilityServices

NUMBER = 1
seen = []

async def open_backend(configuration):
    seen.append(configuration.high_availability.cluster_id)
    return MemoryHighAvailabilityServices()

async def broken(configuration):
    raise StoreBrokenError("no power")


class Backend(MemoryHighAvailabilityServices):
    def __init__(self, configuration):
        super().__init__()
        seen.append(configuration.high_availability.cluster_id)
"""


@pytest.fixture
def factory_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of a third party, under a name that no other test has used."""
    name = f"third_party_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


@pytest.mark.parametrize("name", [":open_backend", ".open_backend", ":Backend"])
def test_factory_is_called_with_the_configuration(tmp_path: Path, factory_module: str, name: str) -> None:
    async def main() -> None:
        services = await open_factory(tmp_path, f"{factory_module}{name}")
        assert isinstance(services, MemoryHighAvailabilityServices)
        await services.close()

    asyncio.run(main())
    assert sys.modules[factory_module].seen == ["default"]


@pytest.mark.parametrize("name", ["{}:nothing", "{}:NUMBER", "{}_not:open_backend", "{}:open_backend.x"])
def test_factory_that_is_none_is_a_mistake_in_the_configuration(tmp_path: Path, factory_module: str, name: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"high-availability\.type") as raised:
        asyncio.run(open_factory(tmp_path, name.format(factory_module)))
    assert factory_module in str(raised.value)


def test_factory_whose_module_lacks_something_says_what(
    tmp_path: Path, factory_module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{factory_module}.py").write_text("import a_library_that_is_not_here")
    with pytest.raises(InvalidConfigError, match=r"a_library_that_is_not_here.*install it on every node"):
        asyncio.run(open_factory(tmp_path, f"{factory_module}:open_backend"))


def test_errors_of_a_factory_are_its_own(tmp_path: Path, factory_module: str) -> None:
    with pytest.raises(StoreBrokenError, match="no power"):
        asyncio.run(open_factory(tmp_path, f"{factory_module}:broken"))


def test_what_is_neither_a_type_nor_a_factory_is_refused_when_the_configuration_is_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"package\.module:name"):
        asyncio.run(open_factory(tmp_path, "zoo-keeper"))
