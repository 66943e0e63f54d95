"""Jobs by REST, as a client sees them: against a bare Spark Connect client on the same engine, in the same rounds.

And what the API costs by itself: the list of many jobs, and listeners that hear nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.harness import HERE, Sample, Workbench, cpu_seconds, interleave, plain_client, say, table

from firesteel.client.cluster import ClusterClient
from firesteel.client.discovery import LocalCluster, find_local
from firesteel.config import Configuration, load_configuration
from firesteel.engines.record import EngineDirectory, EngineRecord
from firesteel.fs.files import tail
from firesteel.processes import ProcessIdentity
from firesteel.types import new_job_id

QUERY = "SELECT id FROM range(1)"
GRAPH: dict[str, Any] = {
    "name": "trivial",
    "vertices": [
        {"kind": "sql", "name": "one", "query": QUERY},
        {"kind": "sink", "name": "nowhere", "input": "one", "format": "noop", "mode": "overwrite"},
    ],
}
BARE, REST, RESULT = "bare Connect client", "REST, on the event stream", "submit(graph).result()"
WARM_UP = 10
WARM_UP_SATURATED = 150
CLIENTS = 8
LISTENERS = 200
BUDGET_LATENCY, BUDGET_RESULT, BUDGET_RATE, BUDGET_OVERVIEW_MS, BUDGET_LISTENERS = 1.3, 0.85, 0.9, 100.0, 10.0


def run(bench: Workbench, *, repetitions: int, rounds: int, jobs: int, requests: int, idle: float) -> dict[str, Any]:
    work = bench.folder("rest")
    with node(work / "node", master=bench.spec.master, memory=bench.spec.memory) as (local, configuration):
        with Jobs(local) as rest:
            rest.run()  # starts the engine
            engine = _engine(configuration)
            say("REST: warming up")
            variants: dict[str, Callable[[], float]] = {
                BARE: lambda: bare(engine),
                REST: rest.run,
                RESULT: rest.result,
            }
            interleave(variants, WARM_UP)
            say(f"REST: one job at a time, {repetitions} by turns")
            latency = {n: Sample.of(v) for n, v in interleave(variants, repetitions).items()}
            say(f"REST: {CLIENTS} clients, {jobs} jobs a round, {rounds} rounds")
            saturated: dict[str, Callable[[], float]] = {
                BARE: lambda: rate(lambda: bare(engine), jobs),
                REST: lambda: rate(rest.run, jobs),
            }
            # Spark compiles for minutes; whoever goes first would pay for the other.
            for job in (rest.run, lambda: bare(engine)):
                rate(job, WARM_UP_SATURATED)
            rates = {n: Sample.of(v) for n, v in interleave(saturated, rounds).items()}
        say(f"REST: {LISTENERS} listeners")
        listening = listeners(local, idle)
    say("REST: the list of 1,000 running and 10,000 ended jobs")
    overview = _overview(work / "overview", requests)
    return _report(latency, rates, listening, overview, repetitions, jobs)


def _report(
    latency: dict[str, Sample],
    rates: dict[str, Sample],
    listening: dict[str, float],
    overview: dict[str, Any],
    repetitions: int,
    jobs: int,
) -> dict[str, Any]:
    ratio = Sample.of([latency[REST].median / latency[BARE].median])
    waited = Sample.of([latency[RESULT].median / latency[BARE].median])
    gain = rates[REST].over(rates[BARE])
    rows = [
        ["one trivial job, ms, bare", latency[BARE].show(digits=0, scale=1000), ""],
        ["… by REST, submit to FINISHED", latency[REST].show(digits=0, scale=1000), ""],
        ["… ratio of the medians", ratio.show(), f"<= {BUDGET_LATENCY}"],
        ["… by cluster.submit(graph).result()", latency[RESULT].show(digits=0, scale=1000), ""],
        ["… ratio of the medians", waited.show(), f"<= {BUDGET_RESULT}"],
        [f"jobs a second at {CLIENTS} clients, bare", rates[BARE].show(digits=1), ""],
        ["… by REST", rates[REST].show(digits=1), ""],
        ["… ratio within the round", gain.show(), f">= {BUDGET_RATE}"],
        ["/jobs/overview p50, ms", f"{overview['p50_ms']:.1f}", ""],
        ["/jobs/overview p99, ms", f"{overview['p99_ms']:.1f}", f"<= {BUDGET_OVERVIEW_MS:.0f}"],
        [f"{LISTENERS} idle listeners, % of a core", f"{listening['percent']:.2f}", f"< {BUDGET_LISTENERS:.0f}"],
    ]
    table(
        "jobs by REST, against a bare Connect client on the same engine",
        ["what", "measured", "budget"],
        rows,
        f"n={repetitions} by turns; {jobs} jobs a round at {CLIENTS} clients; the list has "
        f"{overview['jobs']:,} jobs and {overview['bytes'] / 1e6:.1f} MB.",
    )
    return {
        "latency_ms": {n: Sample.of([v * 1000 for v in s.values]).as_json() for n, s in latency.items()},
        "latency_ratio": ratio.median,
        "result_ratio": waited.median,
        "jobs_per_second": {n: s.as_json() for n, s in rates.items()},
        "rate_ratio": gain.as_json(),
        "overview": overview,
        "listeners": listening,
    }


# -- the two ways ---------------------------------------------------------------------------------------------------


def bare(engine: EngineRecord) -> float:
    began = time.perf_counter()
    with plain_client(engine) as spark:
        spark.sql(QUERY).write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began


class Jobs:
    """Submits jobs and hears of their ends on one stream of all events."""

    def __init__(self, local: LocalCluster, graph: Mapping[str, Any] = GRAPH, token: str | None = None) -> None:
        self._graph = dict(graph)
        self._client = ClusterClient(local.address, token=token or local.token)
        self._ends: dict[str, threading.Event] = {}
        self._states: dict[str, str] = {}
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Jobs:
        self._thread.start()
        time.sleep(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def _listen(self) -> None:
        with contextlib.suppress(Exception):
            for event in self._client.events():
                if event.final and event.job_id in self._ends:
                    self._states[event.job_id] = str(event.status)
                    self._ends[event.job_id].set()

    def run(self) -> float:
        job_id = new_job_id()
        end = self._ends[job_id] = threading.Event()
        began = time.perf_counter()
        self._client.submit(self._graph, job_id=job_id, upload=False)
        if not end.wait(120):
            raise RuntimeError(f"job {job_id} was not heard of: {self._client.job(job_id).status()}")
        took = time.perf_counter() - began
        del self._ends[job_id]
        if (state := self._states.pop(job_id)) != "FINISHED":
            raise RuntimeError(f"job {job_id} is {state}: {self._client.job(job_id).details()['failure']}")
        return took

    def result(self) -> float:
        """What a program waits for that calls `cluster.submit(graph).result()`."""
        began = time.perf_counter()
        self._client.submit(self._graph, upload=False).result()
        return time.perf_counter() - began


def rate(job: Callable[[], float], count: int) -> float:
    with ThreadPoolExecutor(CLIENTS) as threads:
        began = time.perf_counter()
        list(threads.map(lambda _: job(), range(count)))
        return count / (time.perf_counter() - began)


# -- a node ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def node(
    directory: Path, *, master: str, memory: str, more: Mapping[str, str] | None = None
) -> Iterator[tuple[LocalCluster, Configuration]]:
    """`python -m firesteel.entrypoint` as it comes, except for limits that the benchmark would run into."""
    directory.mkdir(parents=True)
    definitions = {
        "data.dir": str(directory),
        "rest.port": "0",
        "engine.master": master,
        "engine.memory": memory,
        "engine.slots": "16",
        "rest.rate-limit.requests-per-second": "100000",
        "rest.rate-limit.burst": "100000",
        "rest.rate-limit.submissions-per-second": "100000",
        **(more or {}),
    }
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
    configuration = load_configuration(overrides=definitions, environ=environment)
    log = directory / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "firesteel.entrypoint", *(f"-D{k}={v}" for k, v in definitions.items())],
            stdout=output,
            stderr=output,
            env=environment,
        )
    try:
        deadline = time.monotonic() + 60
        while (local := find_local(configuration)) is None or "leads;" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the node did not start\n{tail(log)}")
            time.sleep(0.05)
        yield local, configuration
        with ClusterClient(local.address, token=local.token) as client:
            client.shut_down()
        process.wait(60)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def _engine(configuration: Configuration) -> EngineRecord:
    cluster = configuration.data.dir / "clusters" / configuration.high_availability.cluster_id
    (engine,) = EngineDirectory(cluster).alive()
    return engine


# -- the API by itself ----------------------------------------------------------------------------------------------


def listeners(local: LocalCluster, seconds: float) -> dict[str, float]:
    """Processor time of the node while many streams are open and nothing happens."""
    where = urlsplit(local.address)
    assert where.hostname is not None
    open_streams = []
    try:
        for _ in range(LISTENERS):
            stream = socket.create_connection((where.hostname, where.port or 80))
            stream.sendall(
                f"GET /events HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {local.token}\r\n\r\n".encode()
            )
            assert stream.recv(12) == b"HTTP/1.1 200"
            open_streams.append(stream)
        time.sleep(2)
        me = ProcessIdentity.of(local.process.pid)
        before, began = cpu_seconds(me), time.perf_counter()
        time.sleep(seconds)
        used, took = cpu_seconds(me) - before, time.perf_counter() - began
    finally:
        for stream in open_streams:
            stream.close()
    return {"listeners": LISTENERS, "percent": 100 * used / took, "seconds": took}


def _overview(directory: Path, requests: int) -> dict[str, Any]:
    directory.mkdir()
    out = subprocess.run(
        [sys.executable, "-m", "benchmarks.overview_node", str(directory), str(requests)],
        cwd=HERE.parent,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(out.stdout)
    return found
