"""A game: load, observer and rounds of faults on one stage, and the history that comes of it."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from firesteel_chaos.controlled import ChaosError, answers
from firesteel_chaos.faults import playable, select
from firesteel_chaos.faults.model import World
from firesteel_chaos.history import Event, History
from firesteel_chaos.observer import Observer
from firesteel_chaos.rounds import Player, plan
from firesteel_chaos.stage import Stage
from firesteel_chaos.store_view import open_store_view
from firesteel_chaos.workload import Workload

START_SECONDS = 120.0
WARM_UP_SECONDS = 120.0
SETTLE_SECONDS = 240.0


@dataclass(frozen=True)
class Game:
    """What to play.

    Args:
        rounds: how many, unless `soak` says for how long.
        soak: minutes.
        faults: names (F6) or keys (F6/cut-store) of those to play; all that can be played by default.
        control: leave the injections out.
        give_up: after the first round from which the cluster does not come back.
    """

    root: Path
    history: Path
    seed: int = 1
    rounds: int = 50
    soak: float | None = None
    faults: Sequence[str] = ()
    control: bool = False
    streams: int = 2
    scripts: bool = True
    give_up: bool = True
    say: Callable[[str], None] = field(default=lambda _: None)


def play(game: Game, stage: Stage) -> list[Event]:
    """Play it to its end. What was found is in the events; they are in the file of the history as well."""
    cluster = stage.cluster
    faults = playable(select(stage.faults, game.faults), cluster.abilities)
    turns = plan(game.seed, faults, lease=cluster.lease)
    store = open_store_view(stage.configuration) if stage.configuration is not None else None
    with History(game.history) as history, contextlib.ExitStack() as stack:
        observer = Observer(cluster, history, store=store, witness=stage.witness)
        load = Workload(
            cluster, history, game.seed, root=game.root / "work", streams=game.streams, scripts=game.scripts
        )
        _wait_until_answering(stage)
        history.record(
            "game",
            seed=game.seed,
            control=game.control,
            nodes=len(cluster.addresses),
            lease=cluster.lease,
            isolation=stage.isolation,
            engines=stage.engines,
            results=None if stage.configuration is None else stage.configuration.dispatcher.job_result_retention,
            store=stage.store,
            faults=[each.key for each in faults],
        )
        stack.callback(observer.close)
        observer.start()
        stack.callback(load.close)
        load.start()
        began = time.monotonic()
        _warm_up(history, game.streams)
        history.record("warm", seconds=round(time.monotonic() - began, 1))
        world = World(
            cluster,
            history,
            game.root,
            random.Random(game.seed),  # noqa: S311 - chance, not a secret
            load=load,
            records=stage.records,
            failing_node=stage.failing_node,
            orders=stage.orders,
        )
        player = Player(world, faults, control=game.control, say=game.say)
        ends = time.monotonic() + (game.soak or 0) * 60
        for turn in turns if game.soak else itertools.islice(turns, game.rounds):
            if game.soak and time.monotonic() > ends:
                break
            if not player.play(turn) and game.give_up:
                game.say("the cluster does not come back; the rest of the rounds is left out")
                break
        game.say(f"{player.played} rounds played; waiting for all jobs to end")
        load.settle(SETTLE_SECONDS)
        observer.look_once()
        stack.close()
        return history.events()


def _warm_up(history: History, streams: int) -> None:
    """Until the streams run: faults on a cluster that does nothing yet show little. Not for ever: it may not get that far."""
    deadline = time.monotonic() + WARM_UP_SECONDS
    while time.monotonic() < deadline:
        if len({event["job"] for event in history.events() if event.kind == "query" and event["runs"]}) >= streams:
            return
        time.sleep(0.2)


def _wait_until_answering(stage: Stage) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not answers(stage.cluster):
        if time.monotonic() > deadline:
            raise ChaosError(
                f"no node of the cluster answered within {START_SECONDS:g} s: {', '.join(stage.cluster.addresses)}"
            )
        time.sleep(0.1)
