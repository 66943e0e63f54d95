"""`firesteel logs` prints what a job wrote."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

import click

from firesteel.cli import exit_codes
from firesteel.cli.command_line import CheckedCommand, attached, job_argument, json_option
from firesteel.cli.connection import Connection
from firesteel.cli.following import LogLine, LogLines
from firesteel.cli.tables import count, echo_json, printable
from firesteel.client.discovery import connect_async
from firesteel.client.events import JobEvent
from firesteel.client.job import JobClient
from firesteel.types import JobID

LINES = 200
MOST_LINES = 1_000_000
_MOMENT = 0.3
"""The beginning of an event stream comes at once; after this many seconds of silence it is over."""
_STREAMS = ("stdout", "stderr")


def _check(context: click.Context) -> None:
    given = context.params
    if not given["follow"]:
        return
    if given["attempt"] is not None:
        raise click.UsageError("-f follows the running attempt; omit --attempt", context)
    if given["which"] not in (None, *_STREAMS):
        raise click.UsageError(f"-f follows standard output and error; omit --{given['which']}", context)
    if given["as_json"]:
        raise click.UsageError("-f prints text; omit --json, or use `firesteel events -f --json`", context)


@click.command(cls=CheckedCommand, check=_check)
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines until the job ends.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, MOST_LINES),
    metavar="N",
    help=f"How many last lines to print of each log; by default {LINES}, or with -f up to 1000.",
)
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Which attempt; by default the last one.")
@click.option("--stdout", "which", flag_value="stdout", help="Print only standard output.")
@click.option("--stderr", "which", flag_value="stderr", help="Print only standard error, to standard output.")
@click.option("--events", "which", flag_value="events", help="Print what the driver reported about its work.")
@click.option("--jvm", "which", flag_value="jvm", help="Print what the Java side of a classic driver wrote.")
@click.option(
    "--engine",
    "which",
    flag_value="engine",
    help="Print what the engine wrote, for an attempt that did not finish.",
)
@json_option
@attached
def logs(
    cluster: Connection,
    job: str,
    follow: bool,
    lines: int | None,
    attempt: int | None,
    which: str | None,
    as_json: bool,
) -> int:
    """Print what the driver of JOB wrote, its standard output and its standard error each to their own stream."""
    found = cluster.job(job)
    names = [which] if which else list(_STREAMS)
    if as_json:
        tail = LINES if lines is None else lines
        echo_json({name: found.logs(name, attempt=attempt, tail=tail).splitlines() for name in names})
    elif follow:
        _follow(cluster, found, names, lines)
    else:
        _print(found, names, attempt, LINES if lines is None else lines)
    return exit_codes.OK


def _print(job: JobClient, names: list[str], attempt: int | None, lines: int) -> None:
    for name in names:
        err = name == "stderr" and len(names) > 1
        chunks = job.log_chunks(name, attempt=attempt, tail=lines)
        if (sys.stderr if err else sys.stdout).isatty():
            for text in _decoded(chunks):
                click.echo(printable(text), nl=False, err=err)
        else:
            for chunk in chunks:
                click.echo(chunk, nl=False, err=err)


def _decoded(chunks: Iterable[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for chunk in chunks:
        yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)


def _follow(cluster: Connection, job: JobClient, names: list[str], lines: int | None) -> None:
    if lines is not None and not _something_was_written(job, names):
        lines = None  # all that comes is new

    def show(line: LogLine) -> None:
        if line.stream in names:
            click.echo(printable(line.text), err=line.stream == "stderr" and len(names) > 1)

    final = asyncio.run(_listen(cluster, job.job_id, LogLines(lines), show))
    if final.kind == "snapshot":  # it had ended before the stream was opened
        _print(job, names, None, LINES if lines is None else lines)
    _note(_ended(final))


def _something_was_written(job: JobClient, names: list[str]) -> bool:
    last = job.attempts()[-1:]
    return any(log.size for attempt in last for log in attempt.logs if log.name in names)


async def _listen(cluster: Connection, job_id: JobID, lines: LogLines, show: Callable[[LogLine], None]) -> JobEvent:
    """Show lines until the job ends, and return its final event."""
    async with connect_async(cluster.given.configuration) as client:
        events = client.job(job_id).events(logs=True)
        async with contextlib.aclosing(events):
            first = True
            async for event in _with_pauses(events, lambda: lines.holds):
                if event is None:
                    _show_all(lines.flush(), show)
                    continue
                if event.kind == "snapshot" and event.status is not None and event.status.terminal:
                    if first:
                        return event
                    _note(f"The connection was lost before the end; `firesteel logs {job_id[:8]}` prints the rest.")
                first = False
                _show_all(lines.take(event), show)
                if event.final:
                    return event
                if event.kind == "lost":
                    _note(f"{_lost(event)}; `firesteel logs {job_id[:8]}` prints them all")
                elif event.failure is not None and event.status is not None:
                    _note(f"Job {job_id} is {event.status.value}: {event.failure}")
    raise AssertionError("the stream of a job ends with its final event")


async def _with_pauses(
    events: AsyncIterator[JobEvent], impatient: Callable[[], bool]
) -> AsyncIterator[JobEvent | None]:
    """Yield the events, and None whenever none came for a moment while `impatient()` holds."""
    while True:
        coming = asyncio.ensure_future(anext(events, None))
        try:
            if impatient():
                done, _ = await asyncio.wait([coming], timeout=_MOMENT)
                if not done:
                    yield None
            event = await coming
        except BaseException:
            coming.cancel()
            await asyncio.wait([coming])
            raise
        if event is None:
            return
        yield event


def _show_all(lines: Iterable[LogLine], show: Callable[[LogLine], None]) -> None:
    for line in lines:
        show(line)


def _lost(event: JobEvent) -> str:
    lost = event.data.get("count")
    return (
        f"{count(lost, 'event')} of this log did not arrive" if isinstance(lost, int) else "Some lines did not arrive"
    )


def _ended(event: JobEvent) -> str:
    status = event.status.value if event.status else "?"
    return f"Job {event.job_id} is {status}" + (f": {event.failure}" if event.failure else ".")


def _note(text: str) -> None:
    click.echo(printable(text), err=True)
