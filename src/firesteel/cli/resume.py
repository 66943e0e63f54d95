"""`firesteel resume` starts a job that continues where a stream ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from firesteel.cli import exit_codes
from firesteel.cli.attached import watch
from firesteel.cli.command_line import cluster_options, complete_jobs, effective
from firesteel.cli.connection import open_connection
from firesteel.cli.custom_command_lines import ClusterOptions
from firesteel.cli.options import Given, configured
from firesteel.cli.run import accepted, chosen_id, prepared
from firesteel.deployment.local import LOCAL
from firesteel.errors import JobStateError
from firesteel.jobgraph.model import JobGraph


@click.command()
@click.argument("job", shell_complete=complete_jobs)
@click.argument("pipeline", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option("-d", "--detached", is_flag=True, help="Return once the job is accepted.")
@click.option(
    "-n",
    "--allowNonRestoredState",
    "allow_non_restored",
    is_flag=True,
    help="Skip state of the ended job that PIPELINE has no use for.",
)
@click.option(
    "--allow-incompatible-state",
    "allow_incompatible",
    is_flag=True,
    help="Resume even if the state does not fit the queries of PIPELINE; their rows may be wrong.",
)
@click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Parallelism of PIPELINE.")
@click.option(
    "--priority", type=int, default=0, help="Priority of the job; jobs with a higher one get an engine first."
)
@click.option("--job-id", help="Id of the new job, 32 hex digits; random by default.")
@click.option("--json", "as_json", is_flag=True, help="Print events and the result as JSON lines.")
@cluster_options
@configured
def resume(
    given: Given,
    line: ClusterOptions,
    job: str,
    pipeline: Path | None,
    detached: bool,
    allow_non_restored: bool,
    allow_incompatible: bool,
    parallelism: int | None,
    priority: int,
    job_id: str | None,
    as_json: bool,
) -> int:
    """Start a new job that continues where the streaming JOB stopped, was cancelled, failed or finished.

    It continues from the checkpoint that was kept, or else from the last savepoint, with the pipeline of JOB, or with
    PIPELINE and its variables (-Dname=value). JOB itself stays as it is.
    """
    if pipeline is None and (given.variables or parallelism):
        raise click.UsageError("variables and -p need a PIPELINE; without one the job continues with its own")
    given = effective(given, line)
    local = given.configuration.execution.target == LOCAL
    changed = None if pipeline is None else _changed(given, pipeline, local=local, parallelism=parallelism)
    chosen = chosen_id(job_id)
    allowed = {"allow_non_restored_state": True} if allow_non_restored else {}
    allowed |= {"allow_incompatible_state": True} if allow_incompatible else {}
    with open_connection(given) as cluster:
        ended = cluster.job(job)

        def submit(heartbeat: float | None = None) -> None:
            cluster.client.resume(
                ended.job_id,
                changed,
                job_id=chosen,
                restore=allowed,
                priority=priority,
                client_heartbeat_timeout=heartbeat,
                upload=not local,
            )

        graph = changed if changed is not None else _shown(ended.details())
        if detached:
            submit()
            accepted(cluster, graph, chosen, as_json=as_json)
            return exit_codes.OK
        return watch(cluster, graph, chosen, submit=submit, show=0, as_json=as_json, repeated=job_id is not None)


def _changed(given: Given, pipeline: Path, *, local: bool, parallelism: int | None) -> JobGraph:
    return prepared(
        given,
        pipeline,
        (),
        local=local,
        python=None,
        py_files=None,
        entry=None,
        parallelism=parallelism,
        savepoint=None,
        allow_non_restored=False,
        allow_incompatible=False,
        api=None,
    )


def _shown(details: dict[str, Any]) -> JobGraph:
    """The graph of a job, for display only: values that look like secrets are masked."""
    try:
        return JobGraph.model_validate(details["graph"])
    except (KeyError, ValueError):
        job_id = str(details.get("job_id"))
        raise JobStateError(
            f"the pipeline of job {job_id} is no longer kept; give it: `firesteel resume {job_id[:8]} PIPELINE`"
        ) from None
