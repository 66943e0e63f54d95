"""All benchmarks, one command: `python benchmarks/run.py [--quick] [--only PART] [--json FILE]`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

# Run as a script, only this folder is on the path; the modules are imported by their full name, as mypy sees them.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
from benchmarks import compiling, control_plane, metered, queries, rest_api, sandboxed, startup, trivial
from benchmarks.dataset import dataset
from benchmarks.harness import Workbench, console, machine, say
from benchmarks.pipelines import PIPELINES

from firesteel.spark_connect.session import quiet_client_logs

PARTS = ("startup", "trivial", "compile", "control", "rest", "sandbox", "metrics", "queries")


@click.command(context_settings={"max_content_width": 120})
@click.option("--quick", is_flag=True, help="Small and short: shows that everything works, not how fast it is.")
@click.option("--only", type=click.Choice(PARTS), multiple=True, help="Only this part; may be given several times.")
@click.option("--pipeline", type=click.Choice([p.name for p in PIPELINES]), multiple=True, help="Only this query.")
@click.option("--rows", type=click.IntRange(min=10_000), help="Rows of the main table [20000000; quick: 500000].")
@click.option("--small-files", type=click.IntRange(min=1), help="Number of small files [2000; quick: 200].")
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of start-ups and queries [6; quick: 2].")
@click.option("--repetitions", type=click.IntRange(min=1), help="Compilations and trivial jobs [30; quick: 5].")
@click.option("--control", is_flag=True, help="Also run each query by hand twice a round: the noise of the ratio.")
@click.option("--cores", type=click.IntRange(min=1), default=os.cpu_count() or 1, show_default=True)
@click.option("--memory", default="4g", show_default=True, help="Heap of the engine that runs the queries.")
@click.option("--timeout", default=900.0, show_default=True, help="Seconds that any one measurement may take.")
@click.option("--cache-dir", type=click.Path(path_type=Path), help="Class archives to use, or to keep the new ones in.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write every measurement to this file.")
def main(
    quick: bool,
    only: tuple[str, ...],
    pipeline: tuple[str, ...],
    rows: int | None,
    small_files: int | None,
    rounds: int | None,
    repetitions: int | None,
    control: bool,
    cores: int,
    memory: str,
    timeout: float,
    cache_dir: Path | None,
    json_file: Path | None,
) -> None:
    """Measure Firesteel against plain Spark, side by side, and print tables."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: everything that was started is ended
    quiet_client_logs()
    parts = only or PARTS
    rounds = rounds or (2 if quick else 6)
    repetitions = repetitions or (5 if quick else 30)
    data = dataset(rows or (500_000 if quick else 20_000_000), small_files or (200 if quick else 2_000))
    report: dict[str, Any] = {"at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "quick": quick, "machine": machine()}
    say(" · ".join(f"{k} {v}" for k, v in report["machine"].items()))
    try:
        with Workbench(cores=cores, memory=memory, timeout=timeout) as bench:
            if "startup" in parts:
                report["startup"] = startup.run(bench, rounds=rounds, cache_dir=cache_dir)
            if "trivial" in parts:
                report["trivial"] = trivial.run(bench, repetitions=repetitions, submits=1 if quick else 3)
            if "compile" in parts:
                report["compile"] = compiling.run(bench, repetitions=repetitions)
            if "control" in parts:
                report["control"] = control_plane.run(
                    rounds=rounds, count=200 if quick else 1_000, running=100 if quick else 1_000
                )
            if "rest" in parts:
                report["rest"] = rest_api.run(
                    bench,
                    repetitions=repetitions,
                    rounds=rounds,
                    jobs=40 if quick else 200,
                    requests=50 if quick else 500,
                    idle=5.0 if quick else 30.0,
                )
            if "sandbox" in parts:
                report["sandbox"] = sandboxed.run(
                    bench, repetitions=repetitions, rounds=rounds, jobs=40 if quick else 200
                )
            if "metrics" in parts:
                report["metrics"] = metered.run(
                    bench,
                    repetitions=repetitions,
                    rounds=rounds,
                    jobs=40 if quick else 200,
                    submissions=200 if quick else 1_000,
                )
            if "queries" in parts:
                report["queries"] = {}
                queries.run(bench, data, report["queries"], rounds=rounds, control=control, only=pipeline)
    finally:
        if json_file:
            json_file.parent.mkdir(parents=True, exist_ok=True)
            json_file.write_text(json.dumps(report, indent=1) + "\n")
            say(f"measurements in {json_file}")
    if quick:
        console.print("--quick: too small and too few to be read as results.")


if __name__ == "__main__":
    main()
