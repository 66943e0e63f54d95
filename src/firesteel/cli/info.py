"""`firesteel info` shows everything about a pipeline without running it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from firesteel.cli import exit_codes
from firesteel.cli.inspection import inspect
from firesteel.cli.options import Given, configured
from firesteel.cli.tables import console as wide_console
from firesteel.errors import InvalidPipelineError, Problem
from firesteel.jobgraph.load import LoadedPipeline, load_pipeline
from firesteel.jobgraph.render import tree
from firesteel.jobmaster.plan import RunPlan


@click.command()
@click.argument("pipeline", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--offline", is_flag=True, help="Do not ask Spark: show no schemas and no plan, and do not check column names."
)
@click.option("--json", "as_json", is_flag=True, help="Print the job graph, schemas, plans and problems as JSON.")
@configured
def info(given: Given, pipeline: Path, offline: bool, as_json: bool) -> int:
    """Show the job graph of PIPELINE, the schema at each vertex, the Spark plan of each sink, and every problem."""
    try:
        loaded = load_pipeline(pipeline, variables=given.variables)
    except InvalidPipelineError as error:
        if as_json:
            click.echo(json.dumps({"job_graph": None, "problems": [_json(p) for p in error.problems]}, indent=1))
            return exit_codes.INVALID
        raise
    report: dict[str, Any] = {"schemas": {}, "plans": {}}
    problems = list(loaded.problems)
    if not offline and not loaded.graph.is_program:
        report, found = inspect(loaded.graph, given.configuration)
        # Spark has spoken: our own parser's doubts about its SQL are settled, one way or the other.
        problems = [p for p in problems if p.certain] + [_placed(p, loaded) for p in found]
    if as_json:
        document = {
            "job_graph": json.loads(loaded.graph.to_json()),
            "schemas": report["schemas"],
            "plans": report["plans"],
            "problems": [_json(p) for p in problems],
        }
        click.echo(json.dumps(document, indent=1))
    else:
        _print(loaded, report, given)
    if any(p.certain for p in problems):
        if as_json:
            return exit_codes.INVALID
        raise InvalidPipelineError(problems)
    return exit_codes.OK


def _print(loaded: LoadedPipeline, report: dict[str, Any], given: Given) -> None:
    console = wide_console()
    graph = loaded.graph
    if graph.description:
        console.print(Text(graph.description, style="dim"), soft_wrap=True)
    console.print(Text(tree(graph)), soft_wrap=True)
    needs = RunPlan.of(graph, given.configuration).needs
    if needs is not None:
        console.print(Text(f"api: {needs.api}"))
        for reason in needs.reasons or ("nothing in it needs a SparkContext, RDDs or the JVM of a driver",):
            console.print(Text(f"  {reason}", style="dim"), soft_wrap=True)
    for name, columns in report["schemas"].items():
        table = Table(box=None, title=Text(f"schema of {name}"), title_justify="left", show_header=False)
        for column, kind, nullable in columns:
            table.add_row(f"  {column}", Text(kind, style="cyan"), "" if nullable else "not null")
        console.print(table)
    for name, plan in report["plans"].items():
        console.print(Text(f"plan of {name}", style="italic"))
        console.print(Text(plan.rstrip()), soft_wrap=True)


def _placed(problem: Problem, loaded: LoadedPipeline) -> Problem:
    return Problem(problem.message, problem.fix, problem.vertex, problem.field, file=str(loaded.file))


def _json(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "vertex": problem.vertex,
        "field": problem.field,
        "message": problem.message,
        "fix": problem.fix,
        "certain": problem.certain,
    }
