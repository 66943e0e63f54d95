"""Following the leader: who leads now, for nodes and clients that do not."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from firesteel.errors import StoreError
from firesteel.ha.protocols import LeaderElectionDriver, LeaderInformation

logger = logging.getLogger(__name__)

HURRY_SECONDS = 5.0
HURRY_INTERVAL = 0.1


@runtime_checkable
class TellsOfChanges(Protocol):
    """What a driver may offer beyond its protocol, so that nobody has to wait until he asks again."""

    async def wait_for_change(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        """Returns once there may be another answer than `leader` last gave, at the latest after `timeout` seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Absence:
    """That nobody is known who could be asked, and why, as far as one node can tell."""

    reason: str
    since: float
    """Seconds since 1970."""
    last_leader: LeaderInformation | None
    """Who led before, as far as is known; it may lead still."""


class LeaderRetrieval:
    """Asks a driver again and again who leads. The driver need not contend itself.

    A store that fails does not end it: what is known stays known, for it may well be still true, until a new answer comes.
    """

    def __init__(self, driver: LeaderElectionDriver, *, interval: float = 0.5) -> None:
        self._driver = driver
        self._interval = interval
        self._current: LeaderInformation | None = None
        self._error: Exception | None = None
        self._led: LeaderInformation | None = None
        """The last that had published its address."""
        self._since = time.time()
        """When it was last known who leads, while it is not."""
        self._changed = asyncio.Event()
        """Set and replaced with each answer that is not the one before."""
        self._asked = asyncio.Event()
        """Set and replaced with each answer, so that all who wait look again."""
        self._task: asyncio.Task[None] | None = None

    @property
    def current(self) -> LeaderInformation | None:
        """The leader at the last answer; its address may be empty still."""
        return self._current

    @property
    def absence(self) -> Absence | None:
        """None while a leader is known, and the store that knows it answers."""
        if self._error is not None:
            return Absence(f"the store that knows who leads cannot be read: {self._error}", self._since, self._led)
        if self._current is None:
            return Absence("no node leads", self._since, self._led)
        if not self._current.address:
            return Absence(f"the leader of epoch {self._current.epoch} is recovering", self._since, self._led)
        return None

    async def changed(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        """Returns when there is another answer than now, at the latest after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            pass

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
                self._learned(await self._driver.leader(), None)
            except StoreError as error:
                if self._error is None:
                    logger.warning("who leads could not be read, and is asked again: %s", error)
                self._learned(self._current, error)
            self._asked.set()
            self._asked = asyncio.Event()
            pause = self._pause()
            if isinstance(self._driver, TellsOfChanges):
                await self._driver.wait_for_change(pause)
            else:
                await asyncio.sleep(pause)

    def _learned(self, current: LeaderInformation | None, error: Exception | None) -> None:
        changed = current != self._current or (error is None) != (self._error is None)
        known = self.absence is None
        self._current, self._error = current, error
        if current is not None and current.address:
            self._led = current
        if known:
            self._since = time.time()
        if changed:
            self._changed.set()
            self._changed = asyncio.Event()

    def _pause(self) -> float:
        """While leadership changes hands somebody waits for the answer; not for long, though, if it takes long."""
        changing = self._error is None and not (self._current and self._current.address)
        if changing and 0 <= time.time() - self._since < HURRY_SECONDS:
            return min(self._interval, HURRY_INTERVAL)
        return self._interval
