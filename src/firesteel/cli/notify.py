"""`firesteel notify test` tries the targets of notifications."""

from __future__ import annotations

import asyncio
import time

import click

from firesteel.cli import exit_codes
from firesteel.cli.lazy import LazyGroup
from firesteel.cli.options import Given, configured
from firesteel.errors import FiresteelError, InvalidInputError, Problem

COMMANDS = {"test": ("firesteel.cli.notify", "test", "Send a test message to the targets of notifications.")}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def notify() -> None:
    """Try the targets of notifications."""


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@configured
def test(given: Given, targets: tuple[str, ...]) -> int:
    """Send a test message to the targets that the configuration names, or to some of them, and tell what became of it."""
    from firesteel.notifications.rules import Occasion, event
    from firesteel.notifications.targets import targets_of

    known = targets_of(given.configuration.notifications)
    if not known:
        raise FiresteelError("no target is configured; set notifications.targets")
    unknown = [name for name in targets if name not in known]
    if unknown:
        fix = f"name one of {', '.join(sorted(known))}"
        raise InvalidInputError([Problem(f"'{name}' is not a target", fix) for name in unknown])
    cluster = given.configuration.high_availability.cluster_id
    job = {"job_id": "0" * 32, "name": "test", "status": "RUNNING"}
    failed = False
    for name in targets or sorted(known):
        message = event(Occasion.TEST, int(time.time()), time.time(), job, "This is a test of notifications", cluster)
        try:
            asyncio.run(known[name].send(message))
        except Exception as error:
            failed = True
            click.echo(f"{name}: failed: {str(error) or type(error).__name__}")
        else:
            click.echo(f"{name}: sent")
    return exit_codes.FAILED if failed else exit_codes.OK
