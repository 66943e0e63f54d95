"""What the end of a leadership does to engines: nothing, unless nobody is left who would need or adopt them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from firesteel.dispatcher.leader_process import DispatcherLeaderProcess, LeaderProcessState
from firesteel.ha.protocols import Epoch


@dataclass
class Resources:
    log: list[str] = field(default_factory=list)

    def halt(self) -> None:
        self.log.append("halt")

    async def close(self) -> None:
        self.log.append("close")

    async def end_engines(self) -> None:
        self.log.append("end engines")


class NoWorkers:
    def halt(self) -> None:
        pass

    async def close(self) -> None:
        pass


@dataclass
class Services:
    resources: Resources = field(default_factory=Resources)
    fleet: NoWorkers = field(default_factory=NoWorkers)


@dataclass
class Dispatcher:
    needs_engines: bool

    async def close(self) -> None:
        self.needs_engines = False  # what it knew is forgotten: it has to be asked before


@pytest.mark.parametrize(
    ("state", "unfinished", "alone", "ends"),
    [
        (LeaderProcessState.RUNNING, False, True, True),
        (LeaderProcessState.RUNNING, True, True, False),
        (LeaderProcessState.RUNNING, False, False, False),
        (LeaderProcessState.RUNNING, False, None, False),
        (LeaderProcessState.CREATED, False, True, False),
    ],
    ids=["nothing to do", "a job is left", "another node is here", "leadership goes on elsewhere", "not recovered yet"],
)
def test_engines_are_ended_with_the_last_node_when_no_job_is_left(
    state: LeaderProcessState, unfinished: bool, alone: bool | None, ends: bool
) -> None:
    async def scene() -> list[str]:
        services = Services()

        async def unused(*_: Any) -> Any:
            raise AssertionError

        process = DispatcherLeaderProcess(
            Epoch(1), unused, on_fenced=lambda _: None, on_fatal=lambda _: None, on_shut_down=lambda: None
        )
        process._services = cast("Any", services)
        process._dispatcher = cast("Any", Dispatcher(unfinished))
        process.state = state

        async def told() -> bool:
            assert alone is not None
            return alone

        await process.close(None if alone is None else told)
        return services.resources.log

    assert asyncio.run(scene()) == ["halt", "close", *(["end engines"] if ends else [])]
