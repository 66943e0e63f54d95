"""The parent of all driver processes: it has imported PySpark, and forks.

Importing the Spark Connect client takes most of a second; a fork of a process that has done it takes milliseconds. The
zygote holds no gRPC channel and starts no thread, which is what makes forking it safe. It runs no user code: each child
becomes its own session and process group first, so that it lives on when the zygote or the control plane dies (I8).

Protocol: JSON lines over one socket. Requests `{"id", "spawn": {...}}`, answers `{"id", "pid", "started"}` or
`{"id", "error"}`, and `{"exited": pid, "status", "max_rss_kb"}` whenever a child ended.
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
import traceback
from typing import Any

from firesteel.processes import ProcessIdentity

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
        # A Ctrl-C in the terminal is for the one who talks to us; it decides what happens to whom.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Asks a streaming driver to stop; one that cannot handle it yet, or never will, must not die of it.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        for name in _PREIMPORT:
            importlib.import_module(name)
        # Keeps the collector of every child from touching, and so copying, the pages that they share.
        gc.collect()
        gc.freeze()
        _serve(channel)


def _serve(channel: socket.socket) -> None:
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    selector = selectors.DefaultSelector()
    selector.register(channel, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    _send(channel, {"ready": os.getpid()})
    buffer = b""
    while True:
        for key, _ in selector.select():
            if key.fileobj == wake_read:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
                _reap(channel)
                continue
            data = channel.recv(1 << 16)
            if not data:
                return  # whoever asked for drivers is gone; the drivers are not
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                _handle(channel, json.loads(line), inherited=(wake_read, wake_write))


def _handle(channel: socket.socket, request: dict[str, Any], inherited: tuple[int, int]) -> None:
    try:
        pid = os.fork()
    except OSError as error:
        _send(channel, {"id": request["id"], "error": str(error)})
        return
    if pid == 0:
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            channel.close()
            for fd in inherited:
                os.close(fd)
            code = _become_driver(request["spawn"])
        except BaseException:
            traceback.print_exc()
        finally:
            # No interpreter shutdown: client threads may wait for a server that is gone.
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            os._exit(code)
    identity = ProcessIdentity.of(pid)
    _send(channel, {"id": request["id"], "pid": pid, "started": identity.started if identity else ""})


def _become_driver(spawn: dict[str, Any]) -> int:
    """Make the child a process of its own, point its output to its files, and run its task."""
    os.setsid()
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
    for fd, name in ((1, "stdout"), (2, "stderr")):
        target = os.open(spawn[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(target, fd)
        os.close(target)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    os.chdir(spawn["cwd"])
    os.environ.update(spawn.get("env", {}))
    for name in spawn.get("unset", ()):
        os.environ.pop(name, None)
    tasks = importlib.import_module("firesteel.driver.tasks")
    code: int = tasks.TASKS[spawn["task"]](spawn["args"])
    return code


def _reap(channel: socket.socket) -> None:
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        message = {"exited": pid, "status": os.waitstatus_to_exitcode(status), "max_rss_kb": usage.ru_maxrss}
        with contextlib.suppress(OSError):
            _send(channel, message)


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
