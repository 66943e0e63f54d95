"""`firesteel config`: the configuration in force."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

from firesteel.cli import exit_codes
from firesteel.cli.options import Given, configured


@click.command()
@click.option("--json", "as_json", is_flag=True)
@configured
def config(given: Given, as_json: bool) -> int:
    """Show each option with its value and where that comes from. Secrets are masked."""
    rows = list(given.configuration.rows())
    if as_json:
        click.echo(json.dumps([{"key": r.key, "value": str(r.value), "origin": r.origin} for r in rows], indent=1))
        return exit_codes.OK
    table = Table(box=None)
    for column in ("option", "value", "from"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(row.key, str(row.value), row.origin, style=None if row.origin != "default" else "dim")
    Console().print(table)
    return exit_codes.OK
