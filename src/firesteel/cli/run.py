"""`firesteel run`: a job in an embedded cluster, attached with live progress or detached."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from firesteel.cli import exit_codes
from firesteel.cli.display import make_display
from firesteel.cli.options import Given, configured
from firesteel.embedded.jobs import JobDirectory, JobRecord, JobsDirectory
from firesteel.embedded.runner import EmbeddedJob
from firesteel.embedded.supervisor import detach
from firesteel.jobgraph.load import load_pipeline
from firesteel.jobgraph.model import JobGraph, Script
from firesteel.jobmaster.plan import RunPlan
from firesteel.status import JobStatus
from firesteel.types import new_job_id, parse_job_id


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("pipeline", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("args", nargs=-1)
@click.option("-d", "--detached", is_flag=True, help="Return once the job is accepted.")
@click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Parallelism of the job.")
@click.option(
    "--api", type=click.Choice(["auto", "connect", "classic"]), help="For a script: which PySpark API it needs."
)
@click.option("--job-id", help="Id of the job, 32 hex digits; drawn when not given.")
@click.option(
    "--show", type=click.IntRange(min=0), default=0, help="Show this many rows of each file output at the end."
)
@click.option("--json", "as_json", is_flag=True, help="Events and result as JSON lines.")
@configured
def run(
    given: Given,
    pipeline: Path,
    args: tuple[str, ...],
    detached: bool,
    parallelism: int | None,
    api: str | None,
    job_id: str | None,
    show: int,
    as_json: bool,
) -> int:
    """Run PIPELINE (.yaml, .json, .sql, or a .py that builds a Job), or a PySpark script with its ARGS.

    Arguments that begin with a dash go after `--`. Ctrl-C cancels the job; a second one kills it.
    """
    graph = adjusted(load_pipeline(pipeline, variables=given.variables).graph, args, parallelism, api)
    if job_id is not None:
        try:
            parse_job_id(job_id)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--job-id") from None
    directory = JobsDirectory(given.configuration.data.dir).job(job_id or new_job_id())
    if directory.root.exists():
        raise click.ClickException(f"job {directory.job_id} is there already, {directory.load().status}")
    plan = RunPlan.of(graph, given.configuration)
    directory.create(
        graph,
        {
            "cwd": str(Path.cwd()),
            "overrides": dict(given.overrides),
            "config_file": str(given.config_file.absolute()) if given.config_file else None,
        },
    )
    if detached:
        detach(directory)
        _accepted(directory, as_json)
        return exit_codes.OK
    with make_display(graph, directory.job_id, plan, as_json=as_json) as display:
        job = EmbeddedJob(directory, graph, given.configuration, cwd=Path.cwd(), listener=display.event)
        _cancel_on_signals(job, display)
        record = job.run()
    if show and record.status is JobStatus.FINISHED:
        display.show_outputs(graph, show)
    display.summary(record, directory)
    return code_of(record)


def adjusted(graph: JobGraph, args: tuple[str, ...], parallelism: int | None, api: str | None) -> JobGraph:
    """The graph with what the command line says on top."""
    script = graph.script
    if script is None and args:
        raise click.UsageError(f"a pipeline takes no arguments ({' '.join(args)}); set its variables with -Dname=value")
    if script is None and api:
        raise click.UsageError("--api is for scripts; this is a pipeline")
    if script is not None:
        changes: dict[str, Any] = {}
        if args:
            changes["args"] = args
        if api:
            changes["api"] = api
        script = Script.model_validate({**script.model_dump(), **changes})
        graph = graph.model_copy(update={"vertices": (script,)})
    return graph.model_copy(update={"parallelism": parallelism}) if parallelism else graph


def _accepted(directory: JobDirectory, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"job_id": directory.job_id, "status": directory.load().status.value}))
        return
    short = directory.job_id[:8]
    click.echo(f"Job {directory.job_id} was accepted and runs on its own.")
    click.echo(f"  firesteel list            where it stands\n  firesteel logs {short}   its output")
    click.echo(f"  firesteel cancel {short} stop it")


def _cancel_on_signals(job: EmbeddedJob, display: Any) -> None:
    count = 0

    def on_signal(_number: int, _frame: Any) -> None:
        nonlocal count
        count += 1
        if count == 1:
            display.note("cancelling; press Ctrl-C again to kill")
            job.cancel()
        else:
            job.kill()

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    if not sys.stdin or not sys.stdin.isatty():
        return
    signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


def code_of(record: JobRecord) -> int:
    if record.had_no_engine:
        return exit_codes.ENGINE
    return {
        JobStatus.FINISHED: exit_codes.OK,
        JobStatus.CANCELED: exit_codes.CANCELED,
    }.get(record.status, exit_codes.FAILED)
