"""What a node knows of the leader, and what it says when it knows of none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from firesteel.errors import StoreUnavailableError
from firesteel.ha.protocols import Epoch, LeaderInformation, LeaderListener
from firesteel.ha.retrieval import LeaderRetrieval

ONE = LeaderInformation(Epoch(1), "http://one")
TWO = LeaderInformation(Epoch(2), "http://two")


class Driver:
    def __init__(self) -> None:
        self.answer: LeaderInformation | Exception | None = None
        self.asked = 0

    async def start(self, listener: LeaderListener) -> None: ...

    def holds(self, epoch: Epoch) -> bool:
        return False

    async def publish(self, epoch: Epoch, address: str) -> None: ...

    async def resign(self, epoch: Epoch, *, patience: float) -> None: ...

    async def leader(self) -> LeaderInformation | None:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def close(self) -> None: ...


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def play(main: Callable[[Driver, LeaderRetrieval], object]) -> None:
    async def inside() -> None:
        driver = Driver()
        retrieval = LeaderRetrieval(driver, interval=0.02)
        await retrieval.start()
        try:
            await main(driver, retrieval)  # type: ignore[misc]
        finally:
            await retrieval.close()

    asyncio.run(inside())


def test_absence_says_why_since_when_and_who_led_last() -> None:
    async def main(driver: Driver, retrieval: LeaderRetrieval) -> None:
        absence = retrieval.absence
        assert absence is not None
        assert (absence.reason, absence.last_leader) == ("the cluster has no leader", None)
        driver.answer = ONE
        await until(lambda: retrieval.current == ONE)
        assert retrieval.absence is None
        before = time.time()
        driver.answer = StoreUnavailableError("no quorum at zk-1:2181")
        await until(lambda: retrieval.absence is not None)
        absence = retrieval.absence
        assert absence is not None
        assert "no quorum at zk-1:2181" in absence.reason
        assert absence.last_leader == ONE
        assert before - 1 <= absence.since <= time.time()
        assert retrieval.current == ONE, "it may lead still"
        driver.answer = None  # the store is back, and nobody leads yet: it is the same absence
        await until(lambda: retrieval.current is None)
        later = retrieval.absence
        assert later is not None
        assert (later.reason, later.since, later.last_leader) == ("the cluster has no leader", absence.since, ONE)
        driver.answer = LeaderInformation(Epoch(2), "")
        await until(lambda: retrieval.current is not None)
        assert retrieval.absence is not None
        assert "epoch 2 is recovering" in retrieval.absence.reason
        driver.answer = TWO
        await until(lambda: retrieval.current == TWO)
        assert retrieval.absence is None

    play(main)


def test_change_is_waited_for_and_repetition_is_none() -> None:
    async def main(driver: Driver, retrieval: LeaderRetrieval) -> None:
        driver.answer = ONE
        await until(lambda: retrieval.current == ONE)
        waiting = asyncio.ensure_future(retrieval.changed(60))
        asked = driver.asked
        await until(lambda: driver.asked > asked + 3)
        assert not waiting.done()
        driver.answer = TWO
        await asyncio.wait_for(waiting, 10)
        assert retrieval.current == TWO
        driver.answer = StoreUnavailableError("away")
        await asyncio.wait_for(retrieval.changed(60), 10)
        assert retrieval.absence is not None
        await retrieval.changed(0.01)  # not an error

    play(main)


@pytest.mark.parametrize(("answer", "in_a_hurry"), [(None, True), (ONE, False), (StoreUnavailableError("away"), False)])
def test_it_asks_more_often_while_leadership_changes_hands(
    answer: LeaderInformation | Exception | None, in_a_hurry: bool
) -> None:
    async def main() -> None:
        driver = Driver()
        driver.answer = answer
        retrieval = LeaderRetrieval(driver, interval=10.0)
        await retrieval.start()
        await until(lambda: driver.asked >= 1)
        await asyncio.sleep(0)
        assert (retrieval._pause() < 1.0) is in_a_hurry
        retrieval._since -= 60
        assert retrieval._pause() == 10.0, "nobody is in a hurry for a minute"
        await retrieval.close()

    asyncio.run(main())
