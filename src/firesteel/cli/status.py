"""`firesteel status` shows the state of a job, and `firesteel history` lists jobs that have ended."""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from firesteel.cli import exit_codes
from firesteel.cli.attached import code_of
from firesteel.cli.command_line import attached, job_argument, json_option
from firesteel.cli.connection import Connection
from firesteel.cli.going_on import going_on
from firesteel.cli.progress import rows_of, sink_words
from firesteel.cli.tables import (
    console,
    count,
    echo_json,
    job_table,
    moment,
    new_table,
    plain,
    print_facts,
    span,
    status_text,
)
from firesteel.client.model import EngineInfo, JobResult, failure_of, status_of

_MOST_COLUMNS = 8


@click.command()
@job_argument
@click.option(
    "--exit-code",
    "with_code",
    is_flag=True,
    help="Exit with the code of the job: 0 while it runs or when it has FINISHED, otherwise as `run` would.",
)
@json_option
@attached
def status(cluster: Connection, job: str, with_code: bool, as_json: bool) -> int:
    """Show the state of JOB: its attempts, vertices, inputs and outputs, where it runs, and its last failure."""
    found = cluster.job(job)
    details, lineage = found.details(), found.lineage()
    engine = _engine(details, cluster.client.engines()) if _runs(details) else None
    if as_json:
        echo_json({**details, "lineage": lineage, "engine": dataclasses.asdict(engine) if engine else None})
    else:
        _show(console(), details, lineage, engine)
        _show_how_to_go_on(details, cluster.option)
    ended = status_of(details.get("status")).terminal
    return code_of(JobResult.of(details)) if with_code and ended else exit_codes.OK


def _runs(details: Mapping[str, Any]) -> bool:
    return bool(details.get("engine_id")) and not status_of(details.get("status")).terminal


def _engine(details: Mapping[str, Any], engines: Sequence[EngineInfo]) -> EngineInfo | None:
    return next((e for e in engines if e.engine_id == details["engine_id"]), None)


def _show(out: Console, details: Mapping[str, Any], lineage: Mapping[str, Any], engine: EngineInfo | None) -> None:
    now = status_of(details.get("status"))
    kind = details.get("kind") or details.get("mode") or "batch"
    out.print(plain(details.get("name", ""), "bold"), status_text(now), plain(f"{kind} job"))
    print_facts(out, _facts(details, engine))
    if details.get("vertices"):
        out.print()
        out.print(_vertices(details))
    places = [*_places("reads", lineage.get("inputs")), *_places("writes", lineage.get("outputs"))]
    if places:
        out.print()
        for place in places:
            out.print(place, soft_wrap=True)
    failure = _last_failure(details)
    if failure:
        out.print()
        for line in failure:
            out.print(line, soft_wrap=True)


def _show_how_to_go_on(details: Mapping[str, Any], option: str) -> None:
    if details.get("ended_at") is not None and (result := JobResult.of(details)).resumable:
        click.echo(f"\n{going_on(result, option=option)[-1]}")


def _facts(details: Mapping[str, Any], engine: EngineInfo | None) -> list[tuple[str, Text]]:
    attempt, restarts = int(details.get("attempt") or 0), int(details.get("restarts") or 0)
    facts = [("id", plain(details["job_id"]))]
    if owner := details.get("owner"):
        facts.append(("owner", plain(owner)))
    facts.append(("submitted", plain(moment(float(details.get("submitted_at") or 0)))))
    ended = details.get("ended_at")
    if ended:
        facts.append(("ended", plain(moment(float(ended)) + (", it was stopped" if details.get("stopped") else ""))))
    if resumes := details.get("resumes"):
        facts.append(("goes on with", plain(resumes)))
    if savepoint := details.get("savepoint"):
        facts.append(("savepoint", plain(savepoint)))
    if checkpoint := details.get("checkpoint"):
        facts.append(("checkpoint", plain(checkpoint)))
    facts.append(("took" if ended else "for", plain(span(float(details.get("duration") or 0)))))
    if attempt:
        facts.append(("attempt", plain(f"{attempt}, after {count(restarts, 'restart')}" if restarts else attempt)))
    if priority := details.get("priority"):
        facts.append(("priority", plain(priority)))
    if engine is not None:
        facts.append(("engine", plain(f"{engine.engine_id}  {engine.master}  {engine.address}".rstrip())))
    elif _runs(details):
        facts.append(("engine", plain(details["engine_id"])))
    progress = details.get("progress") or {}
    if progress.get("phase") and not ended:
        told = span(time.time() - float(progress.get("updated_at") or 0))
        facts.append(("progress", plain(f"{progress['phase']}, {told} ago")))
    return facts


def _vertices(details: Mapping[str, Any]) -> Table:
    rows = rows_of(details.get("progress") or {})
    table = new_table("vertex", "kind", "status", "rows", "progress", right=["rows"], whole=["status", "rows"])
    for vertex in details["vertices"]:
        name = str(vertex.get("name"))
        table.add_row(
            plain(name),
            plain(vertex.get("kind", "")),
            status_text(status_of(vertex.get("status"))),
            f"{rows[name]:,}" if name in rows else "",
            plain(sink_words(vertex.get("progress") or {})),
        )
    return table


def _places(verb: str, places: object) -> list[Text]:
    return [_place(verb, p) for p in places if isinstance(p, Mapping)] if isinstance(places, list) else []


def _place(verb: str, place: Mapping[str, Any]) -> Text:
    what = place.get("path") or place.get("table") or ""
    words = plain(" ".join(str(w) for w in (place.get("vertex"), place.get("format"), what) if w))
    columns = [str(c.get("name")) for c in place.get("columns") or ()]
    more = ", …" if len(columns) > _MOST_COLUMNS else ""
    names = plain(f" ({', '.join(columns[:_MOST_COLUMNS])}{more})", "dim") if columns else Text()
    return Text.assemble((f"{verb:6} ", "dim"), words, names)


def _last_failure(details: Mapping[str, Any]) -> list[Text]:
    """The failure that ended the job, or else the last one that it recovered from."""
    past = details.get("exceptions") or []
    failure = failure_of(details.get("failure") or (past[0] if past else None))
    if failure is None:
        return []
    when = f" (attempt {past[0].get('attempt')}, {moment(float(past[0].get('at') or 0))})" if past else ""
    lines = [plain(f"last failure{when}: {failure}", "red")]
    if failure.traceback:
        lines.append(plain(failure.traceback.rstrip(), "dim"))
    if len(past) > 1:
        lines.append(plain(f"{count(len(past) - 1, 'failure')} before; `firesteel events` shows them", "dim"))
    return lines


# -- jobs that have ended -------------------------------------------------------------------------------------------


def _milliseconds(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    if value.isascii() and value.isdigit() and int(value) <= 2**53:
        return int(value)
    try:
        at = dt.datetime.fromisoformat(value)
        return max(0, round(at.astimezone().timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"'{value}' is not a time; write for example 2026-03-01, 2026-03-01T12:00 or milliseconds since 1970"
        ) from None


@click.command()
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=20, metavar="N", help="How many to show.")
@click.option(
    "--before",
    metavar="TIME",
    callback=_milliseconds,
    help="List only jobs that ended before this date, or before this many milliseconds since 1970.",
)
@json_option
@attached
def history(cluster: Connection, limit: int, before: int | None, as_json: bool) -> int:
    """List jobs that have ended, the most recent first."""
    page = cluster.client.history(limit, before)
    if as_json:
        echo_json({"jobs": [dataclasses.asdict(j) for j in page.jobs], "next": page.next})
    elif page.jobs:
        out = console()
        out.print(job_table(page.jobs, out.width))
        if page.next is not None:
            click.echo(f"There are more; list older ones with --before {page.next}", err=True)
    else:
        click.echo("No jobs have ended." if before is None else "No jobs ended before then.")
    return exit_codes.OK
