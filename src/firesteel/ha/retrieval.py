"""Following the current leader, for nodes and clients that do not lead."""

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
    """An optional capability of a driver: it reports changes, so that callers need not poll."""

    async def wait_for_change(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        """Return once `leader` may give another answer than last time, at the latest after `timeout` seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Absence:
    """Why no leader is known, as far as one node can tell."""

    reason: str
    since: float
    """Seconds since 1970."""
    last_leader: LeaderInformation | None
    """The last known leader; it may still lead."""


class LeaderRetrieval:
    """Polls a driver for the current leader. The driver need not contend itself.

    A failing store does not end it: until a new answer comes, the last one is kept, as it may well still be true.
    """

    def __init__(self, driver: LeaderElectionDriver, *, interval: float = 0.5) -> None:
        self._driver = driver
        self._interval = interval
        self._current: LeaderInformation | None = None
        self._error: Exception | None = None
        self._led: LeaderInformation | None = None
        """The last leader that had published its address."""
        self._since = time.time()
        """While no leader is known: when one was known last."""
        self._changed = asyncio.Event()
        """Set and replaced with each answer that differs from the one before."""
        self._asked = asyncio.Event()
        """Set and replaced with each answer, which wakes all waiting calls."""
        self._task: asyncio.Task[None] | None = None

    @property
    def current(self) -> LeaderInformation | None:
        """The leader in the last answer; its address may still be empty."""
        return self._current

    @property
    def absence(self) -> Absence | None:
        """None while a leader is known and the store answers."""
        if self._error is not None:
            return Absence(f"the store cannot be read to find the leader: {self._error}", self._since, self._led)
        if self._current is None:
            return Absence("the cluster has no leader", self._since, self._led)
        if not self._current.address:
            return Absence(f"the leader of epoch {self._current.epoch} is recovering", self._since, self._led)
        return None

    async def changed(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        """Return when the answer differs from the current one, at the latest after `timeout` seconds."""
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
        """Wait for a leader that has published its address, and return it.

        Raises:
            TimeoutError: There was none in time; the message holds the last error of the store, if there was one.
        """
        try:
            async with asyncio.timeout(timeout):
                while not (self._current and self._current.address):
                    await self._asked.wait()
                return self._current
        except TimeoutError:
            why = f"; the store said: {self._error}" if self._error else "; check the logs of the cluster's nodes"
            raise TimeoutError(
                f"no leader of the cluster has published its address within {timeout:g} s{why}"
            ) from None

    async def _follow(self) -> None:
        while True:
            try:
                self._learned(await self._driver.leader(), None)
            except StoreError as error:
                if self._error is None:
                    logger.warning("the current leader could not be read; trying again: %s", error)
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
        """Poll quickly while leadership changes hands, as callers wait for the answer, but slow down if that takes long."""
        changing = self._error is None and not (self._current and self._current.address)
        if changing and 0 <= time.time() - self._since < HURRY_SECONDS:
            return min(self._interval, HURRY_INTERVAL)
        return self._interval
