"""`firesteel-chaos` injects faults into a working cluster and reports which guarantees held."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from firesteel.errors import FiresteelError
from firesteel_chaos.faults import ABILITIES, TABLE, Fault

VIOLATED, FAILED = 1, 3
"""Exit codes: something did not hold; the harness itself could not do its work."""


@dataclass(frozen=True)
class StageOptions:
    """The options of `run` that describe the stage."""

    root: Path
    backend: str
    store: str
    nodes: int
    lease: float
    options: dict[str, str]
    description: Path | None = None
    workers: int = 0
    isolation: float = 10.0


StageMaker = Callable[[StageOptions], AbstractContextManager[Any]]
"""Returns a `stage.Stage`."""


@contextlib.contextmanager
def open_stage(wish: StageOptions) -> Iterator[Any]:
    """A cluster that is started for this, or the one that the user describes."""
    from firesteel_chaos.controlled import ChaosError
    from firesteel_chaos.own_cluster import OwnCluster, read_description
    from firesteel_chaos.stage import LocalSettings, Stage, StoreAddress, local_stage

    if wish.workers:
        raise ChaosError(
            "workers need hosts, and a store that those reach, which the tests have; "
            "in a checkout of the project: python -m tests.chaos.with_servers run --workers 4 --backend zookeeper"
        )
    if wish.description is not None:
        with OwnCluster(read_description(wish.description)) as cluster:
            yield Stage(cluster)
        return
    store = StoreAddress(wish.backend, wish.store)
    with local_stage(LocalSettings(wish.root, store, wish.nodes, wish.lease, wish.options)) as stage:
        yield stage


def make_command(stage_of: StageMaker, table: tuple[Fault, ...] = TABLE) -> click.Group:
    """The command line over a stage; tests have one with their own servers."""

    @click.group(context_settings={"help_option_names": ["-h", "--help"]})
    def command() -> None:
        """Inject faults that a cluster must survive while it works, and check its guarantees from outside."""

    @command.command()
    @click.option("--rounds", default=50, show_default=True, help="Number of rounds to play.")
    @click.option("--soak", type=float, metavar="MINUTES", help="Play for this long, in any number of rounds.")
    @click.option("--seed", default=1, show_default=True, help="The same seed gives the same rounds.")
    @click.option("--faults", default="", metavar="F1,F6/cut-store", help="Play only these faults; see `faults`.")
    @click.option("--control", is_flag=True, help="Play the same plan without the faults.")
    @click.option("--nodes", default=3, show_default=True, help="Number of nodes of the cluster that is started.")
    @click.option("--lease", default=4.0, show_default=True, help="Its high-availability.lease-duration, in seconds.")
    @click.option("--workers", default=0, show_default=True, help="Number of hosts with a worker; needs root.")
    @click.option(
        "--isolation", default=10.0, show_default=True, help="The workers' worker.isolation-timeout, in seconds."
    )
    @click.option("--backend", type=click.Choice(["sqlite", "postgresql", "zookeeper"]), default="sqlite")
    @click.option(
        "--store", default="", metavar="URL", help="URL of the PostgreSQL database, or host:port,… of ZooKeeper."
    )
    @click.option("-D", "definitions", multiple=True, metavar="KEY=VALUE", help="Set an option of the nodes.")
    @click.option(
        "--cluster", "description", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE"
    )
    @click.option("--streams", default=2, show_default=True, help="Number of streaming jobs that run all the time.")
    @click.option("--scripts/--no-scripts", default=True, show_default=True, help="Also submit programs.")
    @click.option(
        "--root", type=click.Path(path_type=Path, file_okay=False), help="Directory for all files, which are kept."
    )
    @click.option(
        "--history", type=click.Path(path_type=Path, dir_okay=False), help="File for the events, for `check`."
    )
    @click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="Write a report: .md or .json.")
    @click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
    def run(**options: Any) -> None:
        """Play rounds of faults, then judge. The exit code is 0 if all guarantees held, and 1 if one did not."""
        for each in _ENDING:
            signal.signal(each, _end)
        with _errors():
            sys.exit(_run(stage_of, **options))

    @command.command()
    @click.argument("history", type=click.Path(path_type=Path, exists=True, dir_okay=False))
    @click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="Write a report: .md or .json.")
    @click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
    def check(history: Path, report: Path | None, as_json: bool) -> None:
        """Judge a recorded history again."""
        from firesteel_chaos.history import read_history

        with _errors():
            sys.exit(_judge(read_history(history), report, as_json=as_json))

    @command.command()
    def faults() -> None:
        """List the faults, with what each requires of a cluster."""
        for each in table:
            click.echo(f"{each.key:28} {each.what} [{', '.join(sorted(each.needs)) or 'nothing'}]")
        click.echo("\nRequirements:")
        for ability, words in ABILITIES.items():
            click.echo(f"{ability:28} {words}")

    return command


_ENDING = (signal.SIGINT, signal.SIGTERM)


def _end(signal_number: int, _: object) -> None:
    """End the game. What was started for it is ended on the way out, and later signals must not interrupt that."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + signal_number)


def _run(stage_of: StageMaker, **o: Any) -> int:
    from firesteel_chaos.game import Game, play

    logging.basicConfig(level=logging.CRITICAL)  # clients of a store whose servers die log a lot
    keeps = o["root"] is not None
    root = Path(o["root"] or tempfile.mkdtemp(prefix="firesteel-chaos-")).absolute()
    root.mkdir(parents=True, exist_ok=True)
    definitions = dict(d.partition("=")[::2] for d in o["definitions"])
    wish = StageOptions(root, o["backend"], o["store"], o["nodes"], o["lease"], definitions, o["description"])
    wish = dataclasses.replace(wish, workers=o["workers"], isolation=o["isolation"])
    history = Path(o["history"] or root / "history.jsonl")
    with stage_of(wish) as stage:
        described = getattr(stage.cluster, "described", None)
        game = Game(
            root=root if described is None else described.work_dir,
            history=history,
            seed=o["seed"],
            rounds=o["rounds"],
            soak=o["soak"],
            faults=[word for word in o["faults"].split(",") if word],
            control=o["control"],
            streams=o["streams"],
            scripts=o["scripts"],
            say=lambda text: click.echo(text, err=True),
        )
        events = play(game, stage)
    code = _judge(events, o["report"], as_json=o["as_json"])
    if code == 0 and not keeps:
        shutil.rmtree(root, ignore_errors=True)
    else:
        click.echo(f"files are in {root}, the history is in {history}", err=True)
    return code


def _judge(events: list[Any], report_file: Path | None, *, as_json: bool) -> int:
    from firesteel_chaos import invariants, report

    told = next((event for event in events if event.kind == "game"), None)
    keys = ("engines", "results", "isolation")
    bounds = invariants.Bounds(**{key: told.get(key) for key in keys}) if told is not None else invariants.Bounds()
    warm = next((event["seconds"] for event in events if event.kind == "warm"), 0.0)
    bounds = dataclasses.replace(bounds, engine_start=warm)
    violations = invariants.check(events, bounds=bounds)
    found = report.summary(events, violations)
    content = json.dumps(found.to_json(), indent=2)
    if report_file is not None:
        report_file.write_text(content if report_file.suffix == ".json" else found.to_markdown(), encoding="utf-8")
    click.echo(content if as_json else found.to_text())
    return 0 if found.good else VIOLATED


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except FiresteelError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(FAILED)


def main() -> None:
    make_command(open_stage)(prog_name="firesteel-chaos")


if __name__ == "__main__":
    main()
