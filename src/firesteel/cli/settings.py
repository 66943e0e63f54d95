"""`firesteel config` shows the effective configuration."""

from __future__ import annotations

import json

import click

from firesteel.cli import exit_codes
from firesteel.cli.options import Given, configured, json_option
from firesteel.cli.tables import console, new_table, plain


@click.command()
@json_option
@configured
def config(given: Given, as_json: bool) -> int:
    """Show each option with its value and where the value comes from. Secrets are masked."""
    rows = list(given.configuration.rows())
    if as_json:
        click.echo(json.dumps([{"key": r.key, "value": str(r.value), "origin": r.origin} for r in rows], indent=1))
        return exit_codes.OK
    table = new_table("option", "value", "from")
    for row in rows:
        style = None if row.origin != "default" else "dim"
        table.add_row(row.key, plain(row.value), plain(row.origin), style=style)
    console().print(table)
    return exit_codes.OK
