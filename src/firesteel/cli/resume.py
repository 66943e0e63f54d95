"""`firesteel resume`: go on where a stream ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from firesteel.cli import exit_codes
from firesteel.cli.attached import watch
from firesteel.cli.command_line import address_option, complete_jobs
from firesteel.cli.connection import addressed, open_connection
from firesteel.cli.options import Given, configured
from firesteel.cli.run import accepted, chosen_id, prepared
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
    help="Leave out what the ended job has and PIPELINE has not.",
)
@click.option(
    "--allow-incompatible-state",
    "allow_incompatible",
    is_flag=True,
    help="Go on although the state does not fit the queries of PIPELINE; their rows may be wrong.",
)
@click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Parallelism of PIPELINE.")
@click.option("--priority", type=int, default=0, help="Jobs with a higher one get an engine first.")
@click.option("--job-id", help="Id of the new job, 32 hex digits; drawn when not given.")
@click.option("--json", "as_json", is_flag=True, help="Events and result as JSON lines.")
@address_option
@configured
def resume(
    given: Given,
    address: str | None,
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
    """Start a new job that goes on where the streaming JOB ended: stopped, cancelled, failed, or with all done that was there.

    It goes on from the checkpoint that was kept, else from the last savepoint, with the pipeline that JOB had, or with PIPELINE
    and its variables (-Dname=value). JOB stays as it is.
    """
    if pipeline is None and (given.variables or parallelism):
        raise click.UsageError("variables and -p need the PIPELINE; without one the job goes on as it was")
    given = addressed(given, address)
    local = not given.configuration.client.addresses
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
    """The graph of a job, for the eye only: values that look like secrets are masked."""
    try:
        return JobGraph.model_validate(details["graph"])
    except (KeyError, ValueError):
        job_id = str(details.get("job_id"))
        raise JobStateError(
            f"the pipeline of job {job_id} is not kept any more; name it: `firesteel resume {job_id[:8]} PIPELINE`"
        ) from None
