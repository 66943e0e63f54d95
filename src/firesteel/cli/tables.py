"""The output of commands: tables and colours on a terminal, plain columns in a pipe, JSON for machines."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from firesteel.client.model import JobSummary
from firesteel.status import JobStatus

STYLES: Mapping[JobStatus, str] = {
    JobStatus.INITIALIZING: "dim",
    JobStatus.CREATED: "dim",
    JobStatus.RUNNING: "cyan",
    JobStatus.FAILING: "red",
    JobStatus.FAILED: "bold red",
    JobStatus.CANCELLING: "yellow",
    JobStatus.CANCELED: "yellow",
    JobStatus.FINISHED: "green",
    JobStatus.RESTARTING: "magenta",
    JobStatus.SUSPENDED: "yellow",
    JobStatus.RECONCILING: "yellow",
}
_PIPE_WIDTH = 4096
"""Nothing is wrapped or cut in a pipe: its reader wants lines, and whole ids."""
_WIDTH_OF_JOBS = 110
OUTPUT = "firesteel.output"
"""The key under which click's context keeps the value of `--output`."""


class _Output(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # `main` knows what to do


def console(*, err: bool = False) -> Console:
    made = _Output(stderr=err, highlight=False, markup=False, emoji=False)
    if made.is_terminal and not is_wide():
        return made
    return _Output(stderr=err, highlight=False, markup=False, emoji=False, width=_PIPE_WIDTH)


def is_wide() -> bool:
    """Whether the user wants whole lines, `--output wide`, however narrow the terminal is."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(OUTPUT) == "wide"


def new_table(*columns: str, right: Iterable[str] = (), whole: Iterable[str] = ()) -> Table:
    """`right` are numbers; `whole` are never wrapped, however narrow the terminal is."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=column in whole,
            overflow="fold",
        )
    return table


def job_table(jobs: Iterable[JobSummary], width: int) -> Table:
    """A table of jobs. On a terminal too narrow for whole ids it has their first digits, which commands accept too."""
    digits = 32 if width >= _WIDTH_OF_JOBS else 8
    table = new_table(
        "job", "name", "kind", "status", "started", "took", right=["took"], whole=["job", "kind", "status", "took"]
    )
    for job in jobs:
        table.add_row(
            job.job_id[:digits],
            plain(job.name),
            plain(job.kind),
            status_text(job.status),
            moment(job.started_at),
            span(job.duration),
        )
    return table


def print_facts(out: Console, facts: Iterable[tuple[str, Text]]) -> None:
    """Names and values, a line each."""
    rows = list(facts)
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        out.print(Text.assemble((f"  {name:{width}}  ", "dim"), value), soft_wrap=True)


def status_text(status: JobStatus) -> Text:
    return Text(status.value, style=STYLES[status])


def plain(value: object, style: str = "") -> Text:
    """Text that others wrote, without markup and without anything that a terminal would obey."""
    return Text(printable(str(value)), style=style)


def printable(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def moment(at: float) -> str:
    """A moment in local time."""
    try:
        return dt.datetime.fromtimestamp(at, tz=dt.UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "?"  # a cluster whose clock is in another age


def span(seconds: float) -> str:
    """A duration in its two largest units."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit} {rest} {small}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def echo_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1))
