"""How a running job looks: live on a terminal, plain lines in a pipe, JSON for machines."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from firesteel.embedded.jobs import JobDirectory, JobRecord
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.plan import RunPlan
from firesteel.status import JobStatus

_PHASES = {
    "starting-engine": "starting a Spark engine",
    "connecting": "connecting",
    "compiling": "compiling",
    "running": "running",
    "committing": "committing outputs",
    "cancelling": "cancelling",
}


class Display(Protocol):
    def __enter__(self) -> Display: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def event(self, event: dict[str, Any]) -> None: ...
    def note(self, text: str) -> None: ...
    def show_outputs(self, graph: JobGraph, rows: int) -> None: ...
    def summary(self, record: JobRecord, directory: JobDirectory) -> None: ...


def make_display(graph: JobGraph, job_id: str, plan: RunPlan, *, as_json: bool) -> Display:
    return JsonDisplay(job_id) if as_json else TextDisplay(graph, job_id, plan)


class JsonDisplay:
    def __init__(self, job_id: str) -> None:
        self._job_id = job_id

    def __enter__(self) -> JsonDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def event(self, event: dict[str, Any]) -> None:
        print(json.dumps({"job_id": self._job_id, **event}), flush=True)  # noqa: T201

    def note(self, text: str) -> None:
        self.event({"type": "note", "text": text})

    def show_outputs(self, graph: JobGraph, rows: int) -> None:
        from firesteel.cli.preview import preview

        for sink in graph.sinks:
            columns, data = preview(sink, rows)
            if columns:
                self.event({"type": "rows", "vertex": sink.name, "columns": columns, "rows": data})

    def summary(self, record: JobRecord, directory: JobDirectory) -> None:
        self.event({"type": "summary", **record.to_json(), **_measured(record, directory)})


class TextDisplay:
    """Live table on a terminal; on anything else one line per thing that happened."""

    def __init__(self, graph: JobGraph, job_id: str, plan: RunPlan) -> None:
        self._graph = graph
        self._job_id = job_id
        self._plan = plan
        self._console = Console(stderr=False, highlight=False)
        self._live: Live | None = None
        self._began = time.monotonic()
        self._phase = "starting"
        self._sinks: dict[str, dict[str, Any]] = {s.name: {} for s in graph.sinks}

    def __enter__(self) -> TextDisplay:
        mode = "script" if self._graph.script else self._graph.mode.value
        self._console.print(f"[bold]{_plain(self._graph.name)}[/bold]  {mode} job {self._job_id}")
        if self._plan.needs is not None:
            reasons = [str(r) for r in self._plan.needs.reasons]
            why = f": {reasons[0]}" if reasons else " is enough"
            self._console.print(f"  api: {self._plan.needs.api}{_plain(why)}", style="dim")
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def event(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "phase":
                self._phase = _PHASES.get(event["phase"], event["phase"])
                self._line(self._phase)
            case "engine":
                self._line(f"engine {event['master']} at {event['address']}")
            case "compiled":
                self._line(f"compiled in {event['milliseconds']} ms")
            case "progress":
                self._sinks[event["vertex"]].update(event)
            case "batch":
                sink = self._sinks[event["vertex"]]
                sink["rows_total"] = sink.get("rows_total", 0) + event["rows"]
                sink.update(event)
                self._line(_batch_line(event))
            case "sink":
                self._sinks[event["vertex"]]["state"] = event["state"]
                self._line(f"{event['vertex']}: {event['state']}")
            case "output":
                self._console.print(Text(_printable(event["text"])), soft_wrap=True)
            case "restart":
                self.note(f"{event['failure']}\n  attempt {event['attempt']} in {event['delay']:g} s")
            case "note":
                self.note(event["text"])

    def note(self, text: str) -> None:
        self._console.print(f"  {_plain(text)}", style="yellow")

    def _line(self, text: str) -> None:
        """What scrolls by where nothing can be drawn."""
        if self._live is None:
            self._console.print(f"  {time.monotonic() - self._began:6.1f}s  {_plain(text)}", soft_wrap=True)

    def _render(self) -> RenderableType:
        elapsed = f"{time.monotonic() - self._began:.0f} s"
        head = Table.grid(padding=(0, 1))
        head.add_row(Spinner("dots"), Text(self._phase), Text(elapsed, style="dim"))
        table = Table.grid(padding=(0, 2))
        for name, sink in self._sinks.items():
            if "batch" in sink:
                table.add_row(
                    Text(name), Text(_batch_line(sink).partition(": ")[2]), Text(f"{sink['rows_total']:,} rows")
                )
            elif sink.get("tasks"):
                bar = ProgressBar(total=sink["tasks"], completed=sink["completed"], width=30)
                stage = f"stage {min(sink['stages_done'] + 1, sink['stages'])}/{sink['stages']}"
                detail = f"{sink['completed']}/{sink['tasks']} tasks, {stage}, {_size(sink['bytes_read'])} read"
                table.add_row(Text(name), bar, Text(detail, style="dim"))
            else:
                table.add_row(Text(name), Text(sink.get("state", "waiting"), style="dim"), Text(""))
        return Group(head, table)

    def show_outputs(self, graph: JobGraph, rows: int) -> None:
        from firesteel.cli.preview import preview

        for sink in graph.sinks:
            columns, data = preview(sink, rows)
            if not columns:
                continue
            table = Table(title=f"{sink.name}  {_relative(sink.path or '')}", title_justify="left", title_style="bold")
            for column in columns:
                table.add_column(_plain(column))
            for row in data:
                table.add_row(*[_plain("" if v is None else str(v)) for v in row])
            self._console.print(table)

    def summary(self, record: JobRecord, directory: JobDirectory) -> None:
        measured = _measured(record, directory)
        rows = measured["rows"]
        if rows:
            told = ", ".join(f"{name} {rows[name]:,}" for name in self._graph.by_name if name in rows)
            self._console.print(f"  rows: {told}", style="dim")
        style = {JobStatus.FINISHED: "green", JobStatus.FAILED: "red"}.get(record.status, "yellow")
        seconds = (record.ended_at or time.time()) - record.created_at
        attempts = f" after {record.attempt} attempts" if record.attempt > 1 else ""
        self._console.print(f"[{style}]{record.status}[/{style}] in {seconds:.1f} s{attempts}")
        if record.failure is not None:
            self._console.print(Text(str(record.failure), style="red"), soft_wrap=True)
            if record.failure.traceback:
                self._console.print(Text(record.failure.traceback.rstrip(), style="dim"), soft_wrap=True)
            self._console.print(f"  logs: firesteel logs {record.job_id[:8]}", style="dim")


def _measured(record: JobRecord, directory: JobDirectory) -> dict[str, Any]:
    """Rows per vertex: exact ones where the graph asked for them, else those that Spark's operators tell."""
    attempt = directory.attempt(max(record.attempt, 1))
    result = attempt.read_result()
    operators = attempt.read_operators()
    rows = dict(operators.get("rows", {})) | dict(result.rows if result else {})
    return {"rows": rows}


def _batch_line(event: dict[str, Any]) -> str:
    state = f", state {event['state_rows']:,} rows" if event.get("state_rows") else ""
    return (
        f"{event['vertex']}: batch {event['batch']}, {event['rows']:,} rows, "
        f"{event['rows_per_second']:,.0f} rows/s, {event['duration_ms']:,} ms{state}"
    )


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _relative(path: str) -> str:
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


def _plain(text: str) -> str:
    """Text of others: brackets are brackets, not rich's markup, and control characters are gone (S15's cousin)."""
    from rich.markup import escape

    return escape(_printable(text))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
