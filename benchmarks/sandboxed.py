"""The sandbox on against off, by turns: two nodes with an engine each, the same jobs by REST.

Jobs are of an owner who is not the node's user: from those, the sandbox hides files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Sample, Workbench, interleave, say, table
from benchmarks.rest_api import CLIENTS, GRAPH, Jobs, node, rate

from firesteel.config.sections import Role
from firesteel.rest.security.tokens import TokenFile

OFF, ON = "off", "landlock"
WARM_UP = 10
WARM_UP_SATURATED = 100
BUDGET = 0.95


def run(bench: Workbench, *, repetitions: int, rounds: int, jobs: int) -> dict[str, Any]:
    work = bench.folder("sandbox")
    with contextlib.ExitStack() as opened:
        variants: dict[str, dict[str, Callable[[], float]]] = {"nowhere": {}, "files": {}}
        for kind in (OFF, ON):
            graph = writing_to(work / f"out-{kind}")
            more = {"security.sandbox": kind, "security.sandbox.write-paths": str(work / f"out-{kind}")}
            local, configuration = opened.enter_context(
                node(work / kind, master=bench.spec.master, memory=bench.spec.memory, more=more)
            )
            token = TokenFile(configuration.security.tokens_file).create("alice", Role.OPERATOR, "alice")
            variants["nowhere"][kind] = opened.enter_context(Jobs(local, token=token)).run
            variants["files"][kind] = opened.enter_context(Jobs(local, graph, token=token)).run
        report: dict[str, Any] = {}
        rows = []
        for what, by_kind in variants.items():
            say(f"sandbox, jobs to {what}: warming up")
            interleave(by_kind, WARM_UP)
            for job in by_kind.values():
                rate(job, WARM_UP_SATURATED)
            say(f"sandbox, jobs to {what}: {repetitions} by turns, then {rounds} rounds of {jobs} at {CLIENTS} clients")
            latency = {n: Sample.of(v) for n, v in interleave(by_kind, repetitions).items()}
            saturated = {n: _saturated(job, jobs) for n, job in by_kind.items()}
            rates = {n: Sample.of(v) for n, v in interleave(saturated, rounds).items()}
            speed, gain = latency[OFF].median / latency[ON].median, rates[ON].over(rates[OFF])
            rows += [
                [f"one job to {what}, ms, off", latency[OFF].show(digits=0, scale=1000), ""],
                ["… on", latency[ON].show(digits=0, scale=1000), ""],
                ["… off over on, of the medians", f"{speed:.2f}", f">= {BUDGET}"],
                [f"jobs to {what} a second at {CLIENTS} clients, off", rates[OFF].show(digits=1), ""],
                ["… on", rates[ON].show(digits=1), ""],
                ["… on over off, within the round", gain.show(), f">= {BUDGET}"],
            ]
            report[what] = {
                "latency_ms": {n: Sample.of([v * 1000 for v in s.values]).as_json() for n, s in latency.items()},
                "speed_ratio": speed,
                "jobs_per_second": {n: s.as_json() for n, s in rates.items()},
                "rate_ratio": gain.as_json(),
            }
    table(
        "jobs by REST with and without the sandbox", ["what", "measured", "budget"], rows, f"n={repetitions} by turns."
    )
    return report


def _saturated(job: Callable[[], float], jobs: int) -> Callable[[], float]:
    return lambda: rate(job, jobs)


def writing_to(directory: Path) -> dict[str, Any]:
    """The same job with a sink that is committed: its driver opens what the job names."""
    directory.mkdir(parents=True)
    query, _ = GRAPH["vertices"]
    sink = {
        "kind": "sink",
        "name": "files",
        "input": "one",
        "format": "parquet",
        "path": str(directory),
        "mode": "append",
    }
    return {"name": "trivial", "vertices": [query, sink]}
