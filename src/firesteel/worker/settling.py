"""Ends an attempt: once no driver, JVM or session works for it, it gets its result, which is final."""

from __future__ import annotations

import logging
import shutil
import signal
import time
from concurrent.futures import TimeoutError as FutureTimeout

from firesteel.attempts.attempt import AttemptDirectory, AttemptResult, AttemptState
from firesteel.attempts.claim import LOCK, claimed, holder
from firesteel.attempts.lifecycle import call_off
from firesteel.errors import AttemptElsewhereError, EngineLostError, FiresteelError
from firesteel.fs.files import private_dir, tail
from firesteel.hosts import Whereabouts
from firesteel.types import AttemptId, Guard
from firesteel.worker import engine_log
from firesteel.worker.endings import result_of
from firesteel.worker.pool import DriverExit
from firesteel.worker.processes import AttemptProcesses

logger = logging.getLogger(__name__)

CLAIM_POLL_SECONDS = 0.5
CLAIM_SECONDS = 5.0
"""How long a driver may take from its fork until it has taken its attempt, and how long a fence waits for a holder."""
RELEASE_SECONDS = 3.5
LAST_QUIET_SECONDS = 2.0
"""The time limit of the last look for leftovers of an attempt, which no caller waits for (see
spark_connect.leftovers)."""
PATIENT_RELEASE_SECONDS = 10.0
"""How long we wait for the end of a session on a busy engine when nothing may continue before it."""
TIDY_SECONDS = 2.0


class AttemptSettling:
    """Settles attempts. `start_timeout`: of the helper that ends a session, in seconds."""

    def __init__(self, processes: AttemptProcesses, whereabouts: Whereabouts, *, start_timeout: float) -> None:
        self._processes = processes
        self._whereabouts = whereabouts
        self._start_timeout = start_timeout

    def check_is_here(self, attempt: AttemptId) -> None:
        """Refuse a driver of another host: it is not dead just because there is no such process here."""
        directory = self._processes.directory(attempt)
        if directory.has_result:
            return
        if (host := self._whereabouts.elsewhere(directory.host(), seen=True)) is not None:
            raise AttemptElsewhereError(
                f"the attempt in {directory.root} was started on host {host.name} and can only be ended there"
            )

    def settle(
        self,
        attempt: AttemptId,
        ending: DriverExit | None = None,
        *,
        fencing: bool = False,
        unreachable: bool = False,
    ) -> AttemptResult | None:
        """The result of an attempt that has no driver any more; written here if its driver could not.

        None when there is still a driver, or another process is settling it. Raises EngineLostError when the engine
        does not answer: as long as the attempt's session may run, it has no result.
        """
        directory = self._processes.directory(attempt)
        private_dir(directory.root)
        with claimed(directory.root, wait=CLAIM_POLL_SECONDS) as mine:
            if not mine:
                return None
            driver = self._processes.driver(attempt, claimed=True)
            # The second look is for user code that closes all descriptors, and the lock with them.
            if driver is not None and driver.alive:
                return None
            result = directory.read_result()
        # Without the claim: this takes seconds, and a leader that is stopped in the middle of it would keep the next one from
        # the attempt.
        if result is None:
            self.check_is_here(attempt)
        self._processes.end_jvms(attempt, grace=3.0 if result else 0.5)
        if result is None or result.state is not AttemptState.FINISHED:
            try:
                self._release(directory, unreachable=unreachable, patient=fencing)
            except EngineLostError as error:
                # A driver that failed because of its engine may not have been able to end its work there. The result stands;
                # that nothing runs on must be certain before the next attempt.
                if fencing or result is None:
                    raise
                logger.warning("attempt %s has ended, but some of its work has not: %s", attempt, error)
        if result is None:
            with claimed(directory.root, wait=CLAIM_POLL_SECONDS) as mine:
                # Where no driver had been, one may have come; what it has begun is not ended yet.
                if not mine or self._processes.driver(attempt, claimed=True) != driver:
                    return None
                result = directory.read_result()
                if result is None:
                    result = result_of(directory, driver, ending)
                    directory.decide(result)
        engine_log.end(directory, finished=result.state is AttemptState.FINISHED)
        self._processes.dismiss(attempt, self._processes.drivers.get(attempt))
        return result

    def fence(self, attempt: AttemptId, guard: Guard, *, unreachable: bool = False) -> AttemptResult:
        """See AttemptExecutor."""
        directory = self._processes.directory(attempt)
        self.check_is_here(attempt)
        # Before anything that can fail: no driver begins this attempt from here on.
        called_off = call_off(directory, guard)
        deadline = time.monotonic() + CLAIM_SECONDS
        while True:
            # One that has its result is about to go.
            self._processes.end_drivers(attempt, grace=0.0 if called_off else TIDY_SECONDS)
            result = self.settle(attempt, fencing=True, unreachable=unreachable)
            if result is not None:
                return result
            if time.monotonic() > deadline:
                if not called_off and (result := directory.read_result()) is not None:
                    return result
                raise FiresteelError(
                    f"attempt {attempt} is locked by process {holder(directory.root)}, which neither identifies itself "
                    "as its driver nor releases the lock; if that process hangs, end it"
                )

    def forget(self, attempt: AttemptId, guard: Guard) -> None:
        """See AttemptExecutor. The spec goes, and with it the engine's token."""
        directory = self._processes.directory(attempt)
        if not directory.root.is_dir():
            return
        guard()
        if not directory.has_result:
            # What keeps a late driver from running this goes away below; a result takes its place.
            self.fence(attempt, guard)
        elif (result := directory.read_result()) is not None and result.state is not AttemptState.FINISHED:
            # Only the spec knows where its session is, and the spec goes away below.
            self._release(directory, patient=True, last=True)
        self._processes.end_jvms(attempt, grace=3.0)
        shutil.rmtree(self._processes.root / attempt.job_id / "artifacts", ignore_errors=True)
        requests = (directory.stop_request, directory.cancel_request, directory.dismissal)
        marks = (directory.released, directory.released_by_driver, directory.sessions)
        for file in (directory.spec, directory.driver, *marks, *requests):
            file.unlink(missing_ok=True)
        with claimed(directory.root) as mine:
            if mine:
                (directory.root / LOCK).unlink(missing_ok=True)

    def _release(
        self,
        directory: AttemptDirectory,
        *,
        unreachable: bool = False,
        patient: bool = False,
        last: bool = False,
    ) -> None:
        """End what the attempt has on its engine. A driver that did not take the attempt has made no session there."""
        if not directory.driver.exists() or not directory.spec.exists():
            return
        if (directory.released.exists() or directory.released_by_driver.exists()) and not last:
            return
        try:
            engine = directory.read_spec().engine
        except FiresteelError as error:
            # Only the spec knew where the session is. A batch commits nothing without its driver. A streaming query may go
            # on, until its engine ends or Spark stops it for the next attempt, which starts the same query anew.
            logger.error("a session is left to end by itself on an engine that is no longer known: %s", error)
            return
        if engine is None or (engine.process is not None and not engine.process.alive):
            return
        log = directory.root / "release.log"
        helper = self._processes.pool().spawn(
            "release",
            {"directory": str(directory.root), "quiet": LAST_QUIET_SECONDS if last else None},
            stdout=log,
            stderr=log,
            cwd=directory.root,
            timeout=self._start_timeout,
        )
        try:
            patience = PATIENT_RELEASE_SECONDS if patient and not unreachable else RELEASE_SECONDS
            if helper.exited.result(timeout=patience).status == 0:
                directory.released.touch(mode=0o600)
                return
        except FutureTimeout:
            helper.process.signal(signal.SIGKILL)
        if unreachable or (engine.process is not None and not engine.process.alive):
            return
        raise EngineLostError(
            f"engine {engine.engine_id} at {engine.address} does not answer, and may still work for the attempt in "
            f"{directory.root}; end the engine\n{tail(log, lines=3)}"
        )
