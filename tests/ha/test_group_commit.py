"""The group commit that stores on the event loop share: who goes with whom, in which order, and who is told what at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

import pytest

from firesteel.concurrency import OwnedTasks
from firesteel.errors import StoreBrokenError, StoreUnavailableError
from firesteel.ha.group_commit import GroupCommit, QueuedWrite, WriteOutcome


@dataclass(frozen=True, slots=True)
class Named(QueuedWrite):
    name: str


class Disk:
    """Remembers the groups; each waits until the disk is let go."""

    def __init__(self) -> None:
        self.groups: list[str] = []
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None
        self.tasks = OwnedTasks("test", lambda _: None)

    async def commit(self, group: Sequence[Named]) -> Iterable[WriteOutcome]:
        self.groups.append("".join(write.name for write in group))
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return [write.done(write.name.upper()) for write in group]

    def write(self, commit: GroupCommit[Named], name: str) -> asyncio.Task[str]:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return asyncio.ensure_future(commit.submit(Named(future, name)))


def run(test: Callable[[Disk], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(10):
            await test(Disk())

    asyncio.run(main())


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_queues_up_during_a_commit_goes_with_the_next_one_in_order() -> None:
    async def test(disk: Disk) -> None:
        group = GroupCommit("the disk", disk.commit, tasks=disk.tasks)
        disk.go.clear()
        writes = [disk.write(group, "a")]
        await turns()
        writes += [disk.write(group, name) for name in "bcd"]
        await turns()
        assert disk.groups == ["a"]
        disk.go.set()
        assert await asyncio.gather(*writes) == ["A", "B", "C", "D"]
        assert disk.groups == ["a", "bcd"]

    run(test)


def test_one_who_has_just_been_answered_writes_again() -> None:
    """Also in the very turn in which the last commit ended: nobody waits for a worker that is about to go."""

    async def test(disk: Disk) -> None:
        group = GroupCommit("the disk", disk.commit, tasks=disk.tasks)
        for pauses in range(5):
            future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            assert await group.submit(Named(future, "a")) == "A"
            for _ in range(pauses):
                await asyncio.sleep(0)

    run(test)


def test_only_those_go_together_that_fit() -> None:
    async def test(disk: Disk) -> None:
        def fits(group: Sequence[Named], write: Named) -> bool:
            return write.name == group[0].name and len(group) < 3

        group = GroupCommit("the disk", disk.commit, tasks=disk.tasks, fits=fits)
        await asyncio.gather(*(disk.write(group, name) for name in "aaaabba"))
        assert disk.groups == ["aaa", "a", "bb", "a"]

    run(test)


def test_another_commit_begins_beside_the_first_when_it_is_worth_it() -> None:
    async def test(disk: Disk) -> None:
        group = GroupCommit("the disk", disk.commit, tasks=disk.tasks, at_once=2, worth_another=3)
        disk.go.clear()
        writes = [disk.write(group, "a")]
        await turns()
        writes += [disk.write(group, name) for name in "bc"]
        await turns()
        assert disk.groups == ["a"]
        writes.append(disk.write(group, "d"))
        await turns()
        writes += [disk.write(group, name) for name in "efgh"]
        await turns()
        assert disk.groups == ["a", "bcd"], "and no third one beside those"
        disk.go.set()
        await asyncio.gather(*writes)
        assert disk.groups == ["a", "bcd", "efgh"]

    run(test)


def test_one_whose_caller_has_gone_away_is_not_written() -> None:
    async def test(disk: Disk) -> None:
        group = GroupCommit("the disk", disk.commit, tasks=disk.tasks)
        disk.go.clear()
        first = disk.write(group, "a")
        await turns()
        gone, stays = disk.write(group, "b"), disk.write(group, "c")
        await turns()
        gone.cancel()
        await turns()
        disk.go.set()
        assert (await first, await stays) == ("A", "C")
        assert disk.groups == ["a", "c"]

    run(test)


@pytest.mark.parametrize(
    ("error", "logged"), [(StoreBrokenError("damaged"), False), (ZeroDivisionError("a bug"), True)]
)
def test_error_of_a_commit_is_told_to_all_of_it_and_ends_nothing(
    error: Exception, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(disk: Disk) -> None:
        group = GroupCommit("the disk", disk.commit, tasks=disk.tasks)
        disk.error = error
        told = await asyncio.gather(*(disk.write(group, name) for name in "ab"), return_exceptions=True)
        assert told == [error, error]
        disk.error = None
        assert await disk.write(group, "c") == "C"

    with caplog.at_level(logging.ERROR):
        run(test)
    assert ("failed unexpectedly" in caplog.text) is logged


@pytest.mark.parametrize("begun", [True, False])
def test_those_who_wait_when_the_store_is_left_are_told_whether_they_may_have_been_written(begun: bool) -> None:
    async def test(disk: Disk) -> None:
        group = GroupCommit("the disk", disk.commit, tasks=disk.tasks)
        disk.go.clear()
        first = disk.write(group, "a")
        if begun:
            await turns()
        else:
            await asyncio.sleep(0)
        second = disk.write(group, "b")
        await asyncio.sleep(0)
        await disk.tasks.close()
        with pytest.raises(StoreUnavailableError, match="may or may not" if begun else "nothing was written"):
            await first
        with pytest.raises(StoreUnavailableError, match="nothing was written"):
            await second

    run(test)


def test_drained_when_all_is_done() -> None:
    async def test(disk: Disk) -> None:
        group = GroupCommit("the disk", disk.commit, tasks=disk.tasks)
        await group.drain()  # nothing to wait for
        disk.go.clear()
        write = disk.write(group, "a")
        await turns()
        draining = asyncio.ensure_future(group.drain())
        await turns()
        assert not draining.done()
        disk.go.set()
        await draining
        assert write.done()

    run(test)
