"""The driver processes of one zygote, and those among them that wait for another task.

Two thirds of the processor time of a trivial job's driver go into the pages that a fresh fork has to copy. So a driver that
has done a task without user code, and done it well, is kept: it forgets the task (its files, its lock, its signals), says so,
and gets the next one over a socket. A driver runs one task at a time, and is kept only after success. Idle drivers are
dismissed after a while, and all of them when the zygote ends: their socket closes with it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from firesteel.attempts.claim import NOT_MINE
from firesteel.driver import foreign_files
from firesteel.processes import ProcessIdentity
from firesteel.sandbox import landlock
from firesteel.sandbox.rules import Sandbox

MOST_IDLE = 16
IDLE_SECONDS = 30.0
MOST_TASKS = 200
"""After that many tasks a driver ends, and with it whatever libraries may have leaked with each."""

_READY = b"ready\n"


@dataclass(eq=False)
class Child:
    pid: int
    started: str
    line: socket.socket | None
    """The zygote's end; None for a child that is never kept. User code cannot ask for more work, and so for the secrets
    of the next task."""
    task: int | None
    """Its current task; None while it waits."""
    tasks: int = 1
    idle_since: float = 0.0


class Children:
    def __init__(self, inherited: Iterable[int]) -> None:
        """`inherited`: descriptors of the zygote that no child may keep."""
        self._inherited = tuple(inherited)
        self._by_pid: dict[int, Child] = {}
        self._idle: list[Child] = []
        """Idle children, the one that has waited longest first."""

    def fork(self, task: int, spawn: dict[str, Any]) -> Child:
        """Fork a new child for `task`. Raises OSError when that is impossible."""
        ours, theirs = socket.socketpair() if spawn.get("reusable") else (None, None)
        try:
            pid = os.fork()
        except OSError:
            close(ours)
            close(theirs)
            raise
        if pid == 0:
            for line in (ours, *(c.line for c in self._by_pid.values())):
                close(line)
            _live(theirs, spawn, self._inherited)
        close(theirs)
        identity = ProcessIdentity.of(pid)
        child = Child(pid, identity.started if identity else "", ours, task)
        self._by_pid[pid] = child
        return child

    def give(self, task: int, spawn: dict[str, Any]) -> Child | None:
        """Give the task to one that waits; None when there is none."""
        while self._idle:
            child = self._idle.pop()
            assert child.line is not None
            try:
                child.line.sendall(json.dumps(spawn).encode() + b"\n")
            except OSError:
                continue  # it is gone, which is about to be noticed
            child.task = task
            child.tasks += 1
            return child
        return None

    def rests(self, child: Child, now: float) -> int | None:
        """`child` has done its task, which is returned."""
        task, child.task = child.task, None
        child.idle_since = now
        if child.tasks < MOST_TASKS and len(self._idle) < MOST_IDLE:
            self._idle.append(child)
        else:
            _send_away(child)
        return task

    def lost_line(self, child: Child) -> None:
        """The child ended or closed its socket: it gets no further task."""
        if child in self._idle:
            self._idle.remove(child)

    def ended(self, pid: int) -> Child | None:
        child = self._by_pid.pop(pid, None)
        if child is not None and child in self._idle:
            self._idle.remove(child)
        return child

    def until_next_dismissal(self, now: float) -> float | None:
        return max(0.0, self._idle[0].idle_since + IDLE_SECONDS - now) if self._idle else None

    def dismiss_idle(self, now: float) -> list[Child]:
        """The children that have waited long enough. Closing their sockets dismisses them."""
        gone = [c for c in self._idle if now - c.idle_since >= IDLE_SECONDS]
        self._idle = [c for c in self._idle if c not in gone]
        return gone


def close(line: socket.socket | None) -> None:
    if line is not None:
        line.close()


def _send_away(child: Child) -> None:
    assert child.line is not None
    with contextlib.suppress(OSError):
        child.line.shutdown(socket.SHUT_WR)


def _live(line: socket.socket | None, spawn: dict[str, Any], inherited: Iterable[int]) -> None:
    """The life of a child. Does not return."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in inherited:
            os.close(fd)
        os.setsid()
        with open(os.devnull, "rb") as null:
            os.dup2(null.fileno(), 0)
        while True:
            code = _do(spawn)
            if line is None or code != 0 or not _clean(spawn["task"]):
                break
            following = _next(line)
            if following is None:
                break
            spawn = following
    except BaseException:
        code = 70
        traceback.print_exc()
    finally:
        # No interpreter shutdown: client threads may wait for a server that is gone.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _do(spawn: dict[str, Any]) -> int:
    """Point the output to the task's files, and run it."""
    for fd, name in ((1, "stdout"), (2, "stderr")):
        # An earlier driver of the same attempt may have left a link there, and this one is not confined yet.
        target = os.open(spawn[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        os.dup2(target, fd)
        os.close(target)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    os.chdir(spawn["cwd"])
    tasks = importlib.import_module("firesteel.driver.tasks")
    task, args = spawn["task"], spawn["args"]
    if task in tasks.TAKING and not tasks.TAKING[task](args):
        return NOT_MINE
    sandbox = Sandbox.from_json(spawn["sandbox"]) if spawn.get("sandbox") else None
    if sandbox is not None and not spawn.get("reusable"):
        landlock.enter(sandbox)
    os.environ.update(spawn.get("env", {}))
    for name in spawn.get("unset", ()):
        os.environ.pop(name, None)
    with foreign_files.confined_to(sandbox if spawn.get("reusable") else None):
        code: int = tasks.TASKS[task](args)
    return code


def _clean(task: str) -> bool:
    """Whether the task that was done has let go of everything that was its own."""
    tasks = importlib.import_module("firesteel.driver.tasks")
    let_go: bool = tasks.let_go(task)
    if let_go:
        # The directory of the job may go now: nothing here holds on to it.
        os.chdir("/")
        with open(os.devnull, "wb") as null:
            for stream, fd in ((sys.stdout, 1), (sys.stderr, 2)):
                stream.flush()
                os.dup2(null.fileno(), fd)
    return let_go


def _next(line: socket.socket) -> dict[str, Any] | None:
    """Wait for the next task; None when there will be none."""
    try:
        line.sendall(_READY)
        buffer = b""
        while not buffer.endswith(b"\n"):
            data = line.recv(1 << 16)
            if not data:
                return None
            buffer += data
    except OSError:
        return None
    found: dict[str, Any] = json.loads(buffer)
    return found
