"""`firesteel doctor` reports what was found on this machine, and what is missing."""

from __future__ import annotations

import dataclasses
import json

import click
from rich.text import Text

from firesteel.cli import exit_codes
from firesteel.cli.options import Given, configured, json_option
from firesteel.cli.tables import console, new_table, plain
from firesteel.cli.training import current_archive
from firesteel.config.sections import SandboxKind
from firesteel.doctor import examine
from firesteel.errors import EnvironmentNotReadyError
from firesteel.worker.launch_options import launch_options
from firesteel.worker.sandboxing import users_are_missing

_STYLES = {"ok": "green", "warn": "yellow", "missing": "red", "optional": "dim"}


@click.command()
@json_option
@configured
def doctor(given: Given, as_json: bool) -> int:
    """Examine this machine. Exits with 1 when something that every job needs is missing."""
    try:
        archive = current_archive(launch_options(given.configuration))
    except EnvironmentNotReadyError:
        archive = None  # the finding about Java says why
    kind = given.configuration.security.sandbox
    findings = examine(
        data_dir=given.configuration.data.dir,
        java_home=given.configuration.java.home,
        class_archive=archive,
        sandbox_users=(users_are_missing(given.configuration) or "") if kind is SandboxKind.USER else None,
        sandbox_off=kind is SandboxKind.OFF,
    )
    if as_json:
        click.echo(json.dumps([{**dataclasses.asdict(f), "status": str(f.status)} for f in findings], indent=1))
    else:
        table = new_table("", "what", "found", whole=["", "what"])
        for finding in findings:
            status = str(finding.status)
            detail = plain(finding.detail)
            if finding.fix:
                detail.append(f"\n→ {finding.fix}", "dim")
            table.add_row(Text(status, _STYLES.get(status, "")), finding.name, detail)
        console().print(table)
    return exit_codes.FAILED if any(str(f.status) == "missing" for f in findings) else exit_codes.OK
