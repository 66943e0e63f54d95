"""Following the leader: who leads now, for nodes and clients that do not."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, runtime_checkable

from firesteel.errors import StoreError
from firesteel.ha.protocols import LeaderElectionDriver, LeaderInformation

logger = logging.getLogger(__name__)


@runtime_checkable
class TellsOfChanges(Protocol):
    """What a driver may offer beyond its protocol, so that nobody has to wait until he asks again."""

    async def wait_for_change(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        """Returns once there may be another answer than `leader` last gave, at the latest after `timeout` seconds."""
        ...


class LeaderRetrieval:
    """Asks a driver again and again who leads. The driver need not contend itself.

    A store that fails does not end it: what is known stays known, for it may well be still true, until a new answer comes.
    """

    def __init__(self, driver: LeaderElectionDriver, *, interval: float = 0.5) -> None:
        self._driver = driver
        self._interval = interval
        self._current: LeaderInformation | None = None
        self._error: Exception | None = None
        self._asked = asyncio.Event()
        """Set and replaced with each answer, so that all who wait look again."""
        self._task: asyncio.Task[None] | None = None

    @property
    def current(self) -> LeaderInformation | None:
        """The leader at the last answer; its address may be empty still."""
        return self._current

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow(), name="leader-retrieval")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def wait_for_leader(self, timeout: float) -> LeaderInformation:  # noqa: ASYNC109 - it is told in the error
        """The leader, once there is one that has published its address.

        Raises:
            TimeoutError: When there is none in time; says what the store answered last, if that was an error.
        """
        try:
            async with asyncio.timeout(timeout):
                while not (self._current and self._current.address):
                    await self._asked.wait()
                return self._current
        except TimeoutError:
            why = f"; the store said: {self._error}" if self._error else "; look at the logs of the cluster's nodes"
            raise TimeoutError(
                f"no leader of the cluster has published its address within {timeout:g} s{why}"
            ) from None

    async def _follow(self) -> None:
        while True:
            try:
                self._current = await self._driver.leader()
                self._error = None
            except StoreError as error:
                if self._error is None:
                    logger.warning("who leads could not be read, and is asked again: %s", error)
                self._error = error
            self._asked.set()
            self._asked = asyncio.Event()
            if isinstance(self._driver, TellsOfChanges):
                await self._driver.wait_for_change(self._interval)
            else:
                await asyncio.sleep(self._interval)
