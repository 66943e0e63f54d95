"""`firesteel dashboard` prints a link that lets a browser into the dashboard."""

from __future__ import annotations

import webbrowser

import click

from firesteel.cli import exit_codes
from firesteel.cli.command_line import address_option, addressed
from firesteel.cli.connection import is_awake
from firesteel.cli.options import Given, configured
from firesteel.client.discovery import connect
from firesteel.client.errors import ClusterUnreachableError


@click.command()
@click.option("--open", "open_it", is_flag=True, help="Also open the link in this machine's browser.")
@address_option
@configured
def dashboard(given: Given, address: str | None, open_it: bool) -> int:
    """Print a link that opens the dashboard in one browser, with the rights of the user who runs this command.

    It works once, within a minute.
    """
    given = addressed(given, address)
    if not is_awake(given):
        raise ClusterUnreachableError("no cluster is running here; give the address of another one with -m")
    with connect(given.configuration) as client:
        link = client.dashboard_link()
    click.echo(link)
    if open_it:
        webbrowser.open(link)
    return exit_codes.OK
