"""`firesteel cluster gc` finds and removes what was left behind on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator

import click

from firesteel.cli import exit_codes
from firesteel.cli.options import Given, configured
from firesteel.cli.tables import console, echo_json, new_table, plain
from firesteel.config import Configuration
from firesteel.config.high_availability import HaType
from firesteel.durations import seconds, show_seconds
from firesteel.ha.identity import check as check_store
from firesteel.ha.protocols import Epoch
from firesteel.ha.services import DATABASE, open_high_availability
from firesteel.layout import ClusterLayout
from firesteel.resourcemanager.gc import ClusterPlaces, JobsKnown, Leftover, LeftoverKind, find_leftovers, remove

logger = logging.getLogger(__name__)

CONTEND_SECONDS = 1.5
"""Long enough to be granted leadership that is free, or whose holder on this machine is gone."""


def _duration(_context: click.Context, _parameter: click.Parameter, value: str) -> float:
    try:
        return seconds(value)
    except ValueError:
        raise click.BadParameter(f"'{value}' is not a duration; write for example 10 min, 1 h or 0 s") from None


@click.command()
@click.option("--remove", "removing", is_flag=True, help="Remove what is listed.")
@click.option("--checkpoints", "with_checkpoints", is_flag=True, help="Also remove checkpoints; they hold data.")
@click.option(
    "--older-than", default="10 min", callback=_duration, metavar="DURATION", help="Leave anything younger alone."
)
@click.option("--json", "as_json", is_flag=True)
@configured
def gc(given: Given, removing: bool, with_checkpoints: bool, older_than: float, as_json: bool) -> int:
    """List leftovers: engines that are no longer needed, and files of jobs that are no longer known.

    A checkpoint is a leftover when it belongs to no job of this data directory and this cluster. Check carefully where
    several clusters write to one state.checkpoints.dir.
    """
    configuration = given.configuration
    check_store(ClusterLayout.of(configuration).home, configuration)
    if configuration.high_availability.type == HaType.NONE:
        click.echo(
            "note: high-availability.type is none, so it is unknown which jobs of the cluster are alive; its engines, "
            "its files and all checkpoints are left alone.",
            err=True,
        )
    kinds = set(LeftoverKind) if with_checkpoints else set(LeftoverKind) - {LeftoverKind.CHECKPOINTS}
    found, failed = asyncio.run(_collect(configuration, kinds if removing else set(), older_than))
    kept = [x for x in found if x.kind not in kinds]
    if as_json:
        rows = [
            {**dataclasses.asdict(x), "removed": removing and x not in kept and x not in failed, "error": failed.get(x)}
            for x in found
        ]
        echo_json(rows)
    else:
        _show(found)
    for leftover, error in failed.items():
        click.echo(f"{click.style('error', fg='red')}: {leftover.kind} {leftover.what}: {error}", err=True)
    if found and not as_json:
        if removing:
            click.echo(f"{len(found) - len(kept) - len(failed)} removed.")
        if kept and removing:
            click.echo(f"{len(kept)} checkpoints were kept; `--checkpoints` removes them too.")
        if not removing:
            click.echo("`firesteel cluster gc --remove` removes them; checkpoints only with `--checkpoints`.")
    return exit_codes.FAILED if failed else exit_codes.OK


async def _collect(
    configuration: Configuration, removing: set[LeftoverKind], older_than: float
) -> tuple[list[Leftover], dict[Leftover, str]]:
    """Find leftovers and remove those of the kinds `removing`. Also returns what could not be removed."""
    places = _places(configuration)
    failed: dict[Leftover, str] = {}
    async with jobs_known(configuration) as known:
        found = await asyncio.to_thread(find_leftovers, places, known, older_than=older_than)
        for leftover in found:
            if leftover.kind in removing:
                try:
                    await asyncio.to_thread(remove, leftover, places, grace=configuration.engine.stop_timeout)
                except OSError as error:
                    failed[leftover] = str(error)
    return found, failed


def _show(found: list[Leftover]) -> None:
    if not found:
        click.echo("Nothing was left behind.")
        return
    table = new_table("kind", "what", "size", "age", "why", right=["size"])
    for leftover in found:
        size = "" if leftover.size is None else f"{leftover.size / 2**20:.1f} MiB"
        shown = "" if leftover.since is None else show_seconds(float(round(time.time() - leftover.since)))
        table.add_row(leftover.kind.value, plain(leftover.what), size, shown, plain(leftover.why))
    console().print(table)


def _places(configuration: Configuration) -> ClusterPlaces:
    data_dir = configuration.data.dir
    return ClusterPlaces(
        data_dir=data_dir,
        cluster_dir=ClusterLayout.of(configuration).home,
        checkpoints=configuration.state.checkpoints_dir,
    )


@contextlib.asynccontextmanager
async def jobs_known(configuration: Configuration) -> AsyncIterator[JobsKnown]:
    """Which jobs may need something: those of the HA store.

    The command contends for leadership to find out whether there is a leader. For as long as it leads itself, no other
    node acts.
    """
    known = JobsKnown(
        live=frozenset(),
        retained=frozenset(),
        asked_at=time.time(),
        cluster_known=configuration.high_availability.type != HaType.NONE,
    )
    if not known.cluster_known or not _has_store(configuration):
        yield known
        return
    services = await open_high_availability(configuration)
    try:
        leads = _Leads()
        await services.election("firesteel cluster gc").start(leads)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(leads.granted.wait(), CONTEND_SECONDS)
        # Asked for after that: a leader that went a moment ago has written all it will ever write.
        graphs = {path.rpartition("/")[2] for path in await services.store.paths("graphs")}
        results = {path.rpartition("/")[2] for path in await services.store.paths("results")}
        yield dataclasses.replace(
            known,
            live=frozenset(graphs),
            retained=frozenset(results),
            # A job that has its result waits for its clean-up only, which needs no engine.
            cluster_live=not leads.granted.is_set() or bool(graphs - results),
        )
    finally:
        await services.close()


def _has_store(configuration: Configuration) -> bool:
    """Whether there is a store to read: a cluster that was never started has no database file, and gets none here."""
    options = configuration.high_availability
    in_a_file = options.type == HaType.SQL and options.sql_url is None
    return not in_a_file or (configuration.data.dir / DATABASE).exists()


class _Leads:
    """The contender of an election that is entered only to see whether it can be won."""

    def __init__(self) -> None:
        self.granted = asyncio.Event()

    def on_grant(self, _epoch: Epoch) -> None:
        self.granted.set()

    def on_revoke(self) -> None:
        self.granted.clear()

    def on_error(self, error: Exception) -> None:
        logger.warning("the election could not be entered: %s", error)
