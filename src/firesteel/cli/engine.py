"""`firesteel engine` manages engines that stay up, so that runs start at once."""

from __future__ import annotations

import json
import time

import click
from rich.console import Console

from firesteel.cli import exit_codes
from firesteel.cli.options import Given, configured
from firesteel.cli.tables import console, new_table, plain
from firesteel.cli.training import current_archive, train
from firesteel.engines.launcher import healthy, start_engine, stop_engine, sweep
from firesteel.engines.record import EngineDirectory, EngineRecord
from firesteel.jobmaster.plan import shared_engine_spec
from firesteel.layout import ClusterLayout
from firesteel.worker.launch_options import launch_options


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def engine() -> None:
    """Manage the Spark engines of this data directory."""


@engine.command()
@configured
def start(given: Given) -> int:
    """Start an engine that stays up and serves later runs with the same needs."""
    began = time.monotonic()
    record = start_engine(
        EngineDirectory(given.configuration.data.dir),
        shared_engine_spec(given.configuration),
        launch_options(given.configuration),
        shared=True,
    )
    click.echo(f"Engine {record.engine_id} ({record.spec.master}) is ready after {time.monotonic() - began:.1f} s.")
    return exit_codes.OK


@engine.command("list")
@click.option("--json", "as_json", is_flag=True)
@configured
def list_engines(given: Given, as_json: bool) -> int:
    """List the engines of the cluster, those of `firesteel engine start`, and leftover ones."""
    configuration = given.configuration
    rows = [_row(r, "all runs" if r.shared else "one run") for r in EngineDirectory(configuration.data.dir).all()]
    home = ClusterLayout.of(configuration).home
    if ClusterLayout(home).engines.is_dir():
        rows += [_row(r, f"cluster {home.name}") for r in EngineDirectory(home).all()]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return exit_codes.OK
    if not rows:
        click.echo("No engines. A job starts one; `firesteel engine start` starts one that stays up.")
        return exit_codes.OK
    table = new_table("engine", "master", "memory", "address", "pid", "state", "for", "owner")
    for row in rows:
        shown = (row[c] for c in ("id", "master", "memory", "address", "pid", "state", "use", "owner"))
        table.add_row(*[plain("" if value is None else str(value)) for value in shown])
    console().print(table)
    return exit_codes.OK


def _row(record: EngineRecord, use: str) -> dict[str, object]:
    alive = record.process is not None and record.process.alive
    return {
        "id": record.engine_id,
        "master": record.spec.master,
        "memory": record.spec.memory,
        "address": record.address,
        "pid": record.process.pid if record.process else None,
        "state": "running" if healthy(record) else "starting or stuck" if alive else "gone",
        "use": use,
        "owner": record.spec.owner,
    }


@engine.command()
@click.argument("ids", nargs=-1)
@click.option("-a", "--all", "everything", is_flag=True, help="Stop all engines of this data directory.")
@configured
def stop(given: Given, ids: tuple[str, ...], everything: bool) -> int:
    """Stop engines by id, or all of them. Jobs that run on them fail."""
    directory = EngineDirectory(given.configuration.data.dir)
    chosen = [r for r in directory.all() if everything or any(r.engine_id.startswith(i) for i in ids)]
    if not chosen and not everything:
        raise click.ClickException("no such engine; `firesteel engine list` lists them")
    for record in chosen:
        clean = stop_engine(directory, record, grace=given.configuration.engine.stop_timeout)
        click.echo(f"Engine {record.engine_id} {'ended' if clean else 'was killed'}.")
    sweep(directory)
    return exit_codes.OK


@engine.command("train")
@click.option("--force", is_flag=True, help="Make the archive even if there is one.")
@configured
def train_archive(given: Given, force: bool) -> int:
    """Record a class archive once, so that engines start in half the time."""
    options = launch_options(given.configuration)
    archive = current_archive(options)
    if archive.exists() and not force:
        click.echo("There is already a class archive for this Java and this Spark.")
        return exit_codes.OK
    began = time.monotonic()
    with Console(stderr=True).status("Recording which classes Spark needs (once per machine, about a minute)…"):
        archive = train(EngineDirectory(given.configuration.data.dir), options)
    size = archive.stat().st_size / 2**20
    click.echo(
        f"Class archive made in {time.monotonic() - began:.0f} s ({size:.0f} MB); engines start faster from now on."
    )
    return exit_codes.OK
