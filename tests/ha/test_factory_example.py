"""The example of a third party's backend, beyond the contract that it keeps: what is particular to a directory."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.needs import ROOT

from firesteel.config import load_configuration
from firesteel.errors import InvalidConfigError, StoreBrokenError, StoreError
from firesteel.ha.protocols import Epoch, HighAvailabilityServices, Stored
from firesteel.ha.services import open_high_availability
from firesteel.testing.ha_contract.harness import DEADLINE, contend, leading

EXAMPLE = ROOT / "examples" / "ha_backend"
NAME = "firesteel_directory_ha:open_backend"


async def open_example(directory: Path, *, lease: str = "60 s", **options: str) -> HighAvailabilityServices:
    overrides = {
        "high-availability.type": NAME,
        "high-availability.storageDir": str(directory),
        "high-availability.lease-duration": lease,
        **options,
    }
    configuration = load_configuration(overrides=overrides, environ={"HOME": str(directory)}, cwd=directory)
    return await open_high_availability(configuration)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))


def run(directory: Path, test: Callable[[HighAvailabilityServices], Awaitable[None]]) -> None:
    async def main() -> None:
        services = await open_example(directory)
        try:
            await test(services)
        finally:
            await services.close()

    asyncio.run(main())


def test_what_it_wrote_is_there_for_the_next_one_that_opens_it(tmp_path: Path) -> None:
    async def write(services: HighAvailabilityServices) -> None:
        _, _, epoch = await leading(services)
        for path in ("a/b.tmp", ".hidden.tmp", "a/x"):  # files that are being written have such names
            await services.store.put(path, path.encode(), epoch=epoch)

    async def read(services: HighAvailabilityServices) -> None:
        assert list(await services.store.paths("a")) == ["a/b.tmp", "a/x"]
        assert await services.store.get(".hidden.tmp") == Stored(b".hidden.tmp", 2)
        _, _, epoch = await leading(services)
        assert epoch == 2
        assert await services.store.put("a/x", b"", epoch=epoch) == 4

    run(tmp_path, write)
    run(tmp_path, read)


def test_clusters_that_share_a_directory_know_nothing_of_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        for n, name in enumerate(("blue", "green")):
            services = await open_example(tmp_path, **{"high-availability.cluster-id": name})
            _, _, epoch = await leading(services)
            assert epoch == 1
            assert await services.store.get("a") is None
            assert await services.store.put("a", str(n).encode(), epoch=epoch) == 1
            await services.close()

    asyncio.run(main())


async def put_one(services: HighAvailabilityServices) -> None:
    await services.store.put("a", b"", epoch=Epoch(1))


def test_limits_are_told(tmp_path: Path) -> None:
    async def test(services: HighAvailabilityServices) -> None:
        _, _, epoch = await leading(services)
        with pytest.raises(StoreError, match="too long"):
            await services.store.put("a" * 300, b"", epoch=epoch)

    run(tmp_path, test)
    with pytest.raises(InvalidConfigError, match=r"high-availability\.storageDir"):
        asyncio.run(open_example(tmp_path, **{"high-availability.storageDir": "s3://bucket/x"}))
    (tmp_path / "default" / "leader.json").write_text("{")
    with pytest.raises(StoreBrokenError, match=r"leader\.json is damaged"):
        run(tmp_path, put_one)


CHILD = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from tests.ha.test_factory_example import open_example
from firesteel.testing.ha_contract.harness import leading

async def main():
    services = await open_example(Path(sys.argv[1]), lease=sys.argv[2])
    _, _, epoch = await leading(services)
    n = 0
    while True:
        await services.store.put(f"acks/{n}", str(n).encode(), epoch=epoch)
        print(n, flush=True)
        n += 1

asyncio.run(main())
"""


@pytest.mark.slow
def test_every_acknowledged_put_survives_kill_9_and_the_lock_goes_with_the_process(tmp_path: Path) -> None:
    arguments = [str(tmp_path), "2 s", str(ROOT), str(EXAMPLE)]
    child = subprocess.Popen([sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout as out:
        for line in out:
            if int(line) >= 50:
                break
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        acknowledged = 50 + sum(line.endswith("\n") for line in out)

    async def check() -> None:
        services = await open_example(tmp_path, lease="2 s")
        try:
            _, listener = await contend(services)
            began = time.monotonic()
            assert await listener.granted() == 2
            assert time.monotonic() - began < DEADLINE
            stored = await services.store.list("acks")
            assert len(stored) > acknowledged
            assert all(value.value == path.rpartition("/")[2].encode() for path, value in stored.items())
        finally:
            await services.close()

    asyncio.run(check())


def test_package_has_the_module_that_the_pages_name() -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    [module] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert module == NAME.partition(":")[0] + ".py"
    assert (EXAMPLE / module).is_file()
    for page in (EXAMPLE / "README.md", ROOT / "docs" / "operations" / "high-availability-factory.md"):
        assert f"high-availability.type: {NAME}" in page.read_text(), page
