"""The `sql` backend by itself, on SQLite and on PostgreSQL: `python -m benchmarks.ha_store [--url URL] [--json FILE]`.

Without a URL a PostgreSQL server is made in a temporary directory, beside the SQLite file: same disk, every commit synced.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from benchmarks.harness import Sample, console, interleave, machine, say, settle
from rich.table import Table
from tests.support.postgresql import servers

from firesteel.ha.changes import LeadershipChanges
from firesteel.ha.protocols import Epoch
from firesteel.ha.sql.services import SqlHighAvailabilityServices
from firesteel.testing.ha_contract.harness import Recorder

VALUE = bytes(range(256)) * 8
"""As large as a small job graph."""
LEASE = 30.0
Measured = dict[str, float]


@contextlib.contextmanager
def databases(url: str | None) -> Iterator[dict[str, str]]:
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="firesteel-bench-"))
        yield {
            "SQLite": f"sqlite:///{Path(directory) / 'cluster.db'}",
            "PostgreSQL": url or stack.enter_context(servers()).url,
        }


async def opened(url: str, cluster_id: str) -> SqlHighAvailabilityServices:
    return await SqlHighAvailabilityServices.open(url, cluster_id=cluster_id, lease_duration=LEASE)


async def measure(url: str, *, hands: int, count: int, hand_overs: int) -> Measured:
    cluster_id = uuid.uuid4().hex
    services = await opened(url, cluster_id)
    listener = Recorder()
    driver = services.election("bench")
    await driver.start(listener)
    epoch = await listener.granted()
    measured = {
        "puts a second, many hands": await rate(services, epoch, "many", hands=hands, count=count),
        "puts a second, one hand": await rate(services, epoch, "one", hands=1, count=count // 20),
    }
    began = time.perf_counter()
    for n in range(count // 10):
        await services.store.get(f"many/{n}")
    measured["gets a second, one hand"] = count // 10 / (time.perf_counter() - began)
    await driver.close()
    measured["hand-over, ms"] = await hand_over(url, cluster_id, services, hand_overs) * 1000
    await services.close()
    return measured


async def rate(services: SqlHighAvailabilityServices, epoch: Epoch, prefix: str, *, hands: int, count: int) -> float:
    numbers = iter(range(count))

    async def hand() -> None:
        for n in numbers:
            await services.store.put(f"{prefix}/{n}", VALUE, epoch=epoch)

    began = time.perf_counter()
    await asyncio.gather(*(hand() for _ in range(hands)))
    return count / (time.perf_counter() - began)


async def hand_over(url: str, cluster_id: str, one: SqlHighAvailabilityServices, times: int) -> float:
    """From the moment at which a leader gives up to the grant of the next, on another node, in seconds."""
    nodes = [one, await opened(url, cluster_id)]
    took: list[float] = []
    listener = Recorder()
    driver = nodes[0].election("first")
    await driver.start(listener)
    await listener.granted()
    for n in range(times):
        heir, heard = nodes[(n + 1) % 2].election(f"heir-{n}"), Recorder()
        await heir.start(heard)
        await asyncio.sleep(0.2)  # it has looked, and waits
        began = time.perf_counter()
        await driver.close()
        await heard.granted()
        took.append(time.perf_counter() - began)
        driver = heir
    await driver.close()
    await nodes[1].close()
    return Sample.of(took).median


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """Nobody listens: contenders look every half second, as without LISTEN."""
    original = LeadershipChanges.start
    LeadershipChanges.start = lambda self: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        LeadershipChanges.start = original  # type: ignore[method-assign]


@click.command()
@click.option("--url", help="A PostgreSQL database to use instead of one that is made here.")
@click.option("--rounds", default=6, show_default=True)
@click.option("--hands", default=64, show_default=True, help="Writers that each wait for their answer.")
@click.option("--count", default=4000, show_default=True, help="Writes a round.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write every measurement to this file.")
def main(url: str | None, rounds: int, hands: int, count: int, json_file: Path | None) -> None:
    """Writes a second and the time of a hand-over, on SQLite and PostgreSQL by turns."""
    say(" · ".join(f"{k} {v}" for k, v in machine().items()))
    with databases(url) as urls:

        def once(name: str, hand_overs: int = 4) -> Callable[[], Measured]:
            return lambda: asyncio.run(measure(urls[name], hands=hands, count=count, hand_overs=hand_overs))

        def told(number: int, name: str, measured: Measured) -> None:
            say(f"round {number}, {name}: " + ", ".join(f"{k} {v:.1f}" for k, v in measured.items()))

        found = interleave({name: once(name) for name in urls}, rounds, told, between=settle)
        with deaf():
            polled = asyncio.run(measure(urls["PostgreSQL"], hands=hands, count=200, hand_overs=12))
    samples = {
        name: {what: Sample.of([m[what] for m in measured]) for what in measured[0]} for name, measured in found.items()
    }
    table = Table("", *samples, "ratio", title=f"The store: {hands} hands, values of {len(VALUE)} bytes")
    for what in samples["SQLite"]:
        ratio = samples["PostgreSQL"][what].over(samples["SQLite"][what])
        table.add_row(what, *(s[what].show(digits=1) for s in samples.values()), ratio.show(" x"))
    table.add_row("hand-over without LISTEN, ms", "", f"{polled['hand-over, ms']:.1f}", "")
    console.print(table)
    if json_file:
        shown = {name: {what: s.as_json() for what, s in of.items()} for name, of in samples.items()}
        json_file.write_text(json.dumps({"machine": machine(), **shown, "polled": polled}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
