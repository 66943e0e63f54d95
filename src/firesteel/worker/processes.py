"""The processes of attempts on this host: which works for which attempt, and the parent that forks them."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path

from firesteel.attempts.attempt import AttemptDirectory
from firesteel.attempts.claim import NOT_MINE, holder
from firesteel.config import Configuration
from firesteel.fs.files import private_dir
from firesteel.layout import attempt_directory
from firesteel.processes import ProcessIdentity, group_of
from firesteel.types import AttemptId
from firesteel.worker.endings import kill
from firesteel.worker.gateway import Gateway, end_jvms
from firesteel.worker.pool import DriverPool, DriverProcess

logger = logging.getLogger(__name__)


class AttemptProcesses:
    """Handles of the processes that were started here. Those started by others are known from attempt directories
    only."""

    def __init__(self, configuration: Configuration, root: Path, lent: DriverPool | None = None) -> None:
        self.root = root.absolute()
        self.python = str(configuration.driver.python or sys.executable)
        self._passed = configuration.driver.environment_pass
        self.drivers: dict[AttemptId, DriverProcess] = {}
        """Until their end was seen."""
        self.forked: dict[AttemptId, ProcessIdentity] = {}
        """Those of them that stayed at one attempt and whose end was seen, until the attempt is forgotten."""
        self.gateways: dict[AttemptId, Gateway] = {}
        self._lent = lent
        self._own: DriverPool | None = None
        self._pool_lock = threading.Lock()

    def directory(self, attempt: AttemptId) -> AttemptDirectory:
        return AttemptDirectory(attempt_directory(self.root, attempt))

    def pool(self) -> DriverPool:
        """The pool that was lent, or our own, which is made now."""
        if self._lent is not None:
            return self._lent
        with self._pool_lock:
            if self._own is None:
                private_dir(self.root)
                self._own = DriverPool(
                    python=self.python, log=self.root / "drivers.log", home=self.root, passed=self._passed
                )
            return self._own

    @property
    def warm(self) -> bool:
        """Whether a driver could be forked without a parent being started first."""
        return self._lent is not None or self._own is not None

    def let_go(self) -> None:
        """Let go of all processes, which keep running."""
        for gateway in list(self.gateways.values()):
            gateway.hand_over()
        with self._pool_lock:
            if self._own is not None:
                self._own.close()
                self._own = None

    def bound(self, attempt: AttemptId) -> list[tuple[ProcessIdentity, list[ProcessIdentity]]]:
        """Each live process that is at the attempt, and will not be at another one after it: they may be ended.

        With each, the processes that it has started. See AttemptDirectory.let_go for why the mark comes first.
        """
        directory = self.directory(attempt)
        if directory.root.is_dir():
            directory.dismissal.touch(mode=0o600)
        return [(d, group_of(d)) for d in self.at_work(attempt)]

    def driver(self, attempt: AttemptId, *, claimed: bool = False) -> ProcessIdentity | None:
        """The process that took the attempt, alive or not; None when none did. `claimed`: the caller holds the claim
        itself.

        One that was forked here is known from its parent, whatever the file says.
        """
        named = self.directory(attempt).read_driver(claimed=claimed)
        return None if named is None else self._forked(attempt) or named

    def _forked(self, attempt: AttemptId) -> ProcessIdentity | None:
        child = self.drivers.get(attempt)
        return child.process if child is not None and _for_life(child) else self.forked.get(attempt)

    def at_work(self, attempt: AttemptId) -> list[ProcessIdentity]:
        """The live processes that are at the attempt: those that signals may go to (S44).

        One that was forked here is known from its parent. Another is named by a file, which code of a job that is not confined
        could have written: the kernel must confirm it by the lock that the process holds. Where the lock is not held, a
        program has closed all its descriptors.
        """
        directory = self.directory(attempt)
        known = set()
        child = self.drivers.get(attempt)
        if child is not None and not child.exited.done() and not (child.reusable and directory.has_result):
            known.add(child.process)  # it may not have taken the attempt yet
        named = directory.read_driver()
        if named is not None and named not in known and named.alive:
            held_by = holder(directory.root)
            if named.pid == held_by or (held_by is None and self._forked(attempt) is None):
                known.add(named)
            else:
                logger.error("%s names process %d, which does not work for the attempt", directory.driver, named.pid)
        return [d for d in known if d.alive]

    def end_drivers(self, attempt: AttemptId, grace: float = 0.0) -> None:
        """End the drivers that are still at an attempt that has its result or was called off."""
        for driver, group in self.bound(attempt):
            driver.wait(grace)
            kill(driver, group)

    def end_jvms(self, attempt: AttemptId, *, grace: float) -> None:
        """End the JVMs of a classic driver that is gone: also those of other leaders, started for this attempt."""
        self.drop_gateway(attempt, grace=grace)
        end_jvms(self.directory(attempt).root, grace=grace)

    def drop_gateway(self, attempt: AttemptId, *, grace: float) -> None:
        gateway = self.gateways.pop(attempt, None)
        if gateway is not None:
            gateway.remove(grace)

    def dismiss(self, attempt: AttemptId, child: DriverProcess | None) -> None:
        """Let go of a driver that has ended, unless another was started meanwhile."""
        if child is not None and self.drivers.get(attempt) is child:
            if _for_life(child):
                self.forked[attempt] = child.process
            del self.drivers[attempt]
            self.drop_gateway(attempt, grace=0)


def _for_life(child: DriverProcess) -> bool:
    """Whether `child` stays at its attempt until it ends, and was not turned away from it."""
    return not child.reusable and not (child.exited.done() and child.exited.result().status == NOT_MINE)
