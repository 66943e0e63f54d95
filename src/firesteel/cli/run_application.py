"""`firesteel run-application` runs an application in a cluster that lives and dies with it."""

from __future__ import annotations

import time
from pathlib import Path

import click

from firesteel.cli import exit_codes
from firesteel.cli.attached import watch
from firesteel.cli.command_line import cluster_options, effective
from firesteel.cli.connection import Connection
from firesteel.cli.custom_command_lines import ClusterOptions
from firesteel.cli.options import Given, configured
from firesteel.cli.run import accepted, chosen_id, prepared, submission_options
from firesteel.cli.script_command import ScriptCommand
from firesteel.deployment.application_deployer import ApplicationDeployer
from firesteel.deployment.descriptors import ApplicationEndedError, ApplicationOutcome
from firesteel.deployment.standalone_application import CLUSTER_ID, STANDALONE_APPLICATION
from firesteel.jobgraph.application import ApplicationConfiguration
from firesteel.jobgraph.model import JobGraph
from firesteel.types import JobID

END_SECONDS = 60.0
UNKNOWN = 3
"""Flink's ApplicationStatus UNKNOWN, as the exit code of a cluster has it."""


@click.command("run-application", cls=ScriptCommand)
@click.option("-d", "--detached", is_flag=True, help="Return once the application runs; its cluster ends with it.")
@submission_options
@cluster_options
@configured
def run_application(
    given: Given,
    line: ClusterOptions,
    pipeline: Path | None,
    args: tuple[str, ...],
    detached: bool,
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
    """Run PIPELINE in a cluster of its own, with engines of its own, which all end with it.

    Without -t the cluster is on this machine (standalone-application). The same command with the same --job-id continues
    an application whose cluster was killed. The exit code tells how the application ended.
    """
    if line.address is not None:
        raise click.UsageError("an application has a cluster of its own; omit -m, or submit with `firesteel run`")
    if line.target is None and given.configuration.execution.target is None:
        line = ClusterOptions(STANDALONE_APPLICATION)
    given = effective(given, line)
    graph = prepared(
        given,
        pipeline,
        args,
        local=given.configuration.execution.target == STANDALONE_APPLICATION,
        python=python,
        py_files=py_files,
        entry=entry,
        parallelism=parallelism,
        savepoint=savepoint,
        allow_non_restored=allow_non_restored,
        allow_incompatible=allow_incompatible,
        api=api,
    )
    return deploy(
        given,
        graph,
        chosen_id(job_id),
        priority=priority,
        detached=detached,
        show=show,
        as_json=as_json,
        repeated=job_id is not None,
    )


def deploy(
    given: Given,
    graph: JobGraph,
    application_id: str,
    *,
    priority: int,
    detached: bool,
    show: int,
    as_json: bool,
    repeated: bool,
) -> int:
    """Deploy an application to the target of the configuration, and watch it unless it is detached."""
    application = ApplicationConfiguration(JobID(application_id), graph, priority)
    began = time.monotonic()
    try:
        provider = ApplicationDeployer().run(given, application)
    except ApplicationEndedError as ended:
        click.echo(f"note: {ended}", err=True)
        return ended.outcome.exit_code
    starting = time.monotonic() - began if provider.anew else 0.0
    there = given.with_overrides({**given.overrides, CLUSTER_ID: provider.cluster_id})
    with provider.connect() as client:
        cluster = Connection(there, client, local=provider.shares_files, starting=starting)
        if detached:
            accepted(cluster, graph, application_id, as_json=as_json)
            return exit_codes.OK
        code = watch(
            cluster,
            graph,
            application_id,
            submit=lambda _: None,  # its cluster has it already
            show=show,
            as_json=as_json,
            repeated=repeated,
            go_on="firesteel run-application PIPELINE -s PATH",  # no other cluster knows this job
        )
    if provider.ended is not None and not provider.ended(END_SECONDS):
        click.echo("warning: the cluster of the application has not ended yet", err=True)
    return _told(provider.outcome(), code)


def _told(outcome: ApplicationOutcome | None, code: int) -> int:
    """The exit code of the application. That of its program says more, where it has failed."""
    if outcome is None:
        click.echo("warning: how the application ended was not seen", err=True)
        return code or UNKNOWN
    if code == exit_codes.OK and outcome.exit_code != exit_codes.OK:
        why = f": {outcome.failure}" if outcome.failure else ""
        click.echo(f"error: the application is {outcome.status}{why}", err=True)
        return outcome.exit_code
    return code
