"""The life of a contender, which is the same whatever leadership is made of: contend, be granted, lead, be revoked, again."""

from __future__ import annotations

import abc
import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from firesteel.concurrency import OwnedTasks
from firesteel.errors import FencingError, StoreError, StoreFailingError, StoreUnavailableError
from firesteel.ha.changes import LeadershipChanges
from firesteel.ha.protocols import Epoch, LeaderInformation, LeaderListener
from firesteel.ha.resignation import Resignation

logger = logging.getLogger(__name__)

IN_PASSING = (StoreUnavailableError, StoreFailingError)
"""A disk that is full or fails costs a leader its leadership, not its life: it contends again, and leads when it is well."""


class Term(Protocol):
    """One leadership, from when it was won until it is lost."""

    @property
    def epoch(self) -> Epoch: ...


T = TypeVar("T", bound=Term)


@dataclass(frozen=True, slots=True)
class Collecting:
    """What a leader does now and then: crashes and refused writes leave files of large values that nothing points to."""

    collect: Callable[[Epoch], Awaitable[int]]
    first: float
    """Seconds until the first time: a new leader has other things to do."""
    every: float

    async def keep(self, epoch: Epoch) -> None:
        await asyncio.sleep(self.first)
        while True:
            try:
                await self.collect(epoch)
            except StoreError as error:
                logger.warning("files that nothing points to were not collected: %s", error)
            await asyncio.sleep(self.every)


class Contender(abc.ABC, Generic[T]):
    """A LeaderElectionDriver, but for how leadership is won, kept and given up.

    Grants and revokes alternate. Nothing is granted that is in doubt, and whoever is closed is told nothing any more.

    Args:
        contender: Its name in messages.
        changes: Tells of what `leader` may answer.
        prepare: What has to be done before a term is granted, while it is kept; gives why it cannot be granted.
        collecting: What is done while it leads.
    """

    def __init__(
        self,
        contender: str,
        changes: LeadershipChanges,
        *,
        prepare: Callable[[T], Awaitable[str | None]] | None = None,
        collecting: Collecting | None = None,
    ) -> None:
        self._contender = contender
        self._changes = changes
        self._asked = 0
        """The mark of the changes when `leader` was asked last."""
        self._prepare = prepare
        self._collecting = collecting
        self._listener: LeaderListener | None = None
        self._term: T | None = None
        """What was won last and not yet lost; granted, or about to be."""
        self._leading: T | None = None
        """What the listener was granted last and not yet revoked."""
        self._lost: asyncio.Future[str] | None = None
        """Why the term is over, once somebody has said so."""
        self._resignation = Resignation()
        self._left = False
        self._tasks = OwnedTasks(f"election of {contender}", self._failed)

    # -- what a backend adds ------------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def _contend(self) -> T:
        """Wait for leadership, standing back while a resignation asks for it."""

    @abc.abstractmethod
    async def _keep(self, term: T) -> str:
        """Until leadership is lost, or in doubt; returns why."""

    @abc.abstractmethod
    def _trusts(self, term: T) -> bool:
        """Whether it is certain, by our own clock, that nobody else leads yet."""

    @abc.abstractmethod
    async def _publish(self, term: T, address: str) -> None:
        """Raises FencingError when the term is over."""

    @abc.abstractmethod
    async def _leader(self) -> LeaderInformation | None: ...

    @abc.abstractmethod
    async def _give_up(self) -> None:
        """Give up whatever this contender has, whether it knows of it or not; a store that cannot be told is no error."""

    async def _depart(self) -> None:
        """Give up for good."""
        await self._give_up()

    # -- the driver ---------------------------------------------------------------------------------------------------

    async def start(self, listener: LeaderListener) -> None:
        if self._listener is not None:
            raise RuntimeError(f"contender '{self._contender}' has been started already")
        self._listener = listener
        self._tasks.start(self._live(listener), "contend")

    def holds(self, epoch: Epoch) -> bool:
        leading = self._leading
        return leading is not None and leading.epoch == epoch and self._trusts(leading)

    async def publish(self, epoch: Epoch, address: str) -> None:
        leading = self._leading
        if leading is None or leading.epoch != epoch:
            raise FencingError(f"the address of contender '{self._contender}' was refused: it does not lead as {epoch}")
        try:
            await self._publish(leading, address)
        except FencingError:
            if leading is self._term:
                self.lose("its address was refused")
            raise

    async def leader(self) -> LeaderInformation | None:
        self._asked = self._changes.mark
        return await self._leader()

    async def wait_for_change(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        """Returns once there may be another answer than `leader` last gave, at the latest after `timeout` seconds."""
        await self._changes.after(self._asked, timeout)

    async def resign(self, epoch: Epoch, *, patience: float) -> None:
        if self._leading is not None and self._leading.epoch == epoch:
            await self._resignation.ask(epoch, patience)

    async def close(self) -> None:
        self.lose("it leaves")  # so that nothing is granted on the way out
        await self._tasks.close()
        self._leading = None
        self._resignation.drop()
        if self._listener is None or self._left:
            return
        self._left = True
        # Whatever we believe: a take-over whose answer we did not wait for may have succeeded.
        await self._depart()

    # -- its life -----------------------------------------------------------------------------------------------------

    @property
    def term(self) -> Epoch | None:
        """The epoch that was won last and not yet lost, also before it is granted."""
        return self._term.epoch if self._term is not None else None

    def lose(self, why: str) -> None:
        """The term is over, whatever the contender believes."""
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(why)

    async def _live(self, listener: LeaderListener) -> None:
        while True:
            self._term = term = await self._contend()
            self._lost = lost = asyncio.get_running_loop().create_future()
            if self._prepare is None:
                self._grant(term, listener)
            try:
                why = await first_of(
                    lost, self._keep(term), self._serve(term, lost, listener), self._resignation.asked()
                )
            finally:
                self._term = self._lost = None
            logger.warning("contender '%s' does not lead as %d any more: %s", self._contender, term.epoch, why)
            if self._leading is not None:
                self._leading = None
                listener.on_revoke()
            if self._resignation.is_asked:
                await self._give_up()
                self._resignation.carried_out()

    def _grant(self, term: T, listener: LeaderListener) -> None:
        logger.info("contender '%s' leads as %d", self._contender, term.epoch)
        self._leading = term
        listener.on_grant(term.epoch)

    async def _serve(self, term: T, lost: asyncio.Future[str], listener: LeaderListener) -> str:
        """What a leader does beside keeping its leadership, until it is ended; returns early why it was not granted."""
        if self._prepare is not None:
            if (why := await self._prepare(term)) is not None:
                return why
            if lost.done():
                return lost.result()
            if not self._trusts(term):
                return "it was not ready to lead before that was in doubt"
            self._grant(term, listener)
        if self._collecting is not None:
            await self._collecting.keep(term.epoch)
        forever: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await forever

    def _failed(self, error: BaseException) -> None:
        """Its life ended with an error that waiting will not mend."""
        assert self._listener is not None
        self._resignation.drop()
        if self._leading is not None:
            self._leading = None
            self._listener.on_revoke()
        self._listener.on_error(error if isinstance(error, Exception) else RuntimeError(str(error)))


async def first_of(*ways: Awaitable[str]) -> str:
    """What the first of them to end returns or raises, the earlier one where several have; the others are ended."""
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        why: str = next(task for task in tasks if task in done).result()
        return why
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
