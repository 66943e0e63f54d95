"""The life of a contender, which is the same for all backends: contend, be granted, lead, be revoked, contend again."""

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
"""After a full or failing disk a leader loses its leadership but not its life: it contends again and leads once it can."""


class Term(Protocol):
    """One leadership, from when it was won until it is lost."""

    @property
    def epoch(self) -> Epoch: ...


T = TypeVar("T", bound=Term)


@dataclass(frozen=True, slots=True)
class Collecting:
    """The regular collection by a leader of orphaned files of large values, which crashes and refused writes leave behind."""

    collect: Callable[[Epoch], Awaitable[int]]
    first: float
    """Seconds until the first collection: a new leader has other things to do."""
    every: float

    async def keep(self, epoch: Epoch) -> None:
        await asyncio.sleep(self.first)
        while True:
            try:
                await self.collect(epoch)
            except StoreError as error:
                logger.warning("orphaned files were not collected: %s", error)
            await asyncio.sleep(self.every)


class Contender(abc.ABC, Generic[T]):
    """A LeaderElectionDriver without the backend's part: how leadership is won, kept and given up.

    Grants and revokes alternate. Leadership that is in doubt is not granted, and a closed contender makes no more calls.

    Args:
        contender: Its name in messages.
        changes: Reports that the answer of `leader` may have changed.
        prepare: Runs before a term is granted, while the term is kept; returns the reason if it cannot be granted.
        collecting: Runs while it leads.
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
        """The mark of the changes at the last call of `leader`."""
        self._prepare = prepare
        self._collecting = collecting
        self._listener: LeaderListener | None = None
        self._term: T | None = None
        """The term that was won last and is not lost; granted, or about to be."""
        self._leading: T | None = None
        """The term that the listener was granted last and that is not revoked."""
        self._lost: asyncio.Future[str] | None = None
        """Why the term is over, once it is."""
        self._resignation = Resignation()
        self._left = False
        self._tasks = OwnedTasks(f"election of {contender}", self._failed)

    # -- what a backend adds ------------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def _contend(self) -> T:
        """Wait for leadership, without contending while a resignation asks for that."""

    @abc.abstractmethod
    async def _keep(self, term: T) -> str:
        """Keep leadership until it is lost or in doubt; returns the reason."""

    @abc.abstractmethod
    def _trusts(self, term: T) -> bool:
        """Whether it is certain, by our own clock, that no other contender leads yet."""

    @abc.abstractmethod
    async def _publish(self, term: T, address: str) -> None:
        """Raises FencingError when the term is over."""

    @abc.abstractmethod
    async def _leader(self) -> LeaderInformation | None: ...

    @abc.abstractmethod
    async def _give_up(self) -> None:
        """Give up leadership, even if this contender does not know that it has it. An unavailable store is not an error."""

    async def _depart(self) -> None:
        """Give up for good."""
        await self._give_up()

    # -- the driver ---------------------------------------------------------------------------------------------------

    async def start(self, listener: LeaderListener) -> None:
        if self._listener is not None:
            raise RuntimeError(f"contender '{self._contender}' is already started")
        self._listener = listener
        self._tasks.start(self._live(listener), "contend")

    def holds(self, epoch: Epoch) -> bool:
        leading = self._leading
        return leading is not None and leading.epoch == epoch and self._trusts(leading)

    async def publish(self, epoch: Epoch, address: str) -> None:
        leading = self._leading
        if leading is None or leading.epoch != epoch:
            raise FencingError(
                f"the address of contender '{self._contender}' was refused: it does not lead as epoch {epoch}"
            )
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
        """Return once `leader` may give another answer than last time, at the latest after `timeout` seconds."""
        await self._changes.after(self._asked, timeout)

    async def resign(self, epoch: Epoch, *, patience: float) -> None:
        if self._leading is not None and self._leading.epoch == epoch:
            await self._resignation.ask(epoch, patience)

    async def close(self) -> None:
        self.lose("it was closed")  # so that nothing is granted from now on
        await self._tasks.close()
        self._leading = None
        self._resignation.drop()
        if self._listener is None or self._left:
            return
        self._left = True
        # Even if we do not think that we lead: a take-over whose answer we did not wait for may have succeeded.
        await self._depart()

    # -- its life -----------------------------------------------------------------------------------------------------

    @property
    def term(self) -> Epoch | None:
        """The epoch that was won last and is not lost, even before it is granted."""
        return self._term.epoch if self._term is not None else None

    def lose(self, why: str) -> None:
        """End the term, even if the contender has not noticed a loss."""
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
            logger.warning("contender '%s' no longer leads as epoch %d: %s", self._contender, term.epoch, why)
            if self._leading is not None:
                self._leading = None
                listener.on_revoke()
            if self._resignation.is_asked:
                await self._give_up()
                self._resignation.carried_out()

    def _grant(self, term: T, listener: LeaderListener) -> None:
        logger.info("contender '%s' leads as epoch %d", self._contender, term.epoch)
        self._leading = term
        listener.on_grant(term.epoch)

    async def _serve(self, term: T, lost: asyncio.Future[str], listener: LeaderListener) -> str:
        """Grant the term and do a leader's regular work until cancelled; returns the reason if the term cannot be granted."""
        if self._prepare is not None:
            if (why := await self._prepare(term)) is not None:
                return why
            if lost.done():
                return lost.result()
            if not self._trusts(term):
                return "its leadership was in doubt before it was ready to lead"
            self._grant(term, listener)
        if self._collecting is not None:
            await self._collecting.keep(term.epoch)
        forever: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await forever

    def _failed(self, error: BaseException) -> None:
        """Report that the contender ended with an error that waiting will not fix."""
        assert self._listener is not None
        self._resignation.drop()
        if self._leading is not None:
            self._leading = None
            self._listener.on_revoke()
        self._listener.on_error(error if isinstance(error, Exception) else RuntimeError(str(error)))


async def first_of(*ways: Awaitable[str]) -> str:
    """The result or error of the first coroutine to end, in argument order if several have; the others are cancelled."""
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        why: str = next(task for task in tasks if task in done).result()
        return why
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
