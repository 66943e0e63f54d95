"""`firesteel doctor`: what was found on this machine, and what is missing."""

from __future__ import annotations

import dataclasses
import json

import click
from rich.console import Console
from rich.table import Table

from firesteel.cli import exit_codes
from firesteel.cli.options import Given, configured
from firesteel.cli.training import current_archive
from firesteel.doctor import examine
from firesteel.errors import EnvironmentNotReadyError
from firesteel.jobmaster.plan import launch_options

_MARKS = {"ok": "[green]ok[/green]", "warn": "[yellow]warn[/yellow]", "missing": "[red]missing[/red]"}


@click.command()
@click.option("--json", "as_json", is_flag=True)
@configured
def doctor(given: Given, as_json: bool) -> int:
    """Examine this machine. Ends with 1 when something that every job needs is missing."""
    try:
        archive = current_archive(launch_options(given.configuration))
    except EnvironmentNotReadyError:
        archive = None  # the finding about Java says why
    findings = examine(
        data_dir=given.configuration.data.dir,
        java_home=given.configuration.java.home,
        class_archive=archive,
    )
    if as_json:
        click.echo(json.dumps([{**dataclasses.asdict(f), "status": str(f.status)} for f in findings], indent=1))
    else:
        table = Table(box=None)
        for column in ("", "what", "found"):
            table.add_column(column, overflow="fold")
        for finding in findings:
            fix = f"\n[dim]→ {finding.fix}[/dim]" if finding.fix else ""
            table.add_row(_MARKS.get(str(finding.status), str(finding.status)), finding.name, f"{finding.detail}{fix}")
        Console().print(table)
    return exit_codes.FAILED if any(str(f.status) == "missing" for f in findings) else exit_codes.OK
