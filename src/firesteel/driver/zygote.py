"""The parent of all driver processes: it has imported PySpark, and forks.

Importing the Spark Connect client takes most of a second; a fork of a process that has done it takes milliseconds. The
zygote holds no gRPC channel and starts no thread, which is what makes forking it safe. It runs no user code: each child
becomes its own session and process group first, so that it lives on when the zygote or the control plane dies (I8).

A child whose task ran no user code and left nothing behind waits for the next task of that kind (see `children`).

Protocol: JSON lines over one socket. Requests `{"id", "spawn": {...}}`, answers `{"id", "pid", "started"}` or
`{"id", "error"}`, and `{"exited": id, "status", "max_rss_kb"}` whenever a task ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from typing import Any

from firesteel.driver.children import Child, Children

_PREIMPORT = (
    "firesteel.driver.tasks",
    "pyspark.sql.connect.session",
    "pyspark.sql.connect.functions",
    "pyspark.sql.connect.readwriter",
    "pyspark.sql.connect.streaming",
    "pyspark.sql.connect.observation",
    "pyspark.sql",
    "pyspark.sql.functions",
    "pyspark.core.context",
    "py4j.java_gateway",
    # Modules that gRPC imports only when the first channel is made: a fifth of a trivial job's time in Python.
    "grpc._channel",
    "grpc._auth",
    "grpc._plugin_wrapping",
)


def main(fd: int) -> None:
    with socket.socket(fileno=fd) as channel:
        # A Ctrl-C in the terminal is for the node that talks to us; it decides what happens to each driver.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Asks a streaming driver to stop; one that cannot handle it yet, or never will, must not die of it.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        for name in _PREIMPORT:
            importlib.import_module(name)
        # Keeps the collector of every child from touching, and so copying, the pages that they share.
        gc.collect()
        gc.freeze()
        _Zygote(channel).serve()


class _Zygote:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._selector = selectors.DefaultSelector()
        self._children = Children((channel.fileno(), self._wake_read, self._wake_write))

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._selector.register(self._channel, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._send({"ready": os.getpid()})
        buffer = b""
        while True:
            for key, _ in self._selector.select(self._children.until_next_dismissal(time.monotonic())):
                if key.fileobj == self._wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, 4096)
                    self._reap()
                elif isinstance(key.data, Child):
                    self._listen(key.data)
                else:
                    data = self._channel.recv(1 << 16)
                    if not data:
                        return  # the node that asked for drivers is gone; drivers keep running, except idle ones
                    buffer += data
                    *lines, buffer = buffer.split(b"\n")
                    for line in lines:
                        self._handle(json.loads(line))
            for child in self._children.dismiss_idle(time.monotonic()):
                self._hang_up(child)

    def _handle(self, request: dict[str, Any]) -> None:
        number, spawn = request["id"], request["spawn"]
        if spawn.get("reusable") and (child := self._children.give(number, spawn)) is not None:
            self._send({"id": number, "pid": child.pid, "started": child.started})
            return
        try:
            child = self._children.fork(number, spawn)
        except OSError as error:
            self._send({"id": number, "error": str(error)})
            return
        if child.line is not None:
            self._selector.register(child.line, selectors.EVENT_READ, child)
        self._send({"id": number, "pid": child.pid, "started": child.started})

    def _listen(self, child: Child) -> None:
        """A child says one thing only: that it has done its task and can do another."""
        assert child.line is not None
        try:
            said = child.line.recv(64)
        except OSError:
            said = b""
        if not said:
            self._hang_up(child)
            self._children.lost_line(child)
            return
        task = self._children.rests(child, time.monotonic())
        if task is not None:
            self._send({"exited": task, "status": 0, "max_rss_kb": 0})

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (child := self._children.ended(pid)) is None:
                continue
            self._hang_up(child)
            if child.task is not None:
                code = os.waitstatus_to_exitcode(status)
                self._send({"exited": child.task, "status": code, "max_rss_kb": usage.ru_maxrss})

    def _hang_up(self, child: Child) -> None:
        if child.line is not None and child.line.fileno() >= 0:
            self._selector.unregister(child.line)
            child.line.close()

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the end of the channel is noticed where it is read
            self._channel.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
