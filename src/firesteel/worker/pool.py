"""The control plane's side of the zygote: asks for driver processes and learns how they ended."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firesteel.environment import inherited
from firesteel.errors import FiresteelError
from firesteel.processes import ProcessIdentity
from firesteel.sandbox.rules import Sandbox

ORPHAN_POLL_SECONDS = 0.1
MAX_EARLY = 1000


@dataclass(frozen=True, slots=True)
class DriverExit:
    """How a driver process ended."""

    status: int | None
    """Its exit code, or minus the signal that ended it; None when its parent died first, so that it is not known."""
    max_rss_kb: int = 0


@dataclass(slots=True)
class DriverProcess:
    """A process that is at a task. One that was `reusable` may be at another one when `exited` is known."""

    process: ProcessIdentity
    reusable: bool = False
    exited: Future[DriverExit] = field(default_factory=Future)


class DriverPool:
    """Owns one zygote. Closing it ends the zygote, never the drivers."""

    def __init__(
        self,
        *,
        python: str = sys.executable,
        log: Path | None = None,
        home: Path | None = None,
        passed: Iterable[str] = (),
    ) -> None:
        """`home`: the working directory of the zygote. `passed`: variables that drivers get beside the ordinary ones."""
        self._python = python
        self._log = log
        self._home = home
        self._passed = tuple(passed)
        self._lock = threading.Lock()
        self._next_id = 0
        self._answers: dict[int, Future[dict[str, Any]]] = {}
        self._running: dict[int, DriverProcess] = {}
        self._early: dict[int, DriverExit] = {}
        """Ends of tasks that were reported before the answer to the spawn was taken."""
        self._start_zygote()

    def _start_zygote(self) -> None:
        ours, theirs = socket.socketpair()
        stderr = self._log.open("ab") if self._log else subprocess.DEVNULL
        try:
            self._zygote = subprocess.Popen(
                # -P: no module in the current directory gets into every driver (S45).
                [self._python, "-P", "-m", "firesteel.driver.zygote", str(theirs.fileno())],
                cwd=self._home,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                env={
                    **{k: v for k, v in inherited(self._passed).items() if not k.startswith(("SPARK_", "PYSPARK_"))},
                    "SPARK_CONNECT_MODE_ENABLED": "1",
                },
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            if not isinstance(stderr, int):
                stderr.close()
        self._channel = ours
        self._reader = threading.Thread(target=self._read, args=(ours,), name="driver-pool", daemon=True)
        self._reader.start()

    def spawn(
        self,
        task: str,
        args: Mapping[str, Any],
        *,
        stdout: Path,
        stderr: Path,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        unset: tuple[str, ...] = (),
        reusable: bool = False,
        sandbox: Sandbox | None = None,
        timeout: float = 30.0,
    ) -> DriverProcess:
        """Have a driver run `task`. Returns once it exists. A parent that died is replaced first.

        Args:
            reusable: The task runs no code of users and leaves nothing behind, so its process may have done others before
                and may do others after it.
            sandbox: What the process is confined to before it runs the task, for good. One that is reusable confines those of
                its own lines that open what a caller names.
        """
        answer: Future[dict[str, Any]] = Future()
        with self._lock:
            if self._zygote.poll() is not None:
                self._channel.close()
                self._start_zygote()
            self._next_id += 1
            number = self._next_id
            self._answers[number] = answer
        request = {
            "id": number,
            "spawn": {
                "task": task,
                "args": dict(args),
                "stdout": str(stdout),
                "stderr": str(stderr),
                "cwd": str(cwd),
                "env": dict(env or {}),
                "unset": list(unset),
                "reusable": reusable,
                "sandbox": sandbox.to_json() if sandbox else None,
            },
        }
        try:
            with self._lock:
                self._channel.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise FiresteelError(f"the parent process of drivers is gone: {error}") from error
        try:
            found = answer.result(timeout=timeout)
        except FutureTimeout:
            with self._lock:
                self._answers.pop(number, None)
            raise FiresteelError(f"the parent process of drivers did not answer within {timeout:g} s") from None
        if "error" in found:
            raise FiresteelError(f"cannot start a driver process: {found['error']}")
        driver = DriverProcess(ProcessIdentity(found["pid"], found["started"]), reusable)
        with self._lock:
            early = self._early.pop(number, None)
            if early is None:
                self._running[number] = driver
        if early is not None:
            driver.exited.set_result(early)
        return driver

    def close(self) -> None:
        self._channel.close() if self._zygote.poll() is not None else self._channel.shutdown(socket.SHUT_RDWR)
        self._reader.join(timeout=5)
        self._channel.close()
        try:
            self._zygote.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._zygote.kill()
            self._zygote.wait()

    def __enter__(self) -> DriverPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, channel: socket.socket) -> None:
        buffer = b""
        while True:
            try:
                data = channel.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                break
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                self._take(json.loads(line))
        with self._lock:
            waiting, self._answers = list(self._answers.values()), {}
            orphans, self._running = list(self._running.values()), {}
        for answer in waiting:
            answer.set_result({"error": "the parent process of drivers ended"})
        if orphans:
            threading.Thread(target=_watch_orphans, args=(orphans,), name="driver-orphans", daemon=True).start()

    def _take(self, message: dict[str, Any]) -> None:
        if "exited" in message:
            ended = DriverExit(message["status"], message["max_rss_kb"])
            with self._lock:
                driver = self._running.pop(message["exited"], None)
                if driver is None:
                    self._early[message["exited"]] = ended
                    if len(self._early) > MAX_EARLY:  # of spawns that no caller waited for
                        self._early.pop(next(iter(self._early)))
            if driver is not None:
                driver.exited.set_result(ended)
        elif "id" in message:
            with self._lock:
                answer = self._answers.pop(message["id"], None)
            if answer is not None:  # else the caller has stopped waiting
                answer.set_result(message)


def _watch_orphans(drivers: list[DriverProcess]) -> None:
    """Watch drivers that outlived their parent: how they end cannot be known, only when."""
    while drivers:
        gone = [d for d in drivers if not d.process.alive]
        for driver in gone:
            driver.exited.set_result(DriverExit(None))
        drivers = [d for d in drivers if d not in gone]
        time.sleep(ORPHAN_POLL_SECONDS)
