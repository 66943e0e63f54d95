"""`firesteel run-application` runs a job in a cluster that lives and dies with it."""

from __future__ import annotations

from pathlib import Path

import click

from firesteel.cli import exit_codes
from firesteel.cli.attached import watch
from firesteel.cli.connection import Connection
from firesteel.cli.local_cluster import one_at_a_time, start_node
from firesteel.cli.options import Given, configured
from firesteel.cli.run import accepted, chosen_id, prepared, submission_options
from firesteel.cli.script_command import ScriptCommand
from firesteel.client.cluster import ClusterClient
from firesteel.client.discovery import find_local
from firesteel.config import load_configuration

END_SECONDS = 60.0


@click.command("run-application", cls=ScriptCommand)
@click.option("-t", "--target", type=click.Choice(["local"]), default="local", help="Where to start the cluster.")
@click.option("-d", "--detached", is_flag=True, help="Return once the job is accepted; the cluster ends with it.")
@submission_options
@configured
def run_application(
    given: Given,
    pipeline: Path | None,
    args: tuple[str, ...],
    target: str,
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

    The same command with the same --job-id continues an application whose cluster was killed. The exit code is that of
    the job.
    """
    graph = prepared(
        given,
        pipeline,
        args,
        local=True,
        python=python,
        py_files=py_files,
        entry=entry,
        parallelism=parallelism,
        savepoint=savepoint,
        allow_non_restored=allow_non_restored,
        allow_incompatible=allow_incompatible,
        api=api,
    )
    chosen = chosen_id(job_id)
    given = _of_application(given, chosen)
    with one_at_a_time(given):
        node = find_local(given.configuration)
        if node is None:
            node = start_node(given, woken=False, arguments=("--application", chosen))
    with ClusterClient(node.address, token=node.token, timeout=given.configuration.client.timeout) as client:
        cluster = Connection(given, client, local=True)

        def submit(heartbeat: float | None = None) -> None:
            client.submit(graph, job_id=chosen, priority=priority, client_heartbeat_timeout=heartbeat, upload=False)

        if detached:
            submit()
            accepted(cluster, graph, chosen, as_json=as_json)
            return exit_codes.OK
        again = "firesteel run-application PIPELINE -s PATH"  # no other cluster knows this job
        code = watch(
            cluster,
            graph,
            chosen,
            submit=submit,
            show=show,
            as_json=as_json,
            repeated=job_id is not None,
            go_on=again,
        )
    if not node.process.wait(END_SECONDS):
        click.echo(f"warning: the cluster of the application (process {node.process.pid}) has not ended yet", err=True)
    return code


def _of_application(given: Given, job_id: str) -> Given:
    """The settings of a cluster for this job alone: its name is made from the job id, so that it can be found again."""
    own = {
        "high-availability.cluster-id": f"application-{job_id[:16]}",
        "rest.port": "0",
        "engine.reuse": "false",
        "engine.max": "1",
    }
    overrides = {**own, **given.overrides, "high-availability.cluster-id": own["high-availability.cluster-id"]}
    configuration = load_configuration(file=given.config_file, overrides=overrides)
    return Given(configuration, overrides, given.variables, given.config_file)
