"""`firesteel cluster handover` makes another node the leader."""

from __future__ import annotations

import dataclasses

import click

from firesteel.cli import exit_codes
from firesteel.cli.command_line import cluster_options, effective, json_option
from firesteel.cli.connection import retrieved
from firesteel.cli.custom_command_lines import ClusterOptions
from firesteel.cli.options import Given, configured
from firesteel.cli.tables import echo_json
from firesteel.client.handover import HAND_OVER_SECONDS


@click.command()
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=HAND_OVER_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for another node to lead.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Proceed even when there is no other node; if none takes over, the same one leads again.",
)
@json_option
@cluster_options
@configured
def handover(given: Given, line: ClusterOptions, timeout: float, force: bool, as_json: bool) -> int:
    """Hand leadership over to another node, for example before the leader's machine is taken down.

    Jobs keep running, and requests that arrive meanwhile wait a moment. The old leader stays up and forwards requests
    to the new one.
    """
    given = effective(given, line)
    with retrieved(given) as client:
        done = client.hand_over(force=force, timeout=timeout)
    if as_json:
        echo_json(dataclasses.asdict(done))
    else:
        click.echo(f"{done.after} leads now (epoch {done.epoch}), {done.seconds:.1f} s after {done.before} was asked.")
    return exit_codes.OK
