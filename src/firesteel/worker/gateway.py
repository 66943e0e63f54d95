"""The JVM of a classic driver: a Py4J gateway that waits for one PySpark program.

Programs that use SparkContext, RDDs, MLlib or DStreams cannot run over Spark Connect. Their JVM is started ahead of
them, by the control plane, and handed over by name: its standard input is a named pipe, and it lives for as long as a
process holds the other end. The control plane holds it while the JVM waits, the driver while the program runs; when the
driver dies, however it dies, the JVM reads the end of its input and exits. A warm JVM is a gateway that no driver has
taken yet.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from firesteel.attempts.gateway_home import PIPE, connection_file, log_of, written_process
from firesteel.engines import command
from firesteel.engines.launcher import WORK, LaunchOptions, start_spark
from firesteel.engines.record import EngineSpec
from firesteel.errors import EngineStartError
from firesteel.fs.files import private_dir, tail
from firesteel.processes import ProcessIdentity, end, reap
from firesteel.sandbox.rules import Sandbox


@dataclass(slots=True)
class Gateway:
    """Held by the control plane until a driver has taken over."""

    home: Path
    process: ProcessIdentity
    _keep_alive: int

    def hand_over(self) -> None:
        """Let go of the JVM; the driver that opened the pipe keeps it now (if there is none, the JVM ends)."""
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
    pipe = home / PIPE
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
        raise EngineStartError("the JVM of the classic driver exited immediately", tail(log_of(home)))
    return Gateway(home, process, keep_alive)


def writable(home: Path) -> tuple[Path, ...]:
    """What a confined JVM and its driver may write to in `home`. The rest is ours: the JVM is ended by the pid in
    it."""
    return (home / WORK, home / PIPE)


def end_jvms(root: Path, *, grace: float) -> None:
    """End and remove the JVMs whose homes are `root/jvm-*`, regardless of who started them, once their driver is
    gone."""
    for home in root.glob("jvm-*"):
        process = written_process(home)
        if process is not None and not process.wait(grace):
            end(process, grace=0)
        shutil.rmtree(home, ignore_errors=True)
