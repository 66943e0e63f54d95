"""`firesteel savepoint check` tells whether a pipeline can start from a savepoint, without touching any job."""

from __future__ import annotations

from pathlib import Path

import click

from firesteel.cli import exit_codes
from firesteel.cli.command_line import json_option
from firesteel.cli.options import Given, configured
from firesteel.cli.run import absolute
from firesteel.cli.tables import echo_json
from firesteel.jobgraph.load import load_pipeline
from firesteel.savepoint.fit import fit
from firesteel.savepoint.verdict import Level


@click.command("check")
@click.argument("path")
@click.argument("pipeline", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-n",
    "--allowNonRestoredState",
    "allow_non_restored",
    is_flag=True,
    help="Skip state of the savepoint that PIPELINE has no use for.",
)
@json_option
@configured
def check(given: Given, path: str, pipeline: Path, allow_non_restored: bool, as_json: bool) -> int:
    """Tell whether PIPELINE can start from the savepoint, or the checkpoint that was kept, at PATH.

    Nothing is started; this command reads PATH itself. Exits with 1 when the state does not fit.
    """
    graph = load_pipeline(pipeline, variables=given.variables).graph
    verdict = fit(absolute(path), graph, allow_non_restored_state=allow_non_restored or None)
    if as_json:
        echo_json(verdict.to_json())
    else:
        click.echo(verdict.level.value)
        for finding in verdict.findings:
            where = f"{finding.vertex}: " if finding.vertex else ""
            click.echo(f"  {finding.level.value}: {where}{finding.text}")
    return exit_codes.FAILED if verdict.level is Level.NOT else exit_codes.OK
