"""Work whose duration callers can influence, in processes that are killed when it takes too long, one at a time per owner.

Threads cannot be interrupted: two that wait for a pipe, or parse an endless query, would block all of them (S42, S43).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from firesteel.blob.threads import to_the_end
from firesteel.errors import FiresteelError, RateLimitedError
from firesteel.rest.native.worker import receive, send

MAX_WAITING = 4
"""The number of requests of one owner that may wait for their turn; each holds a body in memory."""
RETRY_SECONDS = 2.0


class TookTooLongError(FiresteelError):
    """The worker was killed, as its work took more time or memory than allowed."""


class Turns:
    """Allows a number of requests at once, one per owner, in the order of their arrival."""

    def __init__(self, places: int, *, waiting: int = MAX_WAITING) -> None:
        self._places = asyncio.Semaphore(places)
        self._waiting = waiting
        self._owners: dict[str, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """Raises RateLimitedError when too many requests of this owner wait already."""
        lock, there = self._owners.get(owner) or (asyncio.Lock(), 0)
        if there > self._waiting:
            raise RateLimitedError(
                f"{there} slow requests of {owner} are running or waiting; try again in a moment",
                retry_after=RETRY_SECONDS,
            )
        self._owners[owner] = (lock, there + 1)
        try:
            async with lock, self._places:
                yield
        finally:
            lock, there = self._owners.pop(owner)
            if there > 1:
                self._owners[owner] = (lock, there - 1)


class Workers:
    """Up to `count` processes, which are started on demand and end by themselves when idle."""

    def __init__(self, count: int, name: str, *, cpu: int, seconds: float) -> None:
        """`cpu`, `seconds`: the CPU time and total time that one request may take."""
        self._turns = Turns(count)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._idle: list[subprocess.Popen[bytes]] = []
        self._busy: set[subprocess.Popen[bytes]] = set()
        self._cpu = cpu
        self._seconds = seconds
        self._closed = threading.Event()
        self.close = weakref.finalize(self, _close, self._closed, self._threads, self._idle, self._busy)
        """Kill all workers, including busy ones."""

    async def run(self, owner: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a worker. A cancelled caller keeps its place until the work is over.

        Raises:
            TookTooLongError: The work exceeded its limits.
            RateLimitedError: The owner has too many requests.
        """
        message = {**request, "cpu": self._cpu}
        async with self._turns.turn(owner):
            loop = asyncio.get_running_loop()
            return await to_the_end(loop.run_in_executor(self._threads, self._ask, message))

    def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        while True:
            used = bool(self._idle)
            worker = self._idle.pop() if used else _start()
            self._busy.add(worker)
            found = None
            try:
                found = None if self._closed.is_set() else _exchange(worker, message, self._seconds)
            finally:
                self._busy.discard(worker)
                if found is not None and not self._closed.is_set():
                    self._idle.append(worker)
                else:
                    code = _end(worker)
            if found is not None:
                return found
            if not used or code != 0:  # else it had just ended because it was idle
                raise TookTooLongError(
                    f"it took more than {self._cpu} s of CPU, {self._seconds:g} s, or too much memory"
                )


def _close(
    closed: threading.Event,
    threads: ThreadPoolExecutor,
    idle: list[subprocess.Popen[bytes]],
    busy: set[subprocess.Popen[bytes]],
) -> None:
    closed.set()
    threads.shutdown(wait=False, cancel_futures=True)
    for worker in list(busy):
        worker.kill()
    while idle:
        _end(idle.pop())


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "firesteel.rest.native.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={k: v for k, v in os.environ.items() if not k.startswith(("FIRESTEEL_", "SPARK_", "PYSPARK_"))},
        cwd="/",
        start_new_session=True,
    )


def _exchange(worker: subprocess.Popen[bytes], message: Mapping[str, Any], seconds: float) -> dict[str, Any] | None:
    """The answer; None when the worker ended, or was killed because of the timeout."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    timer = threading.Timer(seconds, worker.kill)
    timer.start()
    try:
        send(worker.stdin, message)
        found = receive(worker.stdout)
    except BrokenPipeError:
        return None
    finally:
        timer.cancel()
    return found if isinstance(found, dict) else None


def _end(worker: subprocess.Popen[bytes]) -> int:
    """The exit code of a worker, which is killed if it does not end when its input is closed."""
    for pipe in (worker.stdin, worker.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
    try:
        return worker.wait(1)
    except subprocess.TimeoutExpired:
        worker.kill()
        return worker.wait()
