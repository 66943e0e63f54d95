"""How many rows went through a vertex, as far as anybody knows.

Spark fuses what the user wrote, so most vertices have no count of their own. What is known comes, best first, from exact counts
where the graph asked for them, from the operators at the ends of Spark's plans, and from what streaming queries report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from firesteel.rest.flink.states import NAN

IOMetrics = TypedDict(
    "IOMetrics",
    {
        "read-bytes": int,
        "read-bytes-complete": bool,
        "write-bytes": int,
        "write-bytes-complete": bool,
        "read-records": int,
        "read-records-complete": bool,
        "write-records": int,
        "write-records-complete": bool,
        "accumulated-backpressured-time": int,
        "accumulated-idle-time": int,
        "accumulated-busy-time": float | str,
    },
)


@dataclass(frozen=True, slots=True)
class Io:
    """What went in and out of a vertex; None where nobody knows."""

    read_bytes: int | None = None
    read_records: int | None = None
    write_records: int | None = None

    def message(self) -> IOMetrics:
        return {
            "read-bytes": self.read_bytes or 0,
            "read-bytes-complete": self.read_bytes is not None,
            "write-bytes": 0,
            "write-bytes-complete": False,
            "read-records": self.read_records or 0,
            "read-records-complete": self.read_records is not None,
            "write-records": self.write_records or 0,
            "write-records-complete": self.write_records is not None,
            "accumulated-backpressured-time": 0,
            "accumulated-idle-time": 0,
            "accumulated-busy-time": NAN,
        }


def io_of_vertices(job: Mapping[str, Any], counted: Mapping[str, int]) -> dict[str, Io]:
    """By vertex. `counted` are rows that were found out after the end of the attempt: exact ones, and of operators."""
    vertices: Sequence[Mapping[str, Any]] = job["vertices"]
    progress: Mapping[str, Any] = job["progress"]
    sinks: Mapping[str, Mapping[str, Any]] = progress.get("sinks") or {}
    sources = {v["name"]: _sources_of(v["name"], job) for v in vertices if v["kind"] == "sink"}
    rows = _told_by_queries(sinks, sources) | dict(counted) | dict(progress.get("vertices") or {})
    read = _bytes_read(sinks, sources)
    return {
        v["name"]: Io(
            read_bytes=read.get(v["name"]),
            read_records=_records_in(v, rows),
            write_records=rows.get(v["name"]),
        )
        for v in vertices
    }


def _records_in(vertex: Mapping[str, Any], rows: Mapping[str, int]) -> int | None:
    inputs: Sequence[str] = vertex["inputs"]
    if inputs and all(i in rows for i in inputs):
        return sum(rows[i] for i in inputs)
    # A source emits what it reads, and a sink writes what it gets; between them rows come and go.
    return rows.get(vertex["name"]) if vertex["kind"] in ("source", "sink") else None


def _told_by_queries(sinks: Mapping[str, Mapping[str, Any]], sources: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """A query reports what it read from all its sources together, so that is a source's count where it has but one."""
    rows: dict[str, int] = {}
    for name, told in sinks.items():
        if "output_rows" in told:
            rows[name] = told["output_rows"]
        behind = sources.get(name, ())
        if "rows" in told and len(behind) == 1:
            # Every sink's query reads the source anew; the one that is furthest tells how far the source is.
            rows[behind[0]] = max(told["rows"], rows.get(behind[0], 0))
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
