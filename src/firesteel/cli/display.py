"""The display of a running job: live on a terminal, plain lines in a pipe, JSON for machines."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from firesteel.client.events import JobEvent
from firesteel.client.model import JobResult
from firesteel.failure import Failure
from firesteel.jobgraph.model import JobGraph
from firesteel.status import JobStatus

_REMEMBERED_LINES = 500
_PIPE_WIDTH = 4096
"""Nothing is wrapped or cut in a pipe."""
_RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b.*)$", re.MULTILINE)
_PHASES = {
    "connecting": "connecting",
    "compiling": "compiling",
    "running": "running",
    "committing": "committing outputs",
    "stopping": "stopping",
}
_STATES = {
    JobStatus.CREATED: "waiting for a Spark engine",
    JobStatus.FAILING: "failing",
    JobStatus.RESTARTING: "restarting",
    JobStatus.CANCELLING: "cancelling",
    JobStatus.RECONCILING: "being taken over by a new leader",
}


_NOBODY_READS = (errno.EPIPE, errno.EIO, errno.ENXIO, errno.EBADF)
"""Errors of a pipe whose reader is gone, or of a terminal that is gone."""


class Display(Protocol):
    def __enter__(self) -> Display: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def accepted(self) -> None: ...
    def event(self, event: JobEvent) -> None: ...
    def note(self, text: str) -> None: ...
    def show_outputs(self, graph: JobGraph, rows: int) -> None: ...
    def summary(self, result: JobResult, rows: Mapping[str, int], further: Sequence[str] = ()) -> None: ...
    def ask(self, question: str) -> str | None:
        """The user's answer; None where no user can be asked."""
        ...


def make_display(graph: JobGraph, job_id: str, *, as_json: bool, option: str = "", starting: float = 0.0) -> Display:
    """`option` is what the suggested commands need to reach the cluster; `starting`, how long it took to start it."""
    return Quiet(JsonDisplay(job_id) if as_json else TextDisplay(graph, job_id, option, starting=starting))


class Quiet:
    """The reader of our output is gone: the job goes on, we print nothing more, and the exit code still tells."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._closed = False

    def __enter__(self) -> Quiet:
        self._say(self._display.__enter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._say(self._display.__exit__, kind, error, trace)

    def accepted(self) -> None:
        self._say(self._display.accepted)

    def event(self, event: JobEvent) -> None:
        self._say(self._display.event, event)

    def note(self, text: str) -> None:
        self._say(self._display.note, text)

    def show_outputs(self, graph: JobGraph, rows: int) -> None:
        self._say(self._display.show_outputs, graph, rows)

    def summary(self, result: JobResult, rows: Mapping[str, int], further: Sequence[str] = ()) -> None:
        self._say(self._display.summary, result, rows, further)

    def ask(self, question: str) -> str | None:
        if self._closed:
            return None
        try:
            return self._display.ask(question)
        except OSError:
            return None

    def _say(self, say: Any, *args: Any) -> None:
        if self._closed:
            return
        try:
            say(*args)
            sys.stdout.flush()
        except OSError as error:
            if error.errno not in _NOBODY_READS:
                raise
            self._closed = True
            # Python would complain about it again at exit.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class JsonDisplay:
    def __init__(self, job_id: str) -> None:
        self._job_id = job_id

    def __enter__(self) -> JsonDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def accepted(self) -> None:
        return None

    def event(self, event: JobEvent) -> None:
        self._line({"type": event.kind, "at": event.at, **event.data})

    def note(self, text: str) -> None:
        self._line({"type": "note", "text": text})

    def show_outputs(self, graph: JobGraph, rows: int) -> None:
        from firesteel.cli.preview import preview

        for sink in graph.sinks:
            columns, data = preview(sink, rows)
            if columns:
                self._line({"type": "rows", "vertex": sink.name, "columns": columns, "rows": data})

    def ask(self, question: str) -> str | None:
        return None

    def summary(self, result: JobResult, rows: Mapping[str, int], further: Sequence[str] = ()) -> None:
        failure = result.failure.to_json() if result.failure else None
        self._line(
            {
                "type": "summary",
                "name": result.name,
                "status": result.status.value,
                "submitted_at": result.submitted_at,
                "ended_at": result.ended_at,
                "attempts": result.attempts,
                "restarts": result.restarts,
                "stopped": result.stopped,
                "checkpoint": result.checkpoint or None,
                "savepoint": result.savepoint or None,
                "failure": failure,
                "rows": dict(rows),
            }
        )

    def _line(self, content: dict[str, Any]) -> None:
        print(json.dumps({"job_id": self._job_id, **content}, default=str), flush=True)  # noqa: T201


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the process here, and the job would not be watched to its end."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class TextDisplay:
    """A live table on a terminal; on anything else one line per event."""

    def __init__(self, graph: JobGraph, job_id: str, option: str = "", *, starting: float = 0.0) -> None:
        self._graph = graph
        self._starting = starting
        self._option = option
        self._job_id = job_id
        self._console = _Console(highlight=False)
        if not self._console.is_terminal:
            self._console = _Console(highlight=False, width=_PIPE_WIDTH)
        self._live: Live | None = None
        self._began = time.monotonic()
        self._phase = "submitting"
        self._status: JobStatus | None = None
        self._sinks: dict[str, dict[str, Any]] = {s.name: {} for s in graph.sinks}
        self._failure: Mapping[str, Any] | None = None
        self._printed: deque[str] = deque(maxlen=_REMEMBERED_LINES)
        """The last lines of the job's output, so that a traceback is not shown twice."""

    def __enter__(self) -> TextDisplay:
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def accepted(self) -> None:
        """The job exists from here on."""
        kind = self._graph.job_kind
        self._console.print(f"[bold]{_plain(self._graph.name)}[/bold]  {kind} job {self._job_id}", soft_wrap=True)

    def event(self, event: JobEvent) -> None:
        if event.status is not None:
            self._entered(event.status, event.data.get("failure"))
        if progress := event.data.get("progress"):
            self._progress(progress)
        for line in event.data.get("lines") or ():
            self._printed.append(line.rstrip())
            self._console.print(Text(_printable(line)), soft_wrap=True)

    def note(self, text: str) -> None:
        self._console.print(f"  {_plain(text)}", style="yellow", soft_wrap=True)

    def _entered(self, status: JobStatus, failure: Mapping[str, Any] | None) -> None:
        if status is self._status:
            return
        self._status = status
        if status is JobStatus.FAILING and failure:
            self._failure = failure
        if status is JobStatus.RESTARTING and (failure := failure or self._failure):
            self.note(f"failed: {failure.get('message', '')}")
        if status in _STATES:
            self._enter_phase(_STATES[status])

    def _enter_phase(self, phase: str) -> None:
        if phase != self._phase:
            self._phase = phase
            self._line(phase)

    def _progress(self, progress: Mapping[str, Any]) -> None:
        phase = progress.get("phase")
        if phase and self._status is JobStatus.RUNNING:
            self._enter_phase(_PHASES.get(phase, phase))
        for name, told in (progress.get("sinks") or {}).items():
            before = self._sinks.get(name, {})
            if told.get("batch") is not None and told.get("batch") != before.get("batch"):
                self._line(f"{name}: {_batch_line(told)}")
            elif told.get("state") and told.get("state") != before.get("state"):
                self._line(f"{name}: {told['state']}")
            self._sinks[name] = dict(told)

    def _line(self, text: str) -> None:
        """Print an event as a line, where no table can be drawn."""
        if self._live is None:
            self._console.print(f"  {time.monotonic() - self._began:6.1f}s  {_plain(text)}", soft_wrap=True)

    def _render(self) -> RenderableType:
        elapsed = f"{time.monotonic() - self._began:.0f} s"
        head = Table.grid(padding=(0, 1))
        head.add_row(Spinner("dots"), Text(self._phase), Text(elapsed, style="dim"))
        table = Table.grid(padding=(0, 2))
        for name, sink in self._sinks.items():
            if sink.get("batch") is not None:
                table.add_row(Text(name), Text(_batch_line(sink)), Text(f"{sink.get('rows', 0):,} rows"))
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

    def ask(self, question: str) -> str | None:
        if not (self._console.is_terminal and sys.stdin.isatty()):
            return None
        self.__exit__()
        try:
            return self._console.input(Text(question))
        except EOFError:
            return None
        except KeyboardInterrupt:
            self._console.print()
            raise

    def summary(self, result: JobResult, rows: Mapping[str, int], further: Sequence[str] = ()) -> None:
        if rows:
            told = ", ".join(f"{name} {rows[name]:,}" for name in self._graph.by_name if name in rows)
            self._console.print(f"  rows: {told}", style="dim")
        style = {JobStatus.FINISHED: "green", JobStatus.FAILED: "red"}.get(result.status, "yellow")
        seconds = result.ended_at - result.submitted_at
        attempts = f" after {result.attempts} attempts" if result.attempts > 1 else ""
        # The job begins when it is accepted; for the waiting user, the start of the cluster belongs to it.
        waited = f" ({seconds + self._starting:.1f} s with starting the cluster)" if self._starting else ""
        self._console.print(f"[{style}]{result.status.value}[/{style}] in {seconds:.1f} s{attempts}{waited}")
        if result.failure is not None:
            traceback = result.failure.traceback.rstrip()
            # The traceback ends with the message, and the job may have written it to its own output.
            text = headline(result.failure) if traceback else str(result.failure)
            self._console.print(Text(_printable(text), style="red"), soft_wrap=True)
            if traceback and not self._has_printed(traceback):
                self._console.print(Text(_printable(traceback), style="dim"), soft_wrap=True)
            self._console.print(
                f"  logs: firesteel logs{self._option} {result.job_id[:8]}", style="dim", soft_wrap=True
            )
        for line in further:
            self._console.print(Text(f"  {_printable(line)}", style="dim"), soft_wrap=True)

    def _has_printed(self, text: str) -> bool:
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        return set(lines) <= set(self._printed)


def headline(failure: Failure) -> str:
    """A failure in one line: the exception itself for an error in a Python worker, otherwise the first line."""
    first = str(failure).partition("\n")[0]
    raised = _RAISED.findall(failure.message) if "Python worker" in first else []
    return f"{failure.kind.value}: {raised[-1]}" if raised else first


def _batch_line(sink: Mapping[str, Any]) -> str:
    state = f", state {sink['state_rows']:,} rows" if sink.get("state_rows") else ""
    rate = sink.get("rows_per_second") or 0
    took = sink.get("duration_ms") or 0
    return f"batch {sink['batch']}, {sink.get('rows', 0):,} rows, {rate:,.0f} rows/s, {took:,} ms{state}"


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
    """Text that others wrote: brackets are not rich's markup, and control characters are removed (like S15)."""
    from rich.markup import escape

    return escape(_printable(text))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
