"""What the control plane costs by itself: acknowledged submissions a second, and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import HERE, Sample, console, say
from rich.table import Table

from firesteel.jobgraph.load import load_pipeline
from firesteel.processes import ProcessIdentity

PIPELINE = HERE.parent / "examples" / "orders" / "pipeline.yaml"


def run(*, rounds: int, count: int, running: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="firesteel-bench-") as work:
        root = Path(work)
        graph = root / "graph.json"
        graph.write_text(load_pipeline(PIPELINE).graph.to_json())
        say("submissions: an empty cluster and a full one, by turns")
        submitted = _node("submissions", root / "submissions", graph, count, rounds)
        say(f"memory of {running} running jobs")
        memory = _node("running", root / "running", graph, running)
        say("memory of an idle node")
        idle = _idle(root / "idle")
    _show(submitted, memory, idle)
    return {"submissions": submitted, "running": memory, "idle": idle}


def _node(mode: str, directory: Path, graph: Path, *numbers: int) -> Any:
    directory.mkdir()
    out = subprocess.run(
        [sys.executable, "-m", "benchmarks.control_node", mode, str(directory), str(graph), *map(str, numbers)],
        cwd=HERE.parent,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(out.stdout)


def _idle(directory: Path) -> dict[str, float]:
    """A real node, `python -m firesteel.entrypoint`, that leads and has nothing to do."""
    directory.mkdir()
    log = directory / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "firesteel.entrypoint", f"-Ddata.dir={directory}"],
            stderr=output,
            env={k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")},
        )
    try:
        deadline = time.monotonic() + 30
        while "leads;" not in log.read_text():
            if time.monotonic() > deadline:
                raise RuntimeError(log.read_text())
            time.sleep(0.1)
        time.sleep(3)
        threads = Path(f"/proc/{process.pid}/task").iterdir()
        children = [int(p) for t in threads for p in (t / "children").read_text().split()]
        zygotes = [c for c in children if ProcessIdentity.of(c)]
        return {
            "control_plane_mb": _memory(process.pid, "Rss"),
            "zygote_mb": sum(_memory(c, "Rss") for c in zygotes),
            "together_pss_mb": sum(_memory(p, "Pss") for p in [process.pid, *zygotes]),
        }
    finally:
        process.terminate()
        process.wait(30)


def _memory(pid: int, kind: str) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(kind)


def _show(submitted: dict[str, Any], memory: dict[str, Any], idle: dict[str, float]) -> None:
    empty = Sample.of([r["empty"] for r in submitted["rounds"]])
    loaded = Sample.of([r["loaded"] for r in submitted["rounds"]])
    table = Table("control plane", "measured", "budget", title="Control plane, SQLite")
    table.add_row("acknowledged submissions / s", empty.show(digits=0), "≥ 300")
    table.add_row("… with 10,000 finished and ≥ 1,000 waiting jobs", loaded.show(digits=0), "")
    table.add_row("slowdown by those jobs", empty.over(loaded).show(" x"), "≤ 1.2 x")
    table.add_row("resident memory, idle", f"{idle['control_plane_mb']:.0f} MB", "≤ 200 MB")
    table.add_row("… of the parent of the drivers beside it", f"{idle['zygote_mb']:.0f} MB", "")
    table.add_row("… of both, shared pages counted once", f"{idle['together_pss_mb']:.0f} MB", "")
    table.add_row(f"memory per running job (of {memory['jobs']})", f"{memory['per_job_mb']:.3f} MB", "≤ 0.5 MB")
    console.print(table)
