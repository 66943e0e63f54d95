"""One host: a network namespace with a line to the bridge, and a host name, processes and files of its own.

It differs from a machine in three ways: it has the kernel, and so the clocks, of all others; files outside of `local` are the
same for all; memory and processors are shared.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from firesteel.processes import ProcessIdentity
from firesteel_chaos.controlled import ChaosError
from firesteel_chaos.hosts.links import PREFIX, Direction, connect, disconnect, ip

if TYPE_CHECKING:
    from firesteel_chaos.hosts.network import HostNetwork

INIT = Path(__file__).with_name("init.py")
MACHINE_ID = Path("/etc/machine-id")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
END_SECONDS = 20.0
LOOK_SECONDS = 0.2
_PROC = Path("/proc")


class HostProcess:
    """A process that was started on a host. `pid` is the one by which this machine knows it."""

    def __init__(self, way_in: subprocess.Popen[bytes], log: Path) -> None:
        self.way_in = way_in
        """The process of this machine that went into the host's namespaces, and waits for the one that it started there."""
        self.log = log

    @property
    def pid(self) -> int | None:
        """None before it has begun, and once it has ended."""
        return next(iter(children_of(self.way_in.pid)), None) if self.alive else None

    @property
    def alive(self) -> bool:
        return self.way_in.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self.way_in.poll()

    def signal(self, number: signal.Signals) -> None:
        """Does nothing when it is gone."""
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if number is signal.SIGCONT:
            self.wake()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wake()
        self.wait()

    def wait(self, timeout: float = END_SECONDS) -> int:
        return self.way_in.wait(timeout)

    def wake(self) -> None:
        """The way in stops with what it waits for, and has to be woken as well to notice an end."""
        self.way_in.send_signal(signal.SIGCONT)


class StagedHost:
    """Made by its `HostNetwork`. Up after `boot`, and down after `crash`; `boot` again is the same host after a restart."""

    def __init__(self, network: HostNetwork, name: str, number: int) -> None:
        self.network = network
        self.name = name
        self.number = number
        self.namespace = f"{PREFIX}{name}"
        self.files = network.root / "hosts" / name
        """The host's own files, as this machine sees them; processes on the host see them at `network.local`."""
        self._view = network.root / "views" / name
        self._machine = uuid.uuid4().hex
        self._unshare: subprocess.Popen[bytes] | None = None
        self._processes: list[HostProcess] = []
        self._seen: set[ProcessIdentity] = set()
        self._looked_at = -math.inf

    @property
    def address(self) -> str:
        return self.network.address.rpartition(".")[0] + f".{self.number}"

    @property
    def hostname(self) -> str:
        return f"{self.name}.firesteel.test"

    @property
    def up(self) -> bool:
        return self._unshare is not None and self._unshare.poll() is None

    # -- life and death -----------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Does nothing when it is up. Its files are those that it had."""
        if self.up:
            return
        self.files.mkdir(parents=True, exist_ok=True)
        self._view.mkdir(parents=True, exist_ok=True)
        (self._view / "machine-id").write_text(f"{self._machine}\n")
        (self._view / "boot-id").write_text(f"{uuid.uuid4()}\n")
        connect(self.namespace, self.number)
        self.network.teach(self.namespace, self.number, "eth0")
        with (self._view / "init.log").open("ab") as log:
            self._unshare = subprocess.Popen(
                [
                    *("ip", "netns", "exec", self.namespace),
                    *("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"),
                    *(sys.executable, "-I", "-S", str(INIT), json.dumps(self._wish())),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._unshare.stdout is not None
        if self._unshare.stdout.readline() != b"up\n":
            raise ChaosError(f"host {self.name} did not come up; unshare ended with code {self._unshare.wait(10)}")

    def _wish(self) -> dict[str, object]:
        mounts = [(self.files, self.network.local), (self._view / "boot-id", BOOT_ID)]
        if MACHINE_ID.exists():
            mounts.append((self._view / "machine-id", MACHINE_ID))
        return {
            "hostname": self.hostname,
            "mounts": [(str(source), str(target)) for source, target in mounts],
            "hidden": [str(self.network.root / "hosts")],
        }

    def crash(self) -> None:
        """As when the power fails: the others hear nothing more of it, and no process of it is left when this returns."""
        if self._unshare is None:
            return
        disconnect(self.number)
        first = next(iter(children_of(self._unshare.pid)), None)
        if first is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
        self._unshare.wait(END_SECONDS)
        for pipe in (self._unshare.stdin, self._unshare.stdout):
            if pipe is not None:
                pipe.close()
        self._unshare = None
        for process in self._processes:
            process.wake()
            process.wait()
        self._processes = []
        # With it go the connections, which would otherwise be ended in order after the next boot.
        ip(f"netns del {self.namespace}")

    # -- processes ----------------------------------------------------------------------------------------------------

    def start(
        self,
        command: Sequence[str],
        *,
        log: str = "output.log",
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> HostProcess:
        """Start a process. What it prints is appended to `log` among the host's files.

        Args:
            environment: all of it, when given.
        """
        file = self.files / log
        with file.open("ab") as output:
            way_in = subprocess.Popen(
                [*self._enter(), "sh", "-c", 'cd "$0" && exec "$@"', str(cwd or self.network.local), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        started = HostProcess(way_in, file)
        self._processes = [*(p for p in self._processes if p.alive), started]
        return started

    def run(self, command: Sequence[str], *, timeout: float = 60.0) -> str:
        """What a command prints that is run on the host. Raises ChaosError when it fails."""
        done = subprocess.run(
            [*self._enter(), *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise ChaosError(f"{' '.join(command)} on host {self.name}: {done.stdout}{done.stderr}".strip())
        return done.stdout

    def processes(self) -> list[int]:
        """All that run here, whoever started them, by the pids that this machine knows them by; without the first one."""
        try:
            first = self._first
            namespace = os.readlink(f"/proc/{first}/ns/pid")
        except (OSError, ChaosError):
            return []  # it is down
        found = []
        for entry in _PROC.iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.readlink(entry / "ns" / "pid") == namespace:
                    found.append(int(entry.name))
        return sorted(set(found) - {first})

    def lives(self, process: ProcessIdentity) -> bool:
        """Whether a process of this host lives, by the pid that it has there. Looks at most every so often."""
        if not self.up:
            return False
        now = time.monotonic()
        if now - self._looked_at > LOOK_SECONDS:
            self._seen, self._looked_at = self._look(), now
        return process in self._seen

    def _look(self) -> set[ProcessIdentity]:
        seen = set()
        for pid in self.processes():
            with contextlib.suppress(OSError, ValueError, IndexError):
                status = (_PROC / str(pid) / "status").read_text()
                inner = int(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1])
                known = ProcessIdentity.of(pid)
                if known is not None:
                    seen.add(ProcessIdentity(inner, known.started))
        return seen

    def pause(self) -> None:
        """SIGSTOP for everything at once, and for what is being forked at this moment. Its kernel still answers the network."""
        self._kill_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._kill_all(signal.SIGCONT)
        for process in self._processes:
            process.wake()

    def kill_all(self) -> None:
        """SIGKILL for everything at once; the host itself stays, and tells the others that their connections have ended."""
        self._kill_all(signal.SIGKILL)
        for process in self._processes:
            process.wake()
            process.wait()

    def _kill_all(self, number: signal.Signals) -> None:
        # To -1: all that the sender sees but itself and the first; the kernel lets nobody fork meanwhile.
        words = f"import os; os.kill(-1, {int(number)})"
        asked = [*self._enter(), sys.executable, "-I", "-S", "-c", f"try:\n {words}\nexcept ProcessLookupError: pass"]
        subprocess.run(asked, check=True, timeout=END_SECONDS)

    # -- the network --------------------------------------------------------------------------------------------------

    def cut_off(self, direction: Direction = Direction.BOTH) -> None:
        """From all others and from this machine."""
        self.network.cut_off(self, direction)

    def heal(self) -> None:
        self.network.heal(self)

    def narrow(self, kilobits_per_second: int | None) -> None:
        """Let no more than this pass from the host to the others; what waits for a second is lost. None: all again."""
        words = ["tc", "-n", self.namespace, "qdisc"]
        if kilobits_per_second is None:
            subprocess.run([*words, "del", "dev", "eth0", "root"], check=False, capture_output=True, timeout=30)
            return
        rate = ["tbf", "rate", f"{kilobits_per_second}kbit", "burst", "4kb", "latency", "1s"]
        done = subprocess.run(
            [*words, "replace", "dev", "eth0", "root", *rate], capture_output=True, text=True, check=False, timeout=30
        )
        if done.returncode != 0:
            raise ChaosError(f"cannot limit the bandwidth of host {self.name}: {done.stderr.strip()}")

    # -- ways in ------------------------------------------------------------------------------------------------------

    @property
    def _first(self) -> int:
        """Its process 1."""
        found = next(iter(children_of(self._unshare.pid)), None) if self._unshare is not None else None
        if found is None:
            raise ChaosError(f"host {self.name} is down")
        return found

    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self._first}", "--mount", "--uts", "--ipc", "--net", "--pid", "--"]


def children_of(pid: int) -> list[int]:
    try:
        return [int(word) for word in (_PROC / str(pid) / "task" / str(pid) / "children").read_text().split()]
    except OSError:
        return []
