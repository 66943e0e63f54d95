"""`firesteel stop`, `savepoint` and `checkpoint` act on a job that continues, or let it end in order."""

from __future__ import annotations

import shlex
from typing import Any

import click

from firesteel.cli import exit_codes
from firesteel.cli.command_line import CheckedCommand, attached, complete_jobs, job_argument, json_option
from firesteel.cli.connection import Connection
from firesteel.cli.tables import echo_json
from firesteel.cli.triggers import TriggerOutcome, see_through, trigger_id_option
from firesteel.client.model import Answer
from firesteel.client.operations import CHECKPOINT, DISPOSAL, SAVEPOINT, STOP
from firesteel.types import JobID


def _check_stop(context: click.Context) -> None:
    given = context.params
    if given["without"] and given["target"] is not None:
        raise click.UsageError("-p and --no-savepoint exclude each other", context)


@click.command(cls=CheckedCommand, check=_check_stop)
@job_argument
@click.option(
    "-p",
    "--savepoint-path",
    "--savepointPath",
    "target",
    metavar="DIR",
    help="Directory for the savepoint; by default the cluster's.",
)
@click.option(
    "-d",
    "--drain",
    is_flag=True,
    help="Accepted because Flink has it; a job always stops after its current batch, so nothing is left half done.",
)
@click.option("--no-savepoint", "without", is_flag=True, help="Stop without a savepoint; the checkpoint is kept.")
@trigger_id_option("stop")
@json_option
@attached
def stop(
    cluster: Connection, job: str, target: str | None, drain: bool, without: bool, known: str | None, as_json: bool
) -> int:
    """Stop the streaming JOB after its current batch, and take a savepoint."""
    job_id = cluster.job(job).job_id
    if known is None:
        _say(f"Stopping job {job_id}{' without' if without else ' with'} a savepoint.")
    wish = {"targetDirectory": target, "drain": drain, "savepoint": not without}
    outcome = see_through(cluster, STOP, wish, job_id=job_id, known=known, ask=f"firesteel stop {job_id}")
    location = _location(outcome)
    if as_json:
        echo_json(outcome.to_json(job_id, location=location))
    elif without:
        kept = f" Its checkpoint is kept in {location}." if location else ""
        click.echo(f"Job {job_id} has stopped.{kept}")
    else:
        _completed(location)
    if not as_json:
        _say(f"Resume with: firesteel resume{cluster.option} {job_id[:8]}")
    return exit_codes.OK


def _check_savepoint(context: click.Context) -> None:
    given = context.params
    if given["disposed"] is None and given["job"] is None:
        raise click.UsageError("Missing argument 'JOB'; or give --dispose PATH", context)
    if given["disposed"] is not None:
        if given["job"] is not None:
            raise click.UsageError(
                "--dispose takes the path of a savepoint, and cannot be combined with a JOB", context
            )
        if given["detached"]:
            raise click.UsageError("--detached cannot be combined with --dispose", context)


class _SavepointCommand(CheckedCommand):
    """`savepoint check PATH PIPELINE` is a command of its own; everything else takes or deletes one."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] == ["check"]:
            from firesteel.cli.savepoint_check import check

            return check.make_context(f"{info_name} check", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(cls=_SavepointCommand, check=_check_savepoint)
@click.argument("job", required=False, shell_complete=complete_jobs)
@click.argument("target", metavar="[DIR]", required=False)
@click.option("-d", "--dispose", "disposed", metavar="PATH", help="Delete this savepoint instead of taking one.")
@click.option("--detached", is_flag=True, help="Do not wait for the savepoint; print its trigger id.")
@trigger_id_option("savepoint")
@json_option
@attached
def savepoint(
    cluster: Connection,
    job: str | None,
    target: str | None,
    disposed: str | None,
    detached: bool,
    known: str | None,
    as_json: bool,
) -> int:
    """Take a savepoint of the running streaming JOB, below DIR or in the cluster's savepoint directory.

    Only admins may delete one. `firesteel savepoint check PATH PIPELINE` tells whether a pipeline can start from one.
    """
    if disposed is not None:
        return _dispose(cluster, disposed, known, as_json)
    assert job is not None
    job_id = cluster.job(job).job_id
    outcome = take_savepoint(cluster, job_id, target, known=known, wait=not detached)
    if as_json:
        echo_json(outcome.to_json(job_id, location=_location(outcome)))
    elif outcome.result is None:
        click.echo(f"Savepoint triggered for job {job_id}. Trigger id: {outcome.trigger_id}")
    else:
        _completed(_location(outcome))
    return exit_codes.OK


def take_savepoint(
    cluster: Connection,
    job_id: JobID,
    target: str | None,
    *,
    cancel: bool = False,
    known: str | None = None,
    wait: bool = True,
) -> TriggerOutcome:
    if known is None:
        _say(f"Triggering savepoint for job {job_id}.")
    wish = {"target-directory": target, "cancel-job": cancel}
    ask = f"firesteel savepoint {job_id}"
    return see_through(cluster, SAVEPOINT, wish, job_id=job_id, known=known, ask=ask, wait=wait)


def _dispose(cluster: Connection, path: str, known: str | None, as_json: bool) -> int:
    if known is None:
        _say(f"Disposing savepoint '{path}'.")
    ask = f"firesteel savepoint --dispose {shlex.quote(path)}"
    outcome = see_through(cluster, DISPOSAL, {"savepoint-path": path}, job_id=None, known=known, ask=ask)
    if as_json:
        echo_json(outcome.to_json(None, disposed=path))
    else:
        click.echo(f"Savepoint '{path}' disposed.")
    return exit_codes.OK


@click.command()
@job_argument
@trigger_id_option("checkpoint")
@json_option
@attached
def checkpoint(cluster: Connection, job: str, known: str | None, as_json: bool) -> int:
    """Wait until everything that the streaming JOB has read so far is committed, and print the last batch of it."""
    job_id = cluster.job(job).job_id
    if known is None:
        _say(f"Triggering checkpoint for job {job_id}.")
    wish = {"checkpointType": "CONFIGURED"}
    outcome = see_through(cluster, CHECKPOINT, wish, job_id=job_id, known=known, ask=f"firesteel checkpoint {job_id}")
    number = Answer(outcome.result, "the checkpoint").integer("checkpointId")
    if as_json:
        echo_json(outcome.to_json(job_id, checkpoint_id=number))
    elif number < 0:
        click.echo(f"Job {job_id} has not committed a batch yet.")
    else:
        click.echo(f"Checkpoint {number} for job {job_id} completed.")
    return exit_codes.OK


def _location(outcome: TriggerOutcome) -> str | None:
    return None if outcome.result is None else outcome.result.get("location") or None


def _completed(location: str | None) -> None:
    click.echo(f"Savepoint completed. Path: {location}")


def _say(text: str) -> None:
    """Print progress to standard error; only the result goes to standard output."""
    click.echo(text, err=True)
