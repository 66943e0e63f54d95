"""Real ZooKeeper servers on this machine, from the classes that pyspark's jars carry. Needs Java and nothing else.

    with ZooKeeperServer(directory) as server:      # or ZooKeeperQuorum(directory), with three of them
        KazooClient(server.hosts)

Free of pytest: benchmarks and the chaos harness start them too.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from firesteel.engines.java import find_java, spark_home
from firesteel.ports import unused_ports

START_SECONDS = 60.0
_JARS = ("zookeeper", "netty-", "slf4j-api", "log4j-", "metrics-core", "snappy-java", "commons-io", "commons-lang3")
_LOGGING = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}}: %m%n
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
"""


class ZooKeeperServer:
    """One server process, alone or as a member of a quorum.

    Its data stay in `directory`, so `start` after `stop` or `kill` goes on with them.

    Args:
        address: where it listens for clients.
        tick_ms: ZooKeeper's unit of time. Session timeouts from two of them up are granted.
        properties: Further lines of zoo.cfg, or other values for those that are there.
        jvm_options: Before the main class, such as `-Dzookeeper.…`.
        members: Of a quorum: the `server.N` lines.
    """

    def __init__(
        self,
        directory: Path,
        *,
        address: str = "127.0.0.1",
        client_port: int | None = None,
        tick_ms: int = 200,
        my_id: int = 1,
        members: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = (),
        log_level: str = "warn",
    ) -> None:
        self.directory = directory
        self.my_id = my_id
        self.address = address
        self.client_port = client_port or unused_ports(1)[0]
        self.log = directory / "zookeeper.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._jvm_options = list(jvm_options)
        self._log_level = log_level
        self._properties = {
            "tickTime": str(tick_ms),
            "dataDir": str(directory / "data"),
            "clientPort": str(self.client_port),
            "clientPortAddress": address,
            "minSessionTimeout": str(2 * tick_ms),
            "maxSessionTimeout": "120000",
            "maxClientCnxns": "0",
            # In ticks, which are short here: the machine may be busy for a second or two.
            "initLimit": str(max(10, 20_000 // tick_ms)),
            "syncLimit": str(max(5, 2_000 // tick_ms)),
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **(members or {}),
            **(properties or {}),
        }

    @property
    def hosts(self) -> str:
        return f"{self.address}:{self.client_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, *, wait: bool = True) -> None:
        """Start the process; with `wait`, return once it serves (a member: once there is a quorum)."""
        assert not self.running, "running already"
        (self.directory / "data").mkdir(parents=True, exist_ok=True)
        (self.directory / "data" / "myid").write_text(f"{self.my_id}\n")
        configuration = self.directory / "zoo.cfg"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in self._properties.items()))
        logging = self.directory / "log4j2.properties"
        logging.write_text(_LOGGING.format(log=self.log, level=self._log_level))
        with (self.directory / "output.log").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    str(find_java().executable),
                    "-Xmx128m",
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    "-XX:-UsePerfData",
                    f"-Dlog4j2.configurationFile={logging.as_uri()}",
                    *self._jvm_options,
                    "-cp",
                    os.pathsep.join(_class_path()),
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    str(configuration),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if wait:
            self.wait_until_serving()

    def wait_until_serving(self) -> None:
        _wait(lambda: self.mode() is not None or not self.running, f"{self.hosts} did not serve in time", self.logs)
        if not self.running:
            raise RuntimeError(f"ZooKeeper at {self.hosts} ended at start:\n{self.logs()}")

    def stop(self) -> None:
        """In order (SIGTERM)."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """At once (SIGKILL), also when paused."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """The process stops (SIGSTOP); its connections stay open, and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def mode(self) -> str | None:
        """`standalone`, `leader` or `follower`; None when it does not serve."""
        for line in (self.command("srvr") or "").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return None

    def command(self, word: str) -> str | None:
        """The answer to a four-letter word; None when there is none."""
        try:
            with socket.create_connection((self.address, self.client_port), timeout=2) as connection:
                connection.sendall(word.encode())
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
        except OSError:
            return None
        return answer.decode(errors="replace")

    def metrics(self) -> dict[str, str]:
        """What `mntr` says."""
        lines = (self.command("mntr") or "").splitlines()
        return dict(line.split("\t", 1) for line in lines if "\t" in line)

    def expire(self, session_id: int, password: bytes) -> None:
        """End somebody's session as if it had timed out. Returns when its ephemeral nodes are gone."""
        expire_session(self.hosts, session_id, password)

    def logs(self) -> str:
        written = [path for path in (self.log, self.directory / "output.log") if path.exists()]
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in written)

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)
        self._process.wait(30)
        self._process = None


class ZooKeeperQuorum:
    """Three servers (or more) that elect a leader among themselves."""

    def __init__(
        self,
        directory: Path,
        size: int = 3,
        *,
        tick_ms: int = 200,
        properties: Mapping[str, str] | None = None,
        log_level: str = "warn",
    ) -> None:
        ports = unused_ports(3 * size)
        members = {f"server.{n + 1}": f"127.0.0.1:{ports[3 * n]}:{ports[3 * n + 1]}" for n in range(size)}
        self.servers = [
            ZooKeeperServer(
                directory / str(n + 1),
                client_port=ports[3 * n + 2],
                tick_ms=tick_ms,
                my_id=n + 1,
                members=members,
                properties=properties,
                log_level=log_level,
            )
            for n in range(size)
        ]

    @property
    def hosts(self) -> str:
        return ",".join(server.hosts for server in self.servers)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        try:
            for server in self.servers:
                if not server.running:
                    server.start(wait=False)
            for server in self.servers:
                server.wait_until_serving()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    @property
    def leader(self) -> ZooKeeperServer:
        return self.of_mode("leader")[0]

    @property
    def followers(self) -> list[ZooKeeperServer]:
        return self.of_mode("follower")

    def of_mode(self, mode: str) -> list[ZooKeeperServer]:
        """The servers of a mode; waits until there is one."""
        found: list[ZooKeeperServer] = []

        def look() -> bool:
            found[:] = [server for server in self.servers if server.running and server.mode() == mode]
            return bool(found)

        _wait(look, f"no {mode} among {self.hosts}", lambda: "\n".join(s.logs() for s in self.servers))
        return found

    def expire(self, session_id: int, password: bytes) -> None:
        expire_session(self.hosts, session_id, password)


def expire_session(hosts: str, session_id: int, password: bytes) -> None:
    """Whoever knows a session's password may close it, from anywhere."""
    from kazoo.client import KazooClient  # type: ignore[import-untyped]

    client = KazooClient(hosts=hosts, timeout=10, client_id=(session_id, password))
    client.start(timeout=15)
    try:
        client.stop()
    finally:
        client.close()


def _class_path() -> list[str]:
    """Of the 250 jars only what a server needs: it starts in half the time."""
    jars = sorted((spark_home() / "jars").glob("*.jar"))
    return [str(jar) for jar in jars if jar.name.startswith(_JARS)]


def _wait(condition: Callable[[], bool], what: str, details: Callable[[], str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}\n{details()}")
        time.sleep(0.05)
