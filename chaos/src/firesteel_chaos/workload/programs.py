"""What the load runs: graphs and a program, each of which shows by its output how often it ran and whether all of it did."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firesteel.jobgraph import JobGraph

RESTART_DELAY = 0.3
PATIENT = {"type": "fixed-delay", "attempts": 50, "delay": f"{RESTART_DELAY:g} s"}
"""Faults that kill drivers must not end the load."""


def batch_graph(out: Path, rows: int) -> dict[str, Any]:
    """Some numbers, 10 ms each on two cores."""
    query = f"SELECT id FROM range(0, {rows}, 1, 2) WHERE coalesce(reflect('java.lang.Thread', 'sleep', 20L), 'slept') <> ''"
    return {
        "name": "batch",
        "settings": {"restart": PATIENT},
        "vertices": [
            {"kind": "sql", "name": "numbers", "query": query},
            {"kind": "sink", "name": "o", "input": "numbers", "format": "parquet", "path": str(out), "mode": "error"},
        ],
    }


def stream_graph(source: Path, out: Path, *, restore: str | None = None) -> dict[str, Any]:
    settings: dict[str, Any] = {"restart": PATIENT}
    if restore is not None:
        settings["restore"] = {"path": restore}
    sink = {"kind": "sink", "name": "o", "input": "i", "format": "parquet", "path": str(out), "mode": "append"}
    return {
        "name": "stream",
        "mode": "streaming",
        "settings": settings,
        "vertices": [
            {"kind": "source", "name": "i", "format": "json", "path": str(source), "schema": "id BIGINT"},
            {**sink, "trigger": "500 ms", "output_mode": "append"},
        ],
    }


@dataclass(frozen=True, slots=True)
class ScriptPlan:
    """What a program does, and what must therefore become of it."""

    failures: int = 0
    """So many of its runs fail on purpose, the first ones."""
    restarts: int = 50
    """What its restart strategy allows."""
    seconds: float = 0.2
    """How long a run takes."""
    cancel: bool = False

    @property
    def ends(self) -> str:
        return "CANCELED" if self.cancel else "FINISHED" if self.failures <= self.restarts else "FAILED"

    def to_json(self) -> dict[str, Any]:
        return {"failures": self.failures, "restarts": self.restarts, "delay": RESTART_DELAY, "ends": self.ends}


def script_graph(file: str, diary: Path, plan: ScriptPlan) -> dict[str, Any]:
    """`file`: where the program is, or its reference once it is uploaded."""
    restart = {**PATIENT, "attempts": plan.restarts} if plan.restarts else {"type": "none"}
    return {
        "name": "script",
        "settings": {"restart": restart},
        "vertices": [
            {
                "kind": "script",
                "name": "s",
                "file": file,
                "args": [str(diary), str(plan.failures), f"{plan.seconds:g}"],
                "api": "connect",
            }
        ],
    }


PROGRAM = '''"""Keeps a diary: a line when it begins and one when it ends, each appended as one write."""

import hashlib
import json
import os
import sys
import time

from pyspark.sql import SparkSession

diary, failures, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


def note(what, **more):
    line = {"what": what, "pid": os.getpid(), "at": time.clock_gettime(time.CLOCK_MONOTONIC), **more}
    fd = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, (json.dumps(line) + "\\n").encode())
    os.close(fd)


with open(__file__, "rb") as me:
    digest = hashlib.sha256(me.read()).hexdigest()
earlier = open(diary).read().count('"began"') if os.path.exists(diary) else 0
note("began", digest=digest)
spark = SparkSession.builder.getOrCreate()
total = spark.range(1000).selectExpr("sum(id) AS s").collect()[0]["s"]
assert total == 499500, total
time.sleep(seconds)
if earlier < failures:
    note("ended", how="failed")
    raise RuntimeError("as planned")
note("ended", how="finished")
'''

PROGRAM_DIGEST = hashlib.sha256(PROGRAM.encode()).hexdigest()


def digest_of(graph: Any) -> str:
    """What makes a job the one it is: the same for the graph that was submitted and for that which a cluster shows of it."""
    model = JobGraph.model_validate(graph)
    plain = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:32]
