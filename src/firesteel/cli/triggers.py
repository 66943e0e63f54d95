"""Savepoints, stops and checkpoints that a user waits for. After Ctrl-C they continue, and can be asked about later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from firesteel.cli import exit_codes
from firesteel.cli.connection import Connection
from firesteel.client.operations import RemoteOperation
from firesteel.types import JobID, is_job_id, new_job_id

IN_PROGRESS = "IN_PROGRESS"
COMPLETED = "COMPLETED"


@dataclass(frozen=True, slots=True)
class TriggerOutcome:
    trigger_id: str
    result: Mapping[str, Any] | None
    """None when the operation continues and the command does not wait for it."""

    def to_json(self, job_id: JobID | None, **more: object) -> dict[str, Any]:
        head = {"job_id": job_id} if job_id else {}
        return {
            **head,
            "trigger_id": self.trigger_id,
            "status": IN_PROGRESS if self.result is None else COMPLETED,
            **more,
        }


def trigger_id_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--trigger-id",
        "known",
        metavar="ID",
        callback=_parse,
        help=f"Trigger nothing, but wait for the {what} that was triggered under this id.",
    )


def _parse(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not is_job_id(value.lower()):
        raise click.BadParameter(f"a trigger id is 32 hex digits, not '{value}'")
    return None if value is None else value.lower()


def see_through(
    cluster: Connection,
    operation: RemoteOperation,
    wish: Mapping[str, Any],
    *,
    job_id: JobID | None,
    ask: str,
    known: str | None = None,
    wait: bool = True,
) -> TriggerOutcome:
    """Trigger an operation, unless it is `known`, and wait for its end. Ctrl-C ends only the waiting.

    Args:
        ask: the command that asks for it, without the trigger id.
    """
    # Chosen here, so that it can be asked for whatever becomes of the request.
    trigger_id = known or new_job_id()
    try:
        if known is None:
            trigger_id = cluster.client.trigger(operation, wish, job_id=job_id, trigger_id=trigger_id)
        if not wait:
            return TriggerOutcome(trigger_id, None)
        result = cluster.client.outcome(operation, trigger_id, job_id=job_id)
    except KeyboardInterrupt:
        said = f"The {operation.name} continues if the cluster received it; ask with: {ask} --trigger-id {trigger_id}"
        click.echo(f"\n{said}", err=True)
        raise click.exceptions.Exit(exit_codes.CANCELED) from None
    return TriggerOutcome(trigger_id, result)
