"""Savepoints, stops and checkpoints that a person waits for, and may stop to wait for: they go on, and can be asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import click

from firesteel.cli import exit_codes
from firesteel.cli.connection import Connection
from firesteel.client.caller import Caller
from firesteel.client.errors import JobTimeoutError
from firesteel.client.model import Answer
from firesteel.client.operations import Operation, carry_out
from firesteel.client.requests import Request
from firesteel.client.transport import run
from firesteel.types import JobID, is_job_id

IN_PROGRESS = "IN_PROGRESS"
COMPLETED = "COMPLETED"


@dataclass(frozen=True, slots=True)
class Outcome:
    trigger_id: str
    result: Mapping[str, Any] | None
    """None: it goes on, and nobody waits for it."""

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
    operation: Operation,
    wish: Mapping[str, Any],
    *,
    job_id: JobID | None,
    ask: str,
    known: str | None = None,
    wait: bool = True,
) -> Outcome:
    """Trigger an operation, unless it is `known`, and wait for its end. Ctrl-C ends the waiting only.

    Args:
        ask: the command that asks for it, without the trigger id.
    """
    caller = _Noting(_caller_of(cluster), known)
    try:
        result = run(carry_out(cast(Caller, caller), job_id, operation, wish, patience=None if wait else 0.0))
    except JobTimeoutError:
        assert caller.trigger_id is not None
        return Outcome(caller.trigger_id, None)
    except KeyboardInterrupt:
        if caller.trigger_id is None:
            click.echo(f"\nWhether the {operation.name} was triggered is not known.", err=True)
        else:
            said = f"The {operation.name} goes on. Ask for it with: {ask} --trigger-id {caller.trigger_id}"
            click.echo(f"\n{said}", err=True)
        raise click.exceptions.Exit(exit_codes.CANCELED) from None
    assert caller.trigger_id is not None
    return Outcome(caller.trigger_id, result)


def _caller_of(cluster: Connection) -> Caller:
    # The client draws the id of an operation itself and tells it to nobody. What is needed here belongs there.
    return cluster.client._cluster._caller


class _Noting:
    """A Caller that notes under which id an operation was triggered, and triggers none whose id is known."""

    def __init__(self, caller: Caller, trigger_id: str | None) -> None:
        self._caller = caller
        self.trigger_id = trigger_id

    async def json(self, request: Request, *, patience: float | None = None) -> object:
        if request.method != "POST":
            return await self._caller.json(request, patience=patience)
        if self.trigger_id is None:
            accepted = Answer(await self._caller.json(request, patience=patience), "the answer to a trigger")
            self.trigger_id = accepted.text("request-id")
        return {"request-id": self.trigger_id}

    async def pause(self, seconds: float) -> None:
        await self._caller.pause(seconds)
