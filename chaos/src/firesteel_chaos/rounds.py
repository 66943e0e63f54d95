"""Rounds: which faults when, drawn from a seed, and the player that carries them out.

A round is one fault alone, two at a time, or one while the cluster recovers from the one before. It ends when everything is
healed and the cluster answers again.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from firesteel_chaos.controlled import ChaosError, answers
from firesteel_chaos.faults.model import Fault, NoTargetError, Strike, World
from firesteel_chaos.faults.nodes import bring_up

RECOVERY_SECONDS = 40.0
"""How long a round waits for the cluster to answer; what is asked of it is stricter and judged elsewhere (I9)."""
QUIET = (0.3, 1.2)
"""Between two rounds, in seconds."""


class RoundShape(StrEnum):
    ALONE = "alone"
    PAIR = "pair"
    IN_RECOVERY = "in-recovery"


_SHAPES = (RoundShape.ALONE, RoundShape.ALONE, RoundShape.PAIR, RoundShape.IN_RECOVERY)


@dataclass(frozen=True, slots=True)
class Step:
    fault: str
    """Its key."""
    after: float
    """How long after the round's begin, the injection of the one before (pair), or its healing (in recovery), in seconds."""
    hold: float


@dataclass(frozen=True, slots=True)
class Round:
    number: int
    seed: int
    """Of the plan; with the number it is that of what the faults draw themselves, such as which driver to kill."""
    shape: RoundShape
    steps: tuple[Step, ...]
    quiet: float
    """Before the next one, in seconds."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan(seed: int, faults: Sequence[Fault], *, lease: float) -> Iterator[Round]:
    """Rounds without end. The same arguments give the same rounds, however many of them are played."""
    if not faults:
        raise ChaosError("no fault can be played; `firesteel-chaos faults` shows what each requires")
    draw = random.Random(seed)  # noqa: S311 - chance, not a secret
    drawn = _in_turn(draw, faults)
    number = 0
    while True:
        number += 1
        shape = draw.choice(_SHAPES)
        chosen = [next(drawn) for _ in range(1 if shape is RoundShape.ALONE else 2)]
        if chosen[0].key == chosen[-1].key:
            shape, chosen = RoundShape.ALONE, chosen[:1]  # there may be one only
        steps = tuple(_step(draw, each, n, shape, lease) for n, each in enumerate(chosen))
        yield Round(number, seed, shape, steps, round(draw.uniform(*QUIET), 2))


def _in_turn(draw: random.Random, faults: Sequence[Fault]) -> Iterator[Fault]:
    """All of them before any comes again, in an order that is new each time; costly ones not every time."""
    while True:
        chosen = [each for each in faults if draw.random() < each.weight]
        draw.shuffle(chosen)
        yield from chosen


def _step(draw: random.Random, chosen: Fault, number: int, shape: RoundShape, lease: float) -> Step:
    unit = lease if chosen.leases else 1.0
    after = 0.0 if number == 0 else draw.uniform(0.0, 1.5)
    return Step(chosen.key, round(after, 2), round(draw.uniform(*chosen.hold) * unit, 2))


class Player:
    """Plays rounds one after the other.

    Args:
        control: leave the injections out; everything else is as in the plan, so that what is found comes from elsewhere.
    """

    def __init__(
        self,
        world: World,
        faults: Sequence[Fault],
        *,
        control: bool = False,
        say: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._world = world
        self._faults = {each.key: each for each in faults}
        self._control = control
        self._say = say
        self._sleep = sleep
        self.played = 0

    def play(self, turn: Round) -> bool:
        """False when the cluster did not come back."""
        world = self._world
        world.history.record("round", number=turn.number, seed=turn.seed, plan=turn.to_json(), control=self._control)
        strikes: list[Strike] = []
        match turn.shape:
            case RoundShape.PAIR:
                with self._struck(turn, 0, strikes), self._struck(turn, 1, strikes):
                    pass
            case _:
                for n in range(len(turn.steps)):
                    with self._struck(turn, n, strikes):
                        pass
        seconds = self._recover()
        world.history.record("recovered", round=turn.number, seconds=seconds)
        if seconds is None:
            what = f"the cluster answers within {RECOVERY_SECONDS:g} s of the end of all faults of round {turn.number}"
            world.history.record("expectation", fault=None, what=what, held=False, invariant="I9")
        self._look_after(strikes, recovered=seconds is not None)
        self.played += 1
        names = " + ".join(step.fault for step in turn.steps)
        took = "not back" if seconds is None else f"back after {seconds:.1f} s"
        self._say(f"round {turn.number} ({turn.shape}): {names}: {took}")
        self._sleep(turn.quiet)
        return seconds is not None

    @contextlib.contextmanager
    def _struck(self, turn: Round, number: int, strikes: list[Strike]) -> Iterator[None]:
        """Injected when the block begins; when it is left, held for as long as it is meant to last, and healed."""
        step = turn.steps[number]
        self._sleep(step.after)
        with contextlib.ExitStack() as stack:
            if not self._control:
                self._inject(turn, number, strikes, stack)
            began = time.monotonic()
            yield
            self._sleep(max(0.0, began + step.hold - time.monotonic()))

    def _inject(self, turn: Round, number: int, strikes: list[Strike], stack: contextlib.ExitStack) -> None:
        world, chosen = self._world, self._faults[turn.steps[number].fault]
        world.draw = random.Random(f"{turn.seed}/{turn.number}/{number}")  # noqa: S311 - chance, not a secret
        strike = Strike(world, chosen, turn.steps[number].hold, id=next(world.ids))
        strikes.append(strike)
        stack.callback(self._healed, strike)
        try:
            stack.enter_context(chosen.inject(world, strike))
        except (NoTargetError, ChaosError) as error:
            world.history.record("skipped", id=strike.id, name=chosen.name, variant=chosen.variant, why=str(error))

    def _healed(self, strike: Strike) -> None:
        if strike.begun:
            self._world.history.record("healed", id=strike.id, name=strike.fault.name, variant=strike.fault.variant)

    def _recover(self) -> float | None:
        """Start what died, as a process manager would, until somebody answers. Gives the seconds that it took."""
        began = time.monotonic()
        answered = None
        while answered is None and time.monotonic() - began < RECOVERY_SECONDS:
            dead = [node for node in self._world.cluster.nodes() if not node.alive]
            starting = threading.Thread(target=bring_up, args=dead, daemon=True)
            starting.start()
            while answered is None and (starting.is_alive() or not dead):
                if answers(self._world.cluster):
                    answered = round(time.monotonic() - began, 3)
                elif time.monotonic() - began > RECOVERY_SECONDS:
                    break
                else:
                    self._sleep(0.05)
                dead = [node for node in self._world.cluster.nodes() if not node.alive]
            starting.join()
        return answered

    def _look_after(self, strikes: Sequence[Strike], *, recovered: bool) -> None:
        try:
            for strike in strikes if recovered else ():
                for check in strike.checks if strike.begun else ():
                    check()
        finally:
            for strike in strikes:
                for cleanup in strike.cleanups:
                    cleanup()
