"""Identifies processes that outlive their parent, so that a reused pid is never mistaken for them."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A pid and when it started: together they name one process for as long as the machine is up (F18)."""

    pid: int
    started: str

    @staticmethod
    def of(pid: int) -> ProcessIdentity | None:
        """The identity of the process that has `pid` now; None when there is none (or only a zombie)."""
        started = _start_mark(pid)
        return ProcessIdentity(pid, started) if started else None

    @property
    def alive(self) -> bool:
        try:
            return _start_mark(self.pid) == self.started
        except OSError:
            # No descriptor left to look with, for example (F24). Taking a live process for dead does more harm than
            # waiting for a dead one.
            return _exists(self.pid)

    def cpu_seconds(self) -> float | None:
        """Processor time that it has used so far; None when it is gone, or the system does not report it."""
        try:
            fields = (_PROC / str(self.pid) / "stat").read_text().rpartition(")")[2].split()
            used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return None
        return used if fields[19] == self.started else None

    def signal(self, number: int, *, group: bool = False) -> bool:
        """Send a signal to the process (or to its whole group); False when it is gone already."""
        # Strictly: a signal to a process that only has the same number would be worse than an error.
        if _start_mark(self.pid) != self.started:
            return False
        try:
            if group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def wait(self, timeout: float) -> bool:
        """True once the process is gone. Polls: it need not be our child."""
        deadline = time.monotonic() + timeout
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def end(process: ProcessIdentity, *, grace: float) -> bool:
    """End a process and its group gracefully, then surely. True when SIGTERM was enough.

    The members of the group are noted while its leader lives: afterwards the number may belong to another group.
    """
    members = group_of(process)
    clean = not process.signal(signal.SIGTERM) or process.wait(grace)
    for member in [process, *members]:
        member.signal(signal.SIGKILL)
    process.wait(5)
    return clean


def group_of(leader: ProcessIdentity) -> list[ProcessIdentity]:
    """The other processes of a leader's group; empty when the leader is gone."""
    if not leader.alive:
        return []
    if _PROC.is_dir():
        pids = [int(d.name) for d in _PROC.iterdir() if d.name.isdigit() and _group(d) == leader.pid]
    else:
        out = subprocess.run(["ps", "-axo", "pid=,pgid="], capture_output=True, text=True, check=False).stdout
        pids = [int(pid) for pid, group in (line.split() for line in out.splitlines()) if int(group) == leader.pid]
    return [found for pid in pids if pid != leader.pid and (found := ProcessIdentity.of(pid)) is not None]


def _group(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[2])
    except (OSError, IndexError, ValueError):
        return 0


def reap(process: ProcessIdentity, timeout: float = 5.0) -> None:
    """Collect the exit status of a child that ended, so that it does not stay as a zombie.

    A process with many threads is a zombie a moment before it can be waited for.
    """
    deadline = time.monotonic() + timeout
    try:
        while os.waitpid(process.pid, os.WNOHANG)[0] == 0 and not process.alive and time.monotonic() < deadline:
            time.sleep(0.01)
    except ChildProcessError:
        pass  # another process's child


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # another process's
    return True


def _start_mark(pid: int) -> str:
    """When the process began, as the system writes it; empty when there is none, or only a zombie. May raise OSError."""
    if _PROC.is_dir():
        try:
            text = (_PROC / str(pid) / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError, UnicodeDecodeError):
            return ""
        # The command name, in parentheses, may hold anything; fields count from behind its closing one.
        fields = text.rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    out = subprocess.run(["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = out.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else started.strip()


_PEER_CREDENTIALS = struct.Struct("3i")
"""Process, user and group, as the kernel knows them."""


def user_behind(line: socket.socket) -> int | None:
    """The user id of the process at the other end of a unix socket; None where the kernel does not say."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    packed = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _, user, _ = _PEER_CREDENTIALS.unpack(packed)
    return int(user)
