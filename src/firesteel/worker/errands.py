"""Opens paths that a caller names in a process of the owner, in the owner's sandbox and with a time limit; never in the
node."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from firesteel.config import Configuration
from firesteel.errors import EnvironmentNotReadyError, FiresteelError, NoSavepointError, SavepointError
from firesteel.fs.files import private_dir, tail
from firesteel.sandbox.rules import Sandbox
from firesteel.worker.pool import DriverProcess
from firesteel.worker.processes import AttemptProcesses
from firesteel.worker.sandboxing import sandbox_policy

logger = logging.getLogger(__name__)

AT_ONCE = 16
EACH = 4
"""Errands of one owner at a time: an owner whose file systems hang delays only their own."""
GRACE_SECONDS = 5.0
"""The kernel ends the process in time; this covers one that it cannot end, or whose end went unreported."""
DAY = 86_400.0
_ANSWER_BYTES = 1 << 20


class ErrandTookTooLongError(FiresteelError):
    """The errand took too long and its process was ended."""


class Errands:
    """Runs errands of owners; see `driver.errands` for what they can be."""

    def __init__(self, configuration: Configuration, processes: AttemptProcesses) -> None:
        self._configuration = configuration
        self._processes = processes
        self._answers = processes.root / ".errands"
        self._places = asyncio.Semaphore(AT_ONCE)
        self._owners: dict[str, tuple[asyncio.Semaphore, int]] = {}
        # A fork takes a moment; no thread waits for the errand itself.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="errands")

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    def _sandbox(self, owner: str, work: str, *shown: Path) -> Sandbox | None:
        """The owner's sandbox. None: this owner may open everything, or there is no sandbox."""
        policy = sandbox_policy(self._configuration)
        if policy is None:
            return None
        return policy.disposal(owner) if work == "dispose" else policy.task(owner, *shown)

    async def run(
        self, owner: str, work: str, args: Mapping[str, Any], *, seconds: float, shown: tuple[Path, ...] = ()
    ) -> Any:
        """The result of `work`, run in a process of its own that ends with the node. `shown`: files of the node that it
        reads.

        Raises:
            ErrandTookTooLongError: The process was ended after `seconds`.
            FiresteelError: What went wrong there.
        """
        sandbox = await self._in_thread(partial(self._sandbox, owner, work, *shown))
        policy = sandbox_policy(self._configuration)
        users = policy is not None and policy.users is not None and sandbox is not None
        async with self._turn(owner):
            return await self._run(work, {**args, "users": users}, seconds, sandbox, kept=False)

    async def run_often(self, owner: str, work: str, args: Mapping[str, Any], *, seconds: float) -> Any:
        """As `run`, in a process that goes on to other tasks and is confined where it opens what is named: for what most jobs
        need. Once begun it goes on, also without the node."""
        sandbox = await self._in_thread(partial(self._sandbox, owner, work))
        async with self._turn(owner):
            return await self._run(work, {**args, "confined": sandbox is not None}, seconds, sandbox, kept=True)

    async def _run(
        self, work: str, args: Mapping[str, Any], seconds: float, sandbox: Sandbox | None, *, kept: bool
    ) -> Any:
        answer = self._answers / uuid.uuid4().hex
        errand = {**args, "work": work, "seconds": math.ceil(seconds), "kept": kept}
        process: DriverProcess | None = None
        try:
            process = await self._in_thread(partial(self._start, errand, answer, sandbox))
            try:
                async with asyncio.timeout(math.ceil(seconds) + GRACE_SECONDS):
                    # Shielded: cancelling the wrapper would cancel the pool's own future.
                    status = (await asyncio.shield(asyncio.wrap_future(process.exited))).status
            except TimeoutError:
                status = -signal.SIGALRM
            if status == -signal.SIGALRM:
                raise ErrandTookTooLongError(f"it was ended after {seconds:g} s")
            return result_of(await self._in_thread(partial(_read, answer, status)))
        finally:
            # One that is kept may be at another task by now.
            if process is not None and not kept and not process.exited.done():
                process.process.signal(signal.SIGKILL)
            with contextlib.suppress(RuntimeError):  # closed: the next node to open it removes it
                self._threads.submit(answer.unlink, missing_ok=True)

    def _start(self, errand: Mapping[str, Any], answer: Path, sandbox: Sandbox | None) -> DriverProcess:
        private_dir(self._answers)
        return self._processes.pool().spawn(
            "errand",
            errand,
            stdout=answer,
            stderr=answer,
            cwd=Path("/"),
            reusable=errand["kept"],
            sandbox=sandbox,
            timeout=self._configuration.driver.start_timeout,
        )

    @contextlib.asynccontextmanager
    async def _turn(self, owner: str) -> AsyncIterator[None]:
        share, waiting = self._owners.get(owner) or (asyncio.Semaphore(EACH), 0)
        self._owners[owner] = (share, waiting + 1)
        try:
            async with share, self._places:
                yield
        finally:
            share, waiting = self._owners.pop(owner)
            if waiting > 1:
                self._owners[owner] = (share, waiting - 1)

    async def _in_thread(self, function: partial[Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def forget_old_answers(self) -> None:
        """Remove answers that were left by nodes that died."""
        with contextlib.suppress(OSError):
            for file in self._answers.iterdir():
                if time.time() - file.stat().st_mtime > DAY:
                    file.unlink(missing_ok=True)


def _read(answer: Path, status: int | None) -> dict[str, Any]:
    text = tail(answer, lines=20, limit=_ANSWER_BYTES)
    try:
        answered = json.loads(text.rpartition("\n")[2])
        if status == 0 and isinstance(answered, dict):
            return answered
    except ValueError:
        pass
    ending = f"by signal {-status}" if status is not None and status < 0 else f"with status {status}"
    raise FiresteelError(f"the process ended {ending} and left no answer{os.linesep + text if text else ''}")


def result_of(answer: Mapping[str, Any]) -> Any:
    """The result of an errand. Raises what it raised."""
    if "error" not in answer:
        return answer["result"]
    kinds = (k for k in (SavepointError, NoSavepointError, EnvironmentNotReadyError) if k.__name__ == answer["error"])
    raise next(kinds, FiresteelError)(answer["message"])
