"""Messages to the outside: nobody waits for them, and those that are stored survive leaders."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from firesteel.concurrency import Backoff
from firesteel.delivery import delivery as module
from firesteel.delivery.dead_letters import DeadLetters
from firesteel.delivery.delivery import MessageDelivery, UndeliverableError
from firesteel.errors import FencingError
from firesteel.ha.memory import MemoryStateStore
from firesteel.ha.protocols import Epoch
from firesteel.stores.outbox import OutboxStore
from firesteel.testing.virtual_time import run_in_virtual_time as run


class Receiver:
    def __init__(self) -> None:
        self.got: list[str] = []
        self.error: Exception | None = None
        self.tries = 0

    async def send(self, message_id: str, _body: Mapping[str, Any]) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        self.got.append(message_id)


class Leaders:
    """Leaderships over one store, one after the other."""

    def __init__(self, directory: Path, now: Callable[[], float]) -> None:
        self.store = MemoryStateStore()
        self.letters = directory / "dead" / "x.jsonl"
        self.now = now
        self.errors: list[BaseException] = []

    def lead(self, send: Callable[[str, Mapping[str, Any]], Awaitable[None]]) -> MessageDelivery:
        self.store.newest_epoch = Epoch(self.store.newest_epoch + 1)
        leader = MessageDelivery(
            "x",
            send,
            outbox=OutboxStore(self.store, "x"),
            epoch=self.store.newest_epoch,
            dead_letters=DeadLetters(self.letters),
            on_error=self.errors.append,
            backoff=Backoff(1.0, 60.0),
            give_up_after=3600.0,
            now=self.now,
        )
        leader.start()
        return leader

    async def left(self) -> list[str]:
        return [m.message_id for m in await OutboxStore(self.store, "x").list()]


def with_leaders(tmp_path: Path, main: Callable[[Leaders, Receiver], Awaitable[None]]) -> None:
    async def inside() -> None:
        await main(Leaders(tmp_path, asyncio.get_running_loop().time), Receiver())

    run(inside)


def test_stored_message_is_delivered_by_the_next_leader_under_the_same_id(tmp_path: Path) -> None:
    async def main(leaders: Leaders, receiver: Receiver) -> None:
        receiver.error = OSError("out of reach")
        first = leaders.lead(receiver.send)
        await first.keep("a", {"n": 1})
        first.offer("b", {"n": 2})
        await asyncio.sleep(2)
        await first.close()
        assert await leaders.left() == ["a"]
        receiver.error = None
        second = leaders.lead(receiver.send)
        await asyncio.sleep(1)
        assert receiver.got == ["a"]
        assert await leaders.left() == []
        await second.close()
        assert leaders.errors == []

    with_leaders(tmp_path, main)


def test_receiver_that_comes_back_gets_it_and_others_do_not_wait_for_it(tmp_path: Path) -> None:
    async def main(leaders: Leaders, receiver: Receiver) -> None:
        async def send(message_id: str, body: Mapping[str, Any]) -> None:
            if message_id.startswith("bad") and receiver.error:
                raise receiver.error
            receiver.got.append(message_id)

        receiver.error = OSError("out of reach")
        leader = leaders.lead(send)
        for number in range(10):
            await leader.keep(f"bad{number}", {})
        await leader.keep("good", {})
        await asyncio.sleep(5)
        assert receiver.got == ["good"]
        receiver.error = None
        await asyncio.sleep(120)
        assert sorted(receiver.got[1:]) == [f"bad{n}" for n in range(10)]
        await leader.close()

    with_leaders(tmp_path, main)


async def inline(call: Callable[..., Any], *args: Any) -> Any:
    return call(*args)  # a thread would take real time


def test_what_is_refused_for_good_or_too_old_becomes_a_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "to_thread", inline)

    async def main(leaders: Leaders, receiver: Receiver) -> None:
        receiver.error = UndeliverableError("400: no such thing")
        leader = leaders.lead(receiver.send)
        await leader.keep("refused", {"n": 1})
        await asyncio.sleep(1)
        receiver.error = OSError("out of reach")
        await leader.keep("old", {"n": 2})
        await asyncio.sleep(2 * 3600)
        assert await leaders.left() == []
        letters = [json.loads(line) for line in leaders.letters.read_text().splitlines()]
        assert [(letter["id"], letter["message"]) for letter in letters] == [("refused", {"n": 1}), ("old", {"n": 2})]
        assert leaders.letters.stat().st_mode & 0o077 == 0
        await leader.close()

    with_leaders(tmp_path, main)


def test_memory_is_bounded_and_what_is_stored_waits_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 5)

    async def main(leaders: Leaders, receiver: Receiver) -> None:
        receiver.error = OSError("out of reach")
        leader = leaders.lead(receiver.send)
        for number in range(20):
            await leader.keep(f"kept{number:02}", {})
            leader.offer(f"offered{number:02}", {})
        assert leader.waiting <= 5 + module.AT_ONCE
        receiver.error = None
        await asyncio.sleep(600)
        assert {m for m in receiver.got if m.startswith("kept")} == {f"kept{n:02}" for n in range(20)}
        await leader.close()

    with_leaders(tmp_path, main)


def test_leader_that_was_replaced_says_so_and_stores_nothing(tmp_path: Path) -> None:
    async def main(leaders: Leaders, receiver: Receiver) -> None:
        old = leaders.lead(receiver.send)
        new = leaders.lead(receiver.send)
        try:
            await old.keep("a", {})
        except FencingError:
            pass
        else:
            raise AssertionError("a replaced leader stored something")
        await old.close()
        await new.close()

    with_leaders(tmp_path, main)
