"""What a worker does for its leader: carries out commands on this host, watches its attempts, and tells how they end.

The truth of an attempt is in its directory, and that of an engine in its own. So a worker that is started again knows what it
has, and its drivers and engines have noticed nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from firesteel.concurrency import OwnedTasks
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.errors import FencingError, FiresteelError
from firesteel.jobmaster.executor import AttemptExecutor
from firesteel.records import from_json
from firesteel.resourcemanager.provider import EngineProvider
from firesteel.rpc.calls import attempt_of, deployment_of, failure_of
from firesteel.rpc.messages import (
    AttemptHeld,
    Command,
    CommandAnswer,
    Registration,
    WorkerInfo,
    WorkerReport,
    has_ended,
    plain,
    raw,
)
from firesteel.types import AttemptId, Guard, JobID, is_job_id
from firesteel.worker.epochs import ObeyedEpochs
from firesteel.worker.held import HeldAttempts

logger = logging.getLogger(__name__)

REMEMBERED_COMMANDS = 4096
"""Commands that were carried out, so that one that is sent again is not carried out again."""
LOOKS_A_SECOND = 50
"""At most so many attempts are asked for their progress in a second."""


class WorkerService:
    """Carries out commands. All methods are for the event loop."""

    def __init__(
        self,
        info: WorkerInfo,
        held: HeldAttempts,
        executor: AttemptExecutor,
        engines: EngineProvider,
        epochs: ObeyedEpochs,
        *,
        on_error: Callable[[BaseException], None],
    ) -> None:
        """The executor and the engines are lent; `held` is what is known of attempts from before this process."""
        self.info = info
        self._held = held
        self._executor = executor
        self._engines = engines
        self._epochs = epochs
        self._tasks = OwnedTasks("worker", on_error)
        self._running: set[tuple[int, int]] = set()
        self._done: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._answers: list[CommandAnswer] = []
        self._ended: dict[AttemptId, AttemptHeld] = {}
        self._watched: dict[AttemptId, asyncio.Task[None]] = {}
        self._progress: dict[AttemptId, bytes] = {}
        """What was told last."""
        self._fresh: dict[str, Any] = {}
        self.news = asyncio.Event()
        """Set when there is something to report at once."""
        self._methods: dict[str, Callable[[Mapping[str, Any], Guard], Awaitable[Any]]] = {
            "start": self._start,
            "find": self._find,
            "watch": self._watch,
            "cancel": self._cancel,
            "stop": self._stop,
            "fence": self._fence,
            "checkpoint": self._checkpoint,
            "savepoint": self._savepoint,
            "tidied": self._tidied,
            "prune": self._prune,
            "forget": self._forget,
            "remove_job": self._remove_job,
            "read_files": self._read_files,
            "start_engine": self._start_engine,
            "adopt_engine": self._adopt_engine,
            "stop_engine": self._stop_engine,
            "engine_health": self._engine_health,
            "last_words": self._last_words,
        }

    # -- life -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Find what an earlier process of this worker left running, and watch it."""
        for held in await asyncio.to_thread(self._held.attempts):
            if not has_ended(held.result):
                self._start_watching(held.attempt)

    async def close(self) -> None:
        """Let go. What runs here runs on."""
        await self._tasks.close()

    async def registration(self) -> Registration:
        """Everything that this worker has."""
        engines = await self._engines.existing()
        attempts, files = await asyncio.gather(
            asyncio.to_thread(self._held.attempts), asyncio.to_thread(self._held.files)
        )
        records = [raw(record.as_json()) for record in engines]
        return Registration(self.info, self._epochs.highest, attempts, files, records)

    # -- reports --------------------------------------------------------------------------------------------------

    def report(self, epoch: int) -> WorkerReport:
        """What has not been told yet. `told` says that it has arrived."""
        self.news.clear()
        progress = dict(self._fresh)
        return WorkerReport(self.info.incarnation, epoch, list(self._answers), list(self._ended.values()), progress)

    def told(self, report: WorkerReport) -> None:
        told = {a.id for a in report.answers}
        self._answers = [a for a in self._answers if a.id not in told]
        for held in report.ended:
            if self._ended.get(held.attempt) == held:
                del self._ended[held.attempt]
        for name, value in report.progress.items():
            if self._fresh.get(name) == value:
                del self._fresh[name]

    async def look(self) -> None:
        """Ask attempts how far they are, as many as there is time for."""
        for attempt in list(self._watched):
            await self._note_progress(attempt)
            await asyncio.sleep(1 / LOOKS_A_SECOND)

    async def _note_progress(self, attempt: AttemptId) -> None:
        try:
            found = raw(await self._executor.progress(attempt))
        except (FiresteelError, OSError) as error:
            logger.debug("the progress of attempt %s cannot be read: %s", attempt, error)
            return
        if self._progress.get(attempt) != bytes(found):
            self._progress[attempt] = bytes(found)
            self._fresh[str(attempt)] = found

    # -- commands -------------------------------------------------------------------------------------------------

    def receive(self, command: Command) -> None:
        """Carry a command out, in a task of its own, unless that has been done or is being done."""
        key = (command.epoch, command.id)
        if key in self._running or key in self._done:
            return
        self._running.add(key)
        self._tasks.start(self._carry_out(command), f"{command.method} {command.id}")

    async def _carry_out(self, command: Command) -> None:
        key = (command.epoch, command.id)
        try:
            answer = CommandAnswer(command.id, raw(await self._perform(command)))
        except (FiresteelError, OSError) as error:
            answer = CommandAnswer(command.id, failure=failure_of(error))
        except Exception as error:
            logger.exception("command %s failed", command.method)
            answer = CommandAnswer(command.id, failure=failure_of(error))
        finally:
            self._running.discard(key)
        self._done[key] = None
        while len(self._done) > REMEMBERED_COMMANDS:
            self._done.popitem(last=False)
        self._answers.append(answer)
        self.news.set()

    async def _perform(self, command: Command) -> Any:
        if command.incarnation != self.info.incarnation:
            raise FencingError(f"the command is for another process of worker {self.info.name}")
        method = self._methods.get(command.method)
        if method is None:
            raise FiresteelError(
                f"worker {self.info.name} ({self.info.version}) knows no command {command.method!r}; its version is another"
            )

        def guard() -> None:
            self._epochs.check(command.epoch)

        guard()
        return await method(plain(command.args), guard)

    # -- attempts -------------------------------------------------------------------------------------------------

    async def _start(self, args: Mapping[str, Any], _guard: Guard) -> None:
        deployment = deployment_of(args)
        await self._executor.start(deployment)
        self._start_watching(deployment.attempt)

    async def _find(self, args: Mapping[str, Any], _guard: Guard) -> str:
        return (await self._executor.find(attempt_of(args))).value

    async def _watch(self, args: Mapping[str, Any], _guard: Guard) -> None:
        self._start_watching(attempt_of(args))

    def _start_watching(self, attempt: AttemptId) -> None:
        if attempt not in self._watched:
            self._watched[attempt] = self._tasks.start(self._see_end(attempt), f"watch {attempt}")

    async def _see_end(self, attempt: AttemptId) -> None:
        try:
            result = await self._executor.wait(attempt)
            await self._note_progress(attempt)
            result = await asyncio.to_thread(self._held.as_told, attempt, result)
            self._ended[attempt] = AttemptHeld(attempt.job_id, attempt.number, raw(result.to_json()))
            self.news.set()
        finally:
            self._watched.pop(attempt, None)

    async def _cancel(self, args: Mapping[str, Any], guard: Guard) -> None:
        await self._executor.cancel(attempt_of(args), guard=guard)

    async def _stop(self, args: Mapping[str, Any], _guard: Guard) -> None:
        await self._executor.stop(attempt_of(args))

    async def _fence(self, args: Mapping[str, Any], guard: Guard) -> dict[str, Any]:
        result = await self._executor.fence(attempt_of(args), guard=guard, unreachable=args["unreachable"])
        return result.to_json()

    async def _checkpoint(self, args: Mapping[str, Any], _guard: Guard) -> dict[str, int]:
        return await self._executor.checkpoint(attempt_of(args))

    async def _savepoint(self, args: Mapping[str, Any], _guard: Guard) -> dict[str, int]:
        return await self._executor.savepoint(
            args["location"], attempt_of(args), stopped=args["stopped"], owner=args["owner"]
        )

    async def _tidied(self, args: Mapping[str, Any], _guard: Guard) -> Mapping[str, Any]:
        attempt = attempt_of(args)
        await self._executor.tidied(attempt)
        return await self._executor.progress(attempt)

    async def _prune(self, args: Mapping[str, Any], _guard: Guard) -> None:
        await self._executor.prune(JobID(args["job"]), args["keep"])

    async def _forget(self, args: Mapping[str, Any], guard: Guard) -> None:
        attempt = attempt_of(args)
        await self._executor.forget(attempt, guard=guard)
        self._progress.pop(attempt, None)
        self._fresh.pop(str(attempt), None)
        self._ended.pop(attempt, None)

    async def _remove_job(self, args: Mapping[str, Any], guard: Guard) -> None:
        if not is_job_id(args["job"]):
            raise FiresteelError(f"{args['job']!r} is not a job id")
        job = JobID(args["job"])
        guard()
        for held in await asyncio.to_thread(self._held.of_job, job):
            await self._executor.forget(held.attempt, guard=guard)
        await asyncio.to_thread(self._held.remove, job)

    async def _read_files(self, args: Mapping[str, Any], _guard: Guard) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self._held.read, attempt_of(args), args["have"])

    # -- engines --------------------------------------------------------------------------------------------------

    async def _start_engine(self, args: Mapping[str, Any], _guard: Guard) -> dict[str, object]:
        record = await self._engines.start(from_json(args["spec"], EngineSpec), self.info.worker)
        return record.as_json()

    async def _adopt_engine(self, args: Mapping[str, Any], _guard: Guard) -> dict[str, object]:
        return (await self._engines.adopt(_engine(args))).as_json()

    async def _stop_engine(self, args: Mapping[str, Any], guard: Guard) -> None:
        await self._engines.stop(_engine(args), guard=guard, force=args["force"])

    async def _engine_health(self, args: Mapping[str, Any], _guard: Guard) -> str:
        return (await self._engines.health(_engine(args))).name

    async def _last_words(self, args: Mapping[str, Any], _guard: Guard) -> str:
        return await self._engines.last_words(_engine(args))

    # -- alone ----------------------------------------------------------------------------------------------------

    async def stop_everything(self, guard: Guard) -> bool:
        """End all drivers and engines of this host, without asking anybody. False: something may still run."""
        held = [h.attempt for h in await asyncio.to_thread(self._held.attempts) if not has_ended(h.result)]
        engines = await self._engines.existing()
        # First the engines: sessions on them need not be released then, which takes time.
        ends = [self._engines.stop(record, guard=guard, force=True) for record in engines if not record.spec.attached]
        for attempt in held:
            await asyncio.to_thread(self._held.isolate, attempt)
        outcomes: list[object] = list(await asyncio.gather(*ends, return_exceptions=True))
        fences = (self._executor.fence(attempt, guard=guard, unreachable=True) for attempt in held)
        outcomes += await asyncio.gather(*fences, return_exceptions=True)
        failed = [o for o in outcomes if isinstance(o, BaseException)]
        for error in failed:
            logger.error("something could not be ended: %s", error)
        return not failed


def _engine(args: Mapping[str, Any]) -> EngineRecord:
    return EngineRecord.from_json(args["record"])
