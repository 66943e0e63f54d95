"""Looks at files, many in one go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from firesteel.worker.together import AT_ONCE, LARGEST, Together


class Counting(ThreadPoolExecutor):
    def __init__(self) -> None:
        super().__init__(16)
        self.calls = 0

    def submit(self, *args: object, **more: object) -> object:  # type: ignore[override]
        self.calls += 1
        return super().submit(*args, **more)  # type: ignore[arg-type]


def play(scene: Callable[[Together, Counting], Awaitable[None]]) -> None:
    async def main() -> None:
        with Counting() as threads:
            await asyncio.wait_for(scene(Together(threads), threads), 30)

    asyncio.run(main())


def test_looks_of_one_turn_go_to_a_thread_together_and_each_gets_its_own_answer() -> None:
    async def scene(together: Together, threads: Counting) -> None:
        count = 10 * LARGEST
        answers = await asyncio.gather(*[together.run(lambda n=n: n * n) for n in range(count)])  # type: ignore[misc]
        assert answers == [n * n for n in range(count)]
        assert threads.calls == 10

    play(scene)


def test_look_that_fails_fails_for_the_one_who_asked() -> None:
    async def scene(together: Together, _threads: Counting) -> None:
        def broken() -> int:
            raise OSError("no such file")

        found = await asyncio.gather(together.run(lambda: 1), together.run(broken), return_exceptions=True)
        assert found[0] == 1
        assert isinstance(found[1], OSError)

    play(scene)


def test_looks_that_hang_take_some_threads_and_not_all() -> None:
    async def scene(together: Together, threads: Counting) -> None:
        gate = threading.Event()
        asked = [asyncio.ensure_future(together.run(gate.wait)) for _ in range(10 * LARGEST)]
        await asyncio.wait(asked, timeout=0.05)
        assert threads.calls == AT_ONCE
        asked[0].cancel()
        gate.set()
        assert all(await asyncio.gather(*asked[1:]))

    play(scene)


def test_threads_that_are_gone_are_told_as_an_error() -> None:
    async def scene(together: Together, threads: Counting) -> None:
        threads.shutdown()
        with pytest.raises(RuntimeError):
            await together.run(lambda: 1)

    play(scene)
