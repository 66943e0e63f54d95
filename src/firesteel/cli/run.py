"""`firesteel run` submits a job to a cluster, and watches it unless it is detached."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from firesteel.cli import exit_codes
from firesteel.cli.attached import watch
from firesteel.cli.command_line import cluster_options, effective
from firesteel.cli.connection import Connection, open_connection
from firesteel.cli.custom_command_lines import ClusterOptions
from firesteel.cli.options import Given, configured, spark_of_job
from firesteel.cli.script_command import ScriptCommand
from firesteel.deployment.application_deployer import ApplicationDeployer
from firesteel.deployment.local import LOCAL
from firesteel.deployment.standalone_application import STANDALONE_APPLICATION
from firesteel.jobgraph.load import load_pipeline
from firesteel.jobgraph.model import JobGraph, Mode, Script
from firesteel.types import new_job_id, parse_job_id


def submission_options(function: Any) -> Any:
    """The options that `run` and `run-application` share."""
    options = [
        click.argument("pipeline", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False),
        click.argument("args", nargs=-1),
        click.option(
            "-py",
            "--python",
            "python",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="The PySpark script to run; the same as PIPELINE.",
        ),
        click.option(
            "-pyfs",
            "--pyFiles",
            "py_files",
            metavar="FILES",
            help="Further .py, .zip or .whl files or directories of modules, separated by commas.",
        ),
        click.option("-c", "--class", "entry", metavar="MODULE", help="For a .zip or .whl: the module to run."),
        click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Parallelism of the job."),
        click.option(
            "-s",
            "--fromSavepoint",
            "savepoint",
            metavar="PATH",
            help="Start a streaming job from a savepoint, or from the checkpoint that an ended job has kept.",
        ),
        click.option(
            "-n",
            "--allowNonRestoredState",
            "allow_non_restored",
            is_flag=True,
            help="Skip state of the savepoint that the job has no use for.",
        ),
        click.option(
            "--allow-incompatible-state",
            "allow_incompatible",
            is_flag=True,
            help="Start even if the savepoint's state does not fit the queries; their rows may be wrong.",
        ),
        click.option(
            "--api",
            type=click.Choice(["auto", "connect", "classic", "none"]),
            help="The PySpark API that a script needs.",
        ),
        click.option(
            "--priority", type=int, default=0, help="Priority of the job; jobs with a higher one get an engine first."
        ),
        click.option("--job-id", help="Id of the job, 32 hex digits; random by default."),
        click.option(
            "--show",
            type=click.IntRange(min=0),
            default=0,
            help="Show this many rows of each file output at the end.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print events and the result as JSON lines."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.command(cls=ScriptCommand)
@click.option("-d", "--detached", is_flag=True, help="Return once the job is accepted.")
@click.option(
    "-sae",
    "--shutdownOnAttachedExit",
    "shutdown_on_exit",
    is_flag=True,
    help="Cancel the job when this command ends in any way, even by kill -9.",
)
@submission_options
@cluster_options
@configured
def run(
    given: Given,
    line: ClusterOptions,
    pipeline: Path | None,
    args: tuple[str, ...],
    detached: bool,
    shutdown_on_exit: bool,
    python: Path | None,
    py_files: str | None,
    entry: str | None,
    parallelism: int | None,
    savepoint: str | None,
    allow_non_restored: bool,
    allow_incompatible: bool,
    api: str | None,
    priority: int,
    job_id: str | None,
    show: int,
    as_json: bool,
) -> int:
    """Run PIPELINE (.yaml, .json, .sql, or a .py that builds a Job), or a PySpark script with its ARGS.

    Without -m it runs on the cluster of this machine, which is woken up if necessary. Options come before a script:
    everything after it belongs to ARGS. Ctrl-C cancels the job and waits for its end; a second one leaves without
    waiting. A stream is stopped after its current batch and keeps its checkpoint; on a terminal you are asked what
    should happen to it.
    """
    given = effective(given, line)
    alone = ApplicationDeployer().deploys_applications(given)
    local = given.configuration.execution.target in (LOCAL, STANDALONE_APPLICATION)
    if detached and shutdown_on_exit:
        raise click.UsageError("-sae and -d exclude each other")
    if alone and shutdown_on_exit:
        raise click.UsageError("-sae is for jobs of clusters that go on; an application is cancelled by Ctrl-C")
    spark, given = spark_of_job(given)
    graph = prepared(
        given,
        pipeline,
        args,
        local=local,
        python=python,
        py_files=py_files,
        entry=entry,
        parallelism=parallelism,
        savepoint=savepoint,
        allow_non_restored=allow_non_restored,
        allow_incompatible=allow_incompatible,
        api=api,
        spark=spark,
    )
    chosen = chosen_id(job_id)
    if alone:
        from firesteel.cli.run_application import deploy

        return deploy(
            given,
            graph,
            chosen,
            priority=priority,
            detached=detached,
            show=show,
            as_json=as_json,
            repeated=job_id is not None,
        )
    with open_connection(given) as cluster:  # only now: an invalid pipeline wakes up no cluster

        def submit(heartbeat: float | None = None) -> None:
            cluster.client.submit(
                graph, job_id=chosen, priority=priority, client_heartbeat_timeout=heartbeat, upload=not local
            )

        if detached:
            submit()
            accepted(cluster, graph, chosen, as_json=as_json)
            return exit_codes.OK
        return watch(
            cluster,
            graph,
            chosen,
            submit=submit,
            show=show,
            as_json=as_json,
            shutdown_on_exit=shutdown_on_exit,
            repeated=job_id is not None,
        )


def prepared(
    given: Given,
    pipeline: Path | None,
    args: tuple[str, ...],
    *,
    local: bool,
    python: Path | None,
    py_files: str | None,
    entry: str | None,
    parallelism: int | None,
    savepoint: str | None,
    allow_non_restored: bool,
    allow_incompatible: bool = False,
    api: str | None,
    spark: Mapping[str, str] = MappingProxyType({}),
) -> JobGraph:
    """The graph that the command line describes. The pipeline's own Spark settings override `spark`."""
    if python is not None:
        if pipeline not in (None, python):
            raise click.UsageError(f"-py {python} names the script already; omit '{pipeline}'")
        pipeline = python
    if pipeline is None:
        raise click.UsageError("Missing argument 'PIPELINE'.")
    graph = adjusted(load_pipeline(pipeline, variables=given.variables).graph, args, parallelism, api, entry)
    settings: dict[str, Any] = {}
    if py_files:
        artifacts = graph.settings.artifacts
        more = tuple(str(Path(f.strip()).absolute()) for f in py_files.split(",") if f.strip())
        settings["artifacts"] = artifacts.model_copy(update={"py_files": (*artifacts.py_files, *more)})
    if savepoint is not None:
        settings["restore"] = {
            "path": absolute(savepoint) if local else savepoint,
            "allow_non_restored_state": allow_non_restored,
            "allow_incompatible_state": allow_incompatible,
        }
    elif allow_non_restored or allow_incompatible:
        raise click.UsageError(f"{'-n' if allow_non_restored else '--allow-incompatible-state'} needs -s PATH")
    if spark:
        settings["spark"] = {**spark, **graph.settings.spark}
    if local:
        settings["directory"] = str(Path.cwd())
    if settings:
        plain = graph.settings.model_dump(by_alias=True)
        graph = graph.with_(settings=type(graph.settings).model_validate({**plain, **settings}))
    return graph


def absolute(path: str) -> str:
    """Resolve a path against the directory in which the command is called."""
    return path if ":" in path else str(Path(path).absolute())


def chosen_id(job_id: str | None) -> str:
    if job_id is None:
        return new_job_id()
    try:
        return parse_job_id(job_id.lower())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--job-id") from None


def adjusted(
    graph: JobGraph, args: tuple[str, ...], parallelism: int | None, api: str | None, entry: str | None = None
) -> JobGraph:
    """The graph, changed as the command line says."""
    script = graph.script
    if script is None and args:
        raise click.UsageError(f"a pipeline takes no arguments ({' '.join(args)}); set its variables with -Dname=value")
    if script is None and (api or entry):
        raise click.UsageError(f"{'--api' if api else '-c'} is for scripts; this is a pipeline")
    changes: dict[str, Any] = {}
    if script is not None:
        if args:
            changes["args"] = args
        if api:
            changes["api"] = api
        if entry:
            changes["module"] = entry
        script = Script.model_validate({**script.model_dump(), **changes})
        graph = graph.with_(vertices=(script,))
    return graph.with_(parallelism=parallelism) if parallelism else graph


def accepted(cluster: Connection, graph: JobGraph, job_id: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"job_id": job_id}))
        return
    streams = graph.script is None and graph.mode is Mode.STREAMING
    end = ("stop", "stops it after its batch, with a savepoint") if streams else ("cancel", "cancels it")
    click.echo(f"Job has been submitted with JobID {job_id}")
    for command, meaning in (("status", "shows its state"), ("logs -f", "follows its output"), end):
        click.echo(f"  firesteel {command}{cluster.option} {job_id[:8]}{' ' * (8 - len(command))} {meaning}")
