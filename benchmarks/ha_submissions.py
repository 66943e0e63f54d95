"""What a store far away costs the clients of a node: `python -m benchmarks.ha_submissions`.

The same node on SQLite, on a quorum of three ZooKeeper servers, and on PostgreSQL, by turns: submissions a second by REST, each
acknowledged when it is durable, and reads a second. Everything is the product's own, except that engines never come: jobs wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

import click
from benchmarks.control_node import Plane
from benchmarks.harness import HERE, Sample, interleave, machine, say, table
from benchmarks.overview_node import served
from tests.support.postgresql import servers
from tests.support.zookeeper import ZooKeeperQuorum

from firesteel.fs.files import tail
from firesteel.jobgraph.load import load_pipeline
from firesteel.types import new_job_id

PIPELINE = HERE.parent / "examples" / "orders" / "pipeline.yaml"
BUDGET = 0.8
WARM_UP = 100
UNLIMITED = {
    "rest.rate-limit.requests-per-second": "1000000",
    "rest.rate-limit.burst": "1000000",
    "rest.rate-limit.submissions-per-second": "1000000",
}
SUBMISSIONS, READS, READ_MS = "submissions a second", "reads a second", "one read, ms"
Measured = dict[str, float]


@contextlib.contextmanager
def stores(root: Path) -> Iterator[dict[str, dict[str, str]]]:
    """The options of a node on each store."""
    with contextlib.ExitStack() as stack:
        quorum = stack.enter_context(ZooKeeperQuorum(root / "zookeeper", tick_ms=2000))
        postgresql = stack.enter_context(servers())
        yield {
            "SQLite": {},
            "ZooKeeper": {
                "high-availability.type": "zookeeper",
                "high-availability.zookeeper.quorum": quorum.hosts,
                "high-availability.storageDir": str(root / "large-values"),
            },
            "PostgreSQL": {"high-availability.sql.url": postgresql.url},
        }


# -- the node -------------------------------------------------------------------------------------------------------


async def serve(directory: Path, options: Mapping[str, str]) -> None:
    """Until the input ends."""
    plane = await Plane.open(directory, engines=False, options=options)
    async with served(plane, directory) as local:
        print(json.dumps({"address": local.address, "token": local.token}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
    await plane.close()


@contextlib.contextmanager
def node(directory: Path, options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    directory.mkdir()
    log = directory / "log"
    with log.open("w") as errors:
        process = _start(directory, options, errors)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said:
            raise RuntimeError(f"the node did not start\n{tail(log)}")
        found = json.loads(said)
        yield found["address"], found["token"]
    finally:
        process.communicate(timeout=60)


def _start(directory: Path, options: Mapping[str, str], errors: TextIO) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.ha_submissions", "serve", str(directory), json.dumps(dict(options))],
        cwd=HERE.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )


# -- its clients ----------------------------------------------------------------------------------------------------


class Door:
    """One connection, as plain as can be: the clients share the machine with what they measure."""

    def __init__(self, address: str, token: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(address).netloc)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: str | None = None) -> None:
        self._connection.request(method, path, body, self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status not in (200, 202):
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:300]!r}")


def rate(address: str, token: str, clients: int, count: int, one: Callable[[Door], None]) -> float:
    def client(_: int) -> None:
        door = Door(address, token)
        for _ in range(count // clients):
            one(door)

    with ThreadPoolExecutor(clients) as threads:
        began = time.perf_counter()
        list(threads.map(client, range(clients)))
        return count // clients * clients / (time.perf_counter() - began)


def measure(directory: Path, options: Mapping[str, str], graph: str, *, clients: int, count: int) -> Measured:
    def submit(door: Door) -> None:
        door.ask("POST", "/jobs", f'{{"jobId": "{new_job_id()}", "graph": {graph}}}')

    known = new_job_id()

    def read(door: Door) -> None:
        door.ask("GET", f"/jobs/{known}")

    with node(directory, {**options, **UNLIMITED}) as (address, token):
        Door(address, token).ask("POST", "/jobs", f'{{"jobId": "{known}", "graph": {graph}}}')
        for one in (submit, read):
            rate(address, token, clients, WARM_UP, one)
        return {
            SUBMISSIONS: rate(address, token, clients, count, submit),
            READS: rate(address, token, clients, count, read),
            READ_MS: 1000 / rate(address, token, 1, count // 4, read),
        }


@click.group(invoke_without_command=True)
@click.option("--rounds", default=6, show_default=True)
@click.option("--clients", default=16, show_default=True)
@click.option("--count", default=1000, show_default=True, help="Submissions, and reads, a round.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write every measurement to this file.")
@click.pass_context
def main(context: click.Context, rounds: int, clients: int, count: int, json_file: Path | None) -> None:
    """Submissions and reads by REST, on each store by turns."""
    if context.invoked_subcommand is not None:
        return
    say(" · ".join(f"{k} {v}" for k, v in machine().items()))
    graph = load_pipeline(PIPELINE).graph.to_json()
    with tempfile.TemporaryDirectory(prefix="firesteel-bench-") as work, stores(Path(work)) as options:
        number = iter(range(1_000_000))

        def once(name: str) -> Callable[[], Measured]:
            def run() -> Measured:
                this = next(number)
                fresh = {"high-availability.cluster-id": f"bench-{this}", **options[name]}
                return measure(Path(work) / f"node-{this}", fresh, graph, clients=clients, count=count)

            return run

        def told(turn: int, name: str, measured: Measured) -> None:
            say(f"round {turn}, {name}: " + ", ".join(f"{k} {v:.2f}" for k, v in measured.items()))

        found = interleave({name: once(name) for name in options}, rounds, told)
    samples = {n: {what: Sample.of([m[what] for m in ms]) for what in ms[0]} for n, ms in found.items()}
    rows = []
    for what, digits in ((SUBMISSIONS, 0), (READS, 0), (READ_MS, 2)):
        rows.append([what, *(samples[name][what].show(digits=digits) for name in samples), ""])
        ratios = [samples[name][what].over(samples["SQLite"][what]) for name in samples]
        budget = f">= {BUDGET} x: {_kept(ratios[1])}" if what == SUBMISSIONS else ""
        rows.append(["… of SQLite's", *(ratio.show(" x") for ratio in ratios), budget])
    table(
        "the same node, by its store",
        ["what", *samples, "budget of ZooKeeper"],
        rows,
        f"{clients} clients, {rounds} rounds",
    )
    if json_file:
        shown = {name: {what: s.as_json() for what, s in of.items()} for name, of in samples.items()}
        json_file.write_text(json.dumps({"machine": machine(), **shown}, indent=1))


def _kept(ratio: Sample) -> str:
    return "kept" if ratio.median >= BUDGET else "not kept"


@main.command("serve", hidden=True)
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("options")
def serve_command(directory: Path, options: str) -> None:
    asyncio.run(serve(directory, json.loads(options)))


if __name__ == "__main__":
    main()
