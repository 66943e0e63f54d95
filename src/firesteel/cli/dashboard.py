"""`firesteel dashboard` prints a link that lets a browser into the dashboard."""

from __future__ import annotations

import webbrowser

import click

from firesteel.cli import exit_codes
from firesteel.cli.command_line import cluster_options, effective
from firesteel.cli.connection import retrieved
from firesteel.cli.custom_command_lines import ClusterOptions
from firesteel.cli.options import Given, configured


@click.command()
@click.option("--open", "open_it", is_flag=True, help="Also open the link in this machine's browser.")
@cluster_options
@configured
def dashboard(given: Given, line: ClusterOptions, open_it: bool) -> int:
    """Print a link that opens the dashboard in one browser, with the rights of the user who runs this command.

    It works once, within a minute.
    """
    given = effective(given, line)
    with retrieved(given) as client:
        link = client.dashboard_link()
    click.echo(link)
    if open_it:
        webbrowser.open(link)
    return exit_codes.OK
