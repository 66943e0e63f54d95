"""The JVM of a classic driver: a Py4J gateway that waits for one PySpark program.

Programs that use SparkContext, RDDs, MLlib or DStreams cannot run over Spark Connect. Their JVM is started ahead of them,
by the control plane, and handed over by name: its standard input is a named pipe, and it lives for as long as somebody holds
the other end. The control plane holds it while the JVM waits, the driver while the program runs; when the driver dies,
however it dies, the JVM reads the end of its input and goes. A warm one is a gateway that nobody has taken yet.
"""

from __future__ import annotations

import os
import shutil
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from firesteel.engines import command
from firesteel.engines.launcher import WORK, LaunchOptions, start_spark
from firesteel.engines.record import EngineSpec
from firesteel.errors import EngineStartError
from firesteel.files import private_dir, tail
from firesteel.processes import ProcessIdentity, end, reap
from firesteel.sandbox.rules import Sandbox

_PIPE = "stdin"


@dataclass(slots=True)
class Gateway:
    """Held by the control plane until a driver has taken over."""

    home: Path
    process: ProcessIdentity
    _keep_alive: int

    def hand_over(self) -> None:
        """Let go of the JVM; the driver that opened the pipe keeps it now (or nobody, and it ends)."""
        if self._keep_alive >= 0:
            os.close(self._keep_alive)
            self._keep_alive = -1

    def stop(self, grace: float = 10.0) -> None:
        self.hand_over()
        if not self.process.wait(grace):
            end(self.process, grace=2)
        reap(self.process)

    def remove(self, grace: float = 10.0) -> None:
        self.stop(grace)
        shutil.rmtree(self.home, ignore_errors=True)


def start_gateway(
    home: Path,
    spec: EngineSpec,
    options: LaunchOptions,
    *,
    app_name: str,
    cwd: Path | None = None,
    sandbox: Sandbox | None = None,
) -> Gateway:
    """Start a JVM that waits for a PySpark program. Returns at once; `connection` waits for it."""
    work = private_dir(home / WORK)
    pipe = home / _PIPE
    os.mkfifo(pipe, 0o600)
    # Read-write, so that opening does not wait for a reader. The JVM is given its end open, so that it never waits for a
    # writer either, whenever we die.
    keep_alive = os.open(pipe, os.O_RDWR)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reading, True)
    settings = {
        "spark.app.name": app_name,
        "spark.ui.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.local.dir": str(work / "local"),
        **(
            {"spark.driver.host": command.LOOPBACK, "spark.driver.bindAddress": command.LOOPBACK}
            if command.on_this_host(spec.master)
            else {}
        ),
        "spark.ui.showConsoleProgress": "false",
        "spark.pyspark.python": options.python,
        "spark.pyspark.driver.python": options.python,
        **dict(spec.spark),
        **command.authentication(spec.master),
        "spark.driver.memory": spec.memory,
    }
    try:
        process = start_spark(
            home,
            spec,
            options,
            main=command.GATEWAY_SERVER,
            settings=settings,
            environment={"_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file(home))},
            log=log_of(home),
            stdin=reading,
            cwd=cwd or work,
            sandbox=sandbox,
        )
    except BaseException:
        os.close(keep_alive)
        raise
    finally:
        os.close(reading)
    if process is None:
        os.close(keep_alive)
        raise EngineStartError("the JVM of the classic driver ended at once", tail(log_of(home)))
    return Gateway(home, process, keep_alive)


def writable(home: Path) -> tuple[Path, ...]:
    """What a JVM that is confined, and its driver, write to in `home`. The rest of it is ours: by its pid the JVM is ended."""
    return (home / WORK, home / _PIPE)


def connection_file(home: Path) -> Path:
    """Where the JVM says how it is reached; it also tells the JVMs of this machine apart."""
    return home / WORK / "connection"


def connection(home: Path, process: ProcessIdentity | None, timeout: float) -> tuple[int, str]:
    """Port and secret of a gateway, once it has written them."""
    file = connection_file(home)
    deadline = time.monotonic() + timeout
    while not file.exists():
        if time.monotonic() > deadline or (process is not None and not process.alive):
            raise EngineStartError("the JVM of the classic driver did not come up", tail(log_of(home)))
        time.sleep(0.01)
    data = file.read_bytes()
    port, length = struct.unpack("!ii", data[:8])
    return port, data[8 : 8 + length].decode()


def written_process(home: Path) -> ProcessIdentity | None:
    """The JVM of a gateway, found by whoever did not start it; None when it is gone."""
    try:
        pid = int((home / "pid").read_text())
    except (OSError, ValueError):
        return None
    found = ProcessIdentity.of(pid)
    try:
        marked = str(connection_file(home)).encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        marked = True  # no /proc here: the pid file is all there is
    return found if marked else None


def log_of(home: Path) -> Path:
    """What the JVM writes. Of an attempt, beside its other logs: the home goes when the attempt has ended."""
    return (home.parent if home.name.startswith("jvm-") else home) / "jvm.log"


def end_jvms(root: Path, *, grace: float) -> None:
    """End and remove the JVMs whose homes are `root/jvm-*`, whoever started them, once their driver is gone."""
    for home in root.glob("jvm-*"):
        process = written_process(home)
        if process is not None and not process.wait(grace):
            end(process, grace=0)
        shutil.rmtree(home, ignore_errors=True)


def take(home: Path, timeout: float = 60.0) -> None:
    """In the driver: keep the JVM alive from here on, and let PySpark find it."""
    try:
        # Without waiting: when the one who started the JVM died before we came, the JVM is gone, and nobody reads.
        _HELD.append(os.open(home / _PIPE, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        raise EngineStartError("the JVM of the classic driver is gone", tail(log_of(home))) from error
    port, secret = connection(home, written_process(home), timeout)
    os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = secret
    os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)


_HELD: list[int] = []
"""Open for as long as this process lives."""
