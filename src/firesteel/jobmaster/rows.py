"""How many rows went through a vertex, as far as it is known.

Spark fuses what the user wrote, so most vertices have no count of their own. What is known comes, best first, from exact counts
where the graph asked for them, from the operators at the ends of Spark's plans, and from what streaming queries report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firesteel.status import JobStatus


@dataclass(frozen=True, slots=True)
class Io:
    """What went in and out of a vertex; None where it is not known."""

    read_bytes: int | None = None
    read_records: int | None = None
    write_bytes: int | None = None
    write_records: int | None = None
    busy_ms: int | None = None
    """How long the queries that the vertex is in were at their batches, over all attempts."""
    idle_ms: int = 0
    pending: bool = False
    """What is not known may be yet: dashboards say that it is being loaded, and else show 0."""


def io_of_vertices(job: Mapping[str, Any], counted: Mapping[str, int]) -> dict[str, Io]:
    """By vertex. `counted` are rows that were found out after the end of the attempt: exact ones, and of operators."""
    vertices: Sequence[Mapping[str, Any]] = job["vertices"]
    progress: Mapping[str, Any] = job["progress"]
    sinks: Mapping[str, Mapping[str, Any]] = progress.get("sinks") or {}
    sources = {v["name"]: _sources_of(v["name"], job) for v in vertices if v["kind"] == "sink"}
    rows = _told_by_queries(sinks, sources) | dict(counted) | dict(progress.get("vertices") or {})
    _follow(vertices, rows)
    read = _bytes_read(sinks, sources)
    written = {name: told["bytes_written"] for name, told in sinks.items() if "bytes_written" in told}
    busy = _busy(vertices, sinks)
    # A batch job's rows are known when it is done; a stream tells what it can from its first batch on.
    pending = job["mode"] == "batch" and job["status"] == JobStatus.RUNNING
    lasted = _running_ms(job) if busy else 0
    return {
        v["name"]: Io(
            read_bytes=read.get(v["name"]),
            read_records=_records_in(v, rows),
            write_bytes=written.get(v["name"]),
            write_records=rows.get(v["name"]),
            busy_ms=busy.get(v["name"]),
            idle_ms=max(0, lasted - busy.get(v["name"], lasted)),
            pending=pending,
        )
        for v in vertices
    }


def _follow(vertices: Sequence[Mapping[str, Any]], rows: dict[str, int]) -> None:
    """A sink writes all that it reads, and nothing else: what is known at one end of its edge is known at the other."""
    for sink in (v for v in vertices if v["kind"] == "sink" and len(v["inputs"]) == 1):
        name, (source,) = sink["name"], sink["inputs"]
        if name in rows:
            rows.setdefault(source, rows[name])
        elif source in rows:
            rows[name] = rows[source]


def _busy(vertices: Sequence[Mapping[str, Any]], sinks: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Of each vertex, the time of the busiest query that it is a part of."""
    busy = {name: told["busy_ms"] for name, told in sinks.items() if "busy_ms" in told}
    inputs = {v["name"]: v["inputs"] for v in vertices}
    found: dict[str, int] = {}
    for sink, lasted in busy.items():
        todo, seen = [sink], set()
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                found[name] = max(lasted, found.get(name, 0))
                todo += inputs.get(name, ())
    return found


def _running_ms(job: Mapping[str, Any]) -> int:
    """How long the job's attempts ran, all together."""
    attempts = job.get("attempts") or ()
    past = sum(a["ended_at"] - a["started_at"] for a in attempts)
    told = job["progress"].get("updated_at") or 0
    folded = {a["number"] for a in attempts}
    started = job.get("started_at") or job["timestamps"].get("RUNNING") or told
    current = 0 if job["attempt"] in folded else max(0, told - started)
    return int((past + current) * 1000)


def _records_in(vertex: Mapping[str, Any], rows: Mapping[str, int]) -> int | None:
    inputs: Sequence[str] = vertex["inputs"]
    if inputs and all(i in rows for i in inputs):
        return sum(rows[i] for i in inputs)
    # A source emits what it reads, and a sink writes what it gets; between them rows come and go.
    return rows.get(vertex["name"]) if vertex["kind"] in ("source", "sink") else None


def _told_by_queries(sinks: Mapping[str, Mapping[str, Any]], sources: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """What queries have read: of each source, where the driver could tell them apart or there is but one."""
    rows: dict[str, int] = {}
    for name, told in sinks.items():
        if "output_rows" in told:
            rows[name] = told["output_rows"]
        behind = sources.get(name, ())
        # Every sink's query reads the source anew; the one that is furthest tells how far the source is.
        reads = told.get("reads") or ({behind[0]: told["rows"]} if "rows" in told and len(behind) == 1 else {})
        for source, count in reads.items():
            rows[source] = max(count, rows.get(source, 0))
    return rows


def _bytes_read(sinks: Mapping[str, Mapping[str, Any]], sources: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Spark counts bytes per plan: they are the source's where the plan has but one, else they stand at the sink."""
    read: dict[str, int] = {}
    for name, told in sinks.items():
        if "bytes_read" in told:
            behind = sources.get(name, ())
            where = behind[0] if len(behind) == 1 else name
            read[where] = read.get(where, 0) + told["bytes_read"]
    return read


def _sources_of(sink: str, job: Mapping[str, Any]) -> list[str]:
    """The sources behind a sink; in a stream, without the tables that are read once."""
    vertices = {v["name"]: v for v in job["vertices"]}
    static = {v["name"] for v in (job.get("graph") or {}).get("vertices", ()) if v.get("static")}
    found: dict[str, None] = {}
    todo, seen = [sink], set()
    while todo:
        name = todo.pop()
        if name in seen or name not in vertices:
            continue
        seen.add(name)
        if vertices[name]["kind"] == "source" and name not in static:
            found[name] = None
        todo += vertices[name]["inputs"]
    return list(found)
