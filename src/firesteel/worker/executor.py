"""The `AttemptExecutor` of this host: everything that waits for attempts, on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from firesteel.attempts import checkpoints
from firesteel.attempts.attempt import AttemptDirectory, AttemptResult, AttemptState
from firesteel.attempts.bell import Bell
from firesteel.attempts.claim import NOT_MINE, holder
from firesteel.attempts.events import ProgressTail
from firesteel.attempts.harvest_budget import forget_old_books
from firesteel.attempts.lifecycle import call_off, is_over, spec_of
from firesteel.concurrency import Backoff, OwnedTasks
from firesteel.config import Configuration
from firesteel.errors import FiresteelError, SavepointError
from firesteel.fs.files import private_dir
from firesteel.hosts import Whereabouts, this_host
from firesteel.jobmaster.artifacts import JobFiles
from firesteel.jobmaster.executor import Deployment, Presence
from firesteel.layout import attempts_of
from firesteel.process_watch import ended
from firesteel.processes import ProcessIdentity
from firesteel.savepoint.manifest import SavepointRequest
from firesteel.types import AttemptId, Guard, JobID
from firesteel.worker import settling
from firesteel.worker.endings import kill
from firesteel.worker.errands import Errands, ErrandTookTooLongError
from firesteel.worker.launcher import AttemptLauncher
from firesteel.worker.pool import DriverExit, DriverPool, DriverProcess
from firesteel.worker.processes import AttemptProcesses
from firesteel.worker.settling import AttemptSettling
from firesteel.worker.together import Together

T = TypeVar("T")
logger = logging.getLogger(__name__)

THREADS = 16
"""For files, forks and helpers; a running attempt needs none of them."""
FIND_SECONDS = 0.5
CANCEL_SECONDS = 6.0
"""The longest grace after a cancel: what follows must be over ten seconds after the cancel was asked for."""
DRIVER_TIDY_SECONDS = 15.0
"""How long a driver that has written its result may take to be gone; it ends itself before that."""
LOOK_SECONDS = 60.0
"""The time limit for looking at the location of a savepoint."""
LET_GO_POLL_SECONDS = 1.0
LET_GO_POLLS_A_SECOND = 50
"""The most checks of drivers of earlier leaders at a time, however many there are."""
POLL_SECONDS = 0.05


class LocalAttemptExecutor:
    """Implements `AttemptExecutor`. `close` lets go of all attempts; their drivers run on."""

    def __init__(
        self,
        configuration: Configuration,
        root: Path,
        pool: DriverPool | None = None,
        files: JobFiles | None = None,
    ) -> None:
        """`pool` is lent; without one, it is made when the first driver is needed (or by `warm_up`).

        `files` has what jobs have uploaded; without it, jobs name files of this machine only.
        """
        self._files = files
        self._configuration = configuration
        whereabouts = Whereabouts(this_host())
        self._processes = AttemptProcesses(configuration, root, pool)
        self._launcher = AttemptLauncher(configuration, self._processes, whereabouts.here)
        self._settling = AttemptSettling(self._processes, whereabouts, start_timeout=configuration.driver.start_timeout)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="attempts")
        # Apart, so that starts which hang, or a slow object store, never keep a cancel waiting (I10).
        self._urgent = ThreadPoolExecutor(THREADS, thread_name_prefix="attempt-ends")
        self.errands = Errands(configuration, self._processes)
        self._patience = configuration.checkpointing.timeout
        self._together = Together(self._threads)
        self._starting: dict[AttemptId, asyncio.Future[None]] = {}
        self._bell = Bell(self._processes.root, self._heard)
        self._awaited: dict[AttemptId, asyncio.Event] = {}
        """Attempts with a waiting caller; set when the driver rings."""
        self._tidying: dict[AttemptId, asyncio.Task[None]] = {}
        """Drivers whose result is known and that still have to tidy up."""
        self._seen_off: set[AttemptId] = set()
        """Attempts that are tidied, until they are forgotten."""
        self._tasks = OwnedTasks("attempts", self._tidying_failed)
        self._views: dict[AttemptId, ProgressTail] = {}

    async def open(self) -> None:
        """Begin to listen to drivers. Without it their ends are noticed by the end of their processes only."""
        await self._run(private_dir, self._processes.root)
        await self._run(forget_old_books, self._processes.root)
        await self._run(self.errands.forget_old_answers)
        self._bell.open()

    async def warm_up(self) -> None:
        """Start the parent of all drivers now rather than with the first attempt."""
        await self._run(self._processes.pool)

    async def close(self) -> None:
        self._bell.close()
        await self._tasks.close()
        await self._run(self._processes.let_go)
        self._threads.shutdown(wait=False)
        self._urgent.shutdown(wait=False)
        self.errands.close()

    def place(self, attempt: AttemptId, worker: str) -> None:
        """See AttemptExecutor. Everything here is on this host."""

    # -- starting -------------------------------------------------------------------------------------------------

    async def start(self, deployment: Deployment) -> None:
        """See AttemptExecutor."""
        starting = self._starting.get(deployment.attempt)
        if starting is None:
            starting = asyncio.ensure_future(self._localize_and_start(deployment))
            self._starting[deployment.attempt] = starting
            starting.add_done_callback(partial(self._started, deployment.attempt))
        await asyncio.shield(starting)

    def _started(self, attempt: AttemptId, starting: asyncio.Future[None]) -> None:
        del self._starting[attempt]
        if not starting.cancelled():
            starting.exception()  # retrieved here, in case no caller waits for it any more

    async def _localize_and_start(self, deployment: Deployment) -> None:
        if self._files is not None:
            graph = await self._files.localized(deployment.attempt.job_id, deployment.graph)
            deployment = replace(deployment, graph=graph)
        # Listened for from before there is a driver that could ring.
        self._awaited[deployment.attempt] = asyncio.Event()
        await self._run(self._launcher.launch, deployment)

    # -- finding and waiting --------------------------------------------------------------------------------------

    async def find(self, attempt: AttemptId) -> Presence:
        """See AttemptExecutor. An attempt that was called off, or whose driver died without a result, is RUNNING: `wait`
        gives it its result."""
        directory = self._processes.directory(attempt)
        deadline = time.monotonic() + FIND_SECONDS
        while True:
            presence = await self._together.run(partial(_presence, directory))
            if presence is not None:
                return presence
            if time.monotonic() > deadline:
                return Presence.ABSENT
            # A leader has written the spec. If there is a driver, it takes the attempt in a moment.
            await asyncio.sleep(POLL_SECONDS)

    async def wait(self, attempt: AttemptId) -> AttemptResult:
        """See AttemptExecutor. While an engine that may still work for the attempt does not answer, this goes on."""
        directory = self._processes.directory(attempt)
        delays = Backoff(0.2, 5.0).delays()
        deadline = time.monotonic() + settling.CLAIM_SECONDS
        while True:
            child = self._processes.drivers.get(attempt)
            driver = child.process if child else await self._together.run(partial(self._processes.driver, attempt))
            if driver is None and time.monotonic() < deadline and not await self._run(is_over, directory):
                await asyncio.sleep(POLL_SECONDS)
                continue
            if driver is not None and (told := await self._told(attempt, driver)) is not None:
                self._tidying[attempt] = self._tasks.start(self._tidy(attempt, driver), "tidy")
                return told
            ending = await _exit_of(child) if child else None
            if ending is not None and ending.status == NOT_MINE:
                # The attempt is another driver's, or over, or called off.
                await self._run(self._processes.dismiss, attempt, child)
                continue
            try:
                result = await self._run(self._settling.settle, attempt, ending)
            except (FiresteelError, OSError) as error:
                logger.warning("attempt %s has ended, but some of its work has not: %s", attempt, error)
                result = None
            if result is not None:
                return result
            await asyncio.sleep(next(delays))

    async def _told(self, attempt: AttemptId, driver: ProcessIdentity) -> AttemptResult | None:
        """The result of an attempt that FINISHED, as soon as its driver has written it; None once the driver is done.

        What a driver does after that only tells more about the job. Other results wait for its end: there may be work on
        the engine that has to be ended first.
        """
        told = self._awaited.get(attempt)
        if told is None:
            told = self._awaited[attempt] = asyncio.Event()
            told.set()  # it may have rung before we listened
        gone = asyncio.ensure_future(self._done(attempt, driver))
        try:
            while not gone.done():
                rung = asyncio.ensure_future(told.wait())
                try:
                    await asyncio.wait([gone, rung], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    rung.cancel()
                if told.is_set() and not gone.done():
                    told.clear()
                    result = await self._together.run(self._processes.directory(attempt).read_result)
                    if result is not None and result.state is AttemptState.FINISHED:
                        return result
            return None
        finally:
            gone.cancel()
            self._awaited.pop(attempt, None)

    async def _done(self, attempt: AttemptId, driver: ProcessIdentity) -> None:
        """Return once `driver` has ended, or is done with the attempt."""
        child = self._processes.drivers.get(attempt)
        gone: asyncio.Future[Any] = asyncio.ensure_future(ended(driver))
        told: asyncio.Future[Any] | None = None
        if child is not None and child.process == driver:
            # Shielded: cancelling the wrapper would cancel the pool's own future.
            told = asyncio.ensure_future(asyncio.shield(asyncio.wrap_future(child.exited)))
        try:
            while not gone.done():
                # One that another leader has started tells us nothing when it goes on to the next attempt.
                waiting = [gone, told] if told else [gone]
                patience = None if told else max(LET_GO_POLL_SECONDS, len(self._awaited) / LET_GO_POLLS_A_SECOND)
                await asyncio.wait(waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if told is not None and told.done():
                    return
                if told is None and await self._together.run(partial(self._processes.driver, attempt)) != driver:
                    return
        finally:
            gone.cancel()
            if told is not None:
                told.cancel()

    def _heard(self, attempt: AttemptId) -> None:
        if (awaited := self._awaited.get(attempt)) is not None:
            awaited.set()

    async def _tidy(self, attempt: AttemptId, driver: ProcessIdentity) -> None:
        """Wait until a driver whose result is known has ended."""
        try:
            try:
                await self._see_off(attempt, driver)
                if await self._run(self._settling.settle, attempt) is not None:
                    self._seen_off.add(attempt)
            except (FiresteelError, OSError) as error:
                logger.warning("attempt %s has finished, but its driver is not gone yet: %s", attempt, error)
            # Off the loop, as it may have to end a JVM; and not when this is cancelled, as then all that runs goes on.
            await self._run(self._processes.dismiss, attempt, self._processes.drivers.get(attempt))
        finally:
            self._tidying.pop(attempt, None)

    async def _see_off(self, attempt: AttemptId, driver: ProcessIdentity) -> None:
        """Its result is final; what it does after that must not take for ever."""
        try:
            async with asyncio.timeout(DRIVER_TIDY_SECONDS):
                await self._done(attempt, driver)
        except TimeoutError:
            await self._run_urgently(self._processes.end_drivers, attempt)

    def _tidying_failed(self, error: BaseException) -> None:
        logger.error("waiting for the end of a driver failed: %s", error, exc_info=error)

    async def tidied(self, attempt: AttemptId) -> None:
        """See AttemptExecutor."""
        if (tidying := self._tidying.get(attempt)) is not None:
            await asyncio.wait([tidying])
            return
        if attempt in self._seen_off:
            return
        # An earlier leader may have told of the end and died before the driver was gone.
        directory = self._processes.directory(attempt)
        driver = await self._run(lambda: self._processes.driver(attempt) if directory.has_result else None)
        if driver is not None and await self._run(lambda: driver.alive):
            await self._see_off(attempt, driver)

    # -- ending ---------------------------------------------------------------------------------------------------

    async def cancel(self, attempt: AttemptId, *, guard: Guard) -> None:
        """See AttemptExecutor. Over within ten seconds. When the engine does not answer, `fence` will say so."""
        directory = self._processes.directory(attempt)
        await self._run_urgently(self._settling.check_is_here, attempt)
        if not await self._run_urgently(call_off, directory, guard):
            return
        deadline = time.monotonic() + CANCEL_SECONDS
        grace = min(self._configuration.driver.cancel_timeout, CANCEL_SECONDS)
        # A helper may be needed at the end, when there is no time to wait for its parent to start.
        warming = asyncio.ensure_future(self._run(self._processes.pool))
        warming.add_done_callback(lambda done: done.cancelled() or done.exception())
        while True:
            for driver, group in await self._run_urgently(self._processes.bound, attempt):
                driver.signal(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(grace):
                        await ended(driver)
                await self._run_urgently(kill, driver, group)
            try:
                if await self._run_urgently(self._settling.settle, attempt) is not None:
                    return
            except (FiresteelError, OSError) as error:
                logger.warning("attempt %s is cancelled, but some of its work has not ended: %s", attempt, error)
                return
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def stop(self, attempt: AttemptId) -> None:
        """See AttemptExecutor."""
        await self._run_urgently(self._stop, attempt)

    def _stop(self, attempt: AttemptId) -> None:
        directory = self._processes.directory(attempt)
        if directory.has_result:
            return
        private_dir(directory.root)
        directory.stop_request.touch(mode=0o600)
        for driver in self._processes.at_work(attempt):
            driver.signal(signal.SIGUSR1)

    async def fence(self, attempt: AttemptId, *, guard: Guard, unreachable: bool = False) -> AttemptResult:
        """See AttemptExecutor."""
        return await self._run_urgently(lambda: self._settling.fence(attempt, guard, unreachable=unreachable))

    # -- looking --------------------------------------------------------------------------------------------------

    async def checkpoint(self, attempt: AttemptId) -> dict[str, int]:
        """See AttemptExecutor. -1 for a sink that has committed nothing yet.

        Raises FiresteelError when the attempt ends before that, or its checkpoints cannot be read from here.
        """
        directory = self._processes.directory(attempt)
        spec = await self._run(spec_of, directory)
        locations = {sink.name: checkpoints.checkpoint_location(sink, spec) for sink in spec.graph.sinks}
        args = {"name": str(attempt), "checkpoints": locations, **await self._run(_who, directory)}
        try:
            batches: dict[str, int] = await self.errands.run(
                spec.owner, "checkpoint", args, seconds=self._patience, shown=(directory.root,)
            )
        except ErrandTookTooLongError as error:
            raise FiresteelError(
                f"the current batch of attempt {attempt} was not committed within {self._patience:g} s, or its "
                "checkpoints cannot be read: check the job, or raise execution.checkpointing.timeout"
            ) from error
        return batches

    async def prepare_savepoint(self, location: str, request: SavepointRequest, *, owner: str = "") -> None:
        """See AttemptExecutor."""
        await self._at(location, owner, "prepare", request=request.to_bytes().decode(), seconds=LOOK_SECONDS)

    async def savepoint(
        self, location: str, attempt: AttemptId | None, *, stopped: bool = False, owner: str = ""
    ) -> dict[str, int]:
        """See AttemptExecutor. The driver is not asked: what it has committed is in its checkpoints."""
        batches: dict[str, int]
        if attempt is None and not stopped:
            batches = await self._at(location, owner, "batches", seconds=LOOK_SECONDS)
            return batches
        directory = self._processes.directory(attempt) if attempt is not None else None
        shown = (directory.root,) if directory is not None else ()
        batches = await self._at(location, owner, "take", shown=shown, **await self._run(_who, directory))
        return batches

    async def savepoint_sizes(self, location: str, *, owner: str = "") -> dict[str, int]:
        """See AttemptExecutor."""
        sizes: dict[str, int] = await self._at(location, owner, "sizes", seconds=LOOK_SECONDS)
        return sizes

    async def abandon_savepoint(self, location: str, *, owner: str = "") -> None:
        """See AttemptExecutor."""
        await self._at(location, owner, "abandon", seconds=LOOK_SECONDS)

    async def dispose_savepoint(self, location: str, *, owner: str = "", resumed: bool = False) -> None:
        """See AttemptExecutor."""
        await self._at(location, owner, "dispose", resumed=resumed)

    async def _at(
        self,
        location: str,
        owner: str,
        work: str,
        *,
        seconds: float | None = None,
        shown: tuple[Path, ...] = (),
        **args: Any,
    ) -> Any:
        """The result of `work` at `location`, the place of a savepoint."""
        patience = min(seconds, self._patience) if seconds is not None else self._patience
        try:
            return await self.errands.run(owner, work, {"location": location, **args}, seconds=patience, shown=shown)
        except ErrandTookTooLongError as error:
            raise SavepointError(
                f"the savepoint {location} was not done within {patience:g} s: check that its file system responds and "
                "that it contains no pipes, or raise execution.checkpointing.timeout"
            ) from error

    async def progress(self, attempt: AttemptId) -> dict[str, Any]:
        """See AttemptExecutor; `query_runs` has the run id of each streaming query by sink."""
        directory = self._processes.directory(attempt)
        view = self._views.setdefault(attempt, ProgressTail(directory.events))
        over, found = await self._run(_look, directory, view)
        if over:
            self._views.pop(attempt, None)
        return found

    async def attempts(self, job_id: JobID) -> list[int]:
        """See AttemptExecutor."""

        def numbers() -> list[int]:
            directory = attempts_of(self._processes.root, job_id)
            return sorted(int(d.name) for d in directory.iterdir() if d.name.isdecimal()) if directory.is_dir() else []

        return await self._run(numbers)

    async def prune(self, job_id: JobID, keep: int) -> None:
        """See AttemptExecutor."""

        def remove() -> None:
            root = attempts_of(self._processes.root, job_id)
            numbers = sorted(int(d.name) for d in root.iterdir() if d.name.isdecimal()) if root.is_dir() else []
            for number in numbers[:-keep]:
                directory = self._processes.directory(AttemptId(job_id, number))
                if directory.has_result:
                    shutil.rmtree(directory.root, ignore_errors=True)

        await self._run(remove)

    async def forget(self, attempt: AttemptId, *, guard: Guard) -> None:
        """See AttemptExecutor."""
        await self.tidied(attempt)
        self._views.pop(attempt, None)
        self._awaited.pop(attempt, None)
        self._seen_off.discard(attempt)
        await self._run(self._settling.forget, attempt, guard)
        self._processes.forked.pop(attempt, None)

    # -- small things ---------------------------------------------------------------------------------------------

    async def _run_urgently(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._urgent, partial(function, *args))

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        """Run `work` off the event loop. It is completed even when the waiting caller is cancelled."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *args))


def _who(directory: AttemptDirectory | None) -> dict[str, Any]:
    """Arguments of an errand: the attempt that it is about, and the process that has it."""
    driver = directory.read_driver() if directory is not None else None
    return {
        "attempt": str(directory.root) if directory is not None else "",
        "driver": [driver.pid, driver.started] if driver is not None else None,
    }


def _look(directory: AttemptDirectory, view: ProgressTail) -> tuple[bool, dict[str, Any]]:
    """Whether the attempt has its result, and how far it is."""
    over = directory.has_result
    found = view.look()
    return over, (found | _measured(directory) if over else found)


def _measured(directory: AttemptDirectory) -> dict[str, Any]:
    """What was counted in an attempt that has its result: exact rows where the graph asked for them, else Spark's own."""
    result, operators = directory.read_result(), directory.read_operators()
    rows = dict(operators.get("rows", {})) | dict(result.rows if result else {})
    return {"rows": rows, "operators": operators.get("sinks", {})}


def _presence(directory: AttemptDirectory) -> Presence | None:
    """The presence of an attempt; None when it must be checked again: there is a spec, and no sign of a driver."""
    if directory.has_result:
        return Presence.ENDED
    if directory.driver.exists() or directory.cancel_request.exists() or holder(directory.root) is not None:
        return Presence.RUNNING
    return None if directory.spec.exists() else Presence.ABSENT


async def _exit_of(child: DriverProcess) -> DriverExit:
    """How a child of our zygote ended. It is told a moment after the process is gone."""
    try:
        # Shielded: cancelling the wrapper would cancel the pool's own future.
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(child.exited)), 2)
    except TimeoutError:
        return DriverExit(None)
