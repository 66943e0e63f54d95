"""Starting, killing and asking nodes from outside: what is written down here no crash of a node can take back."""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class NodeError(Exception):
    """The node answered with an error of its own."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(f"{kind}: {message}")


class NodeGoneError(Exception):
    """The node died, or is not the leader, before it answered."""


class NodeProcess:
    def __init__(self, options: dict[str, str], log: Path) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.node", *(f"{k}={v}" for k, v in options.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=Path(__file__).parents[2],
            env=environment,
        )
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._answers: dict[int, queue.Queue[dict[str, Any] | None]] = {}
        self._gone = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            reply = json.loads(line)
            with self._lock:
                waiting = self._answers.pop(reply["id"], None)
            if waiting is not None:
                waiting.put(reply)
        with self._lock:
            self._gone = True
            left, self._answers = list(self._answers.values()), {}
        for waiting in left:
            waiting.put(None)

    def ask(self, call: str, *, timeout: float = 60.0, **args: Any) -> Any:
        number = next(self._ids)
        answer: queue.Queue[dict[str, Any] | None] = queue.Queue()
        with self._lock:
            if self._gone:
                raise NodeGoneError
            self._answers[number] = answer
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"id": number, "call": call, "args": args}) + "\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise NodeGoneError from error
        try:
            reply = answer.get(timeout=timeout)
        except queue.Empty:
            raise NodeGoneError(f"no answer to {call} in {timeout} s") from None
        if reply is None or "not_leading" in reply:
            raise NodeGoneError
        if "error" in reply:
            raise NodeError(reply["error"], reply["message"])
        return reply["value"]

    def wait_until_leading(self, timeout: float = 60.0) -> float:
        """Seconds until it answered as the leader."""
        began = time.monotonic()
        while True:
            try:
                self.ask("overview", timeout=timeout)
                return time.monotonic() - began
            except NodeGoneError:
                if self.process.poll() is not None or time.monotonic() - began > timeout:
                    raise
                time.sleep(0.02)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._close()

    def end(self) -> int:
        """Close its input, which lets it end as if asked to."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(30)
        self._close()
        return code

    def _close(self) -> None:
        self._reader.join(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
        self._log.close()


def eventually(look: Callable[[], T | None], *, timeout: float, what: str) -> T:
    """The first thing that `look` finds; a node that is away for the moment is asked again."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            if (found := look()) is not None:
                return found
        except NodeGoneError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"after {timeout} s: {what}")
