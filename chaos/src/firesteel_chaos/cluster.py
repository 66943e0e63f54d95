"""A cluster of nodes that are processes of this host, started and ended by us, each behind a line that can be cut.

Node i listens on 127.0.0.1 and tells everybody that it is at 127.0.1.i, where its line is: clients reach it through that, and
so do the other nodes. So it is cut off from both, and not from its drivers and engines, which are files and processes to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx

from firesteel.client.cluster import ClusterClient
from firesteel.config import Configuration, load_configuration
from firesteel.engines.launcher import stop_engine
from firesteel.engines.record import EngineDirectory
from firesteel.fs.files import tail
from firesteel.hosts import this_user
from firesteel.layout import ClusterLayout
from firesteel.ports import LOOPBACK, NoPortError, unused_ports
from firesteel.processes import ProcessIdentity
from firesteel_chaos.controlled import ChaosError
from firesteel_chaos.network import LineGroup, TcpProxy
from firesteel_chaos.sites import Site

START_SECONDS = 40.0
END_SECONDS = 20.0
"""Below those that the system gives to connections: a port must still be free when its node is started again."""
NODE = (sys.executable, "-P", "-m", "firesteel.entrypoint")
TOKEN_COMMAND = (
    *(sys.executable, "-c", "from firesteel.cli.main import main; main()"),
    # Jobs of the user who runs the nodes may use all files but the cluster's own.
    *("cluster", "token", "create", this_user(), "--role", "admin"),
)
ABILITIES = frozenset({"kill", "pause", "terminate", "processes", "limits", "command", "clients", "bad-clients"})
OPTIONS = {
    "engine.master": "local[2]",
    # An engine that lives for one game: what Java's second compiler costs, it would not earn back.
    "engine.jvm-options": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "engine.max": "1",
    "engine.slots": "16",
    # A machine that is busy is no fault.
    "heartbeat.timeout": "2 min",
    "engine.start-timeout": "3 min",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.retainedJobs": "200",
    # The load sleeps by calling Java, which takes no processor and no Python worker.
    "spark.sql.restrictedMode.enabled": "false",
    "rest.rate-limit.requests-per-second": "100000",
    "rest.rate-limit.burst": "100000",
    "rest.rate-limit.submissions-per-second": "100000",
}


class LocalNode:
    """One process, and the lines that lead to it and from it."""

    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        options: Mapping[str, str],
        log: Path,
        *,
        store: LineGroup | None = None,
        command: Sequence[str] = NODE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self.store = store
        self._command = tuple(command)
        self._environment = dict(environment or {})
        self._port = address[1]
        self._options = {
            **options,
            "rest.bind-address": "127.0.0.1",
            "rest.port": str(self._port),
            "rest.address": address[0],
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.clients = TcpProxy(("127.0.0.1", self._port), host=address[0], port=self._port)
        self.clients.__enter__()

    @property
    def address(self) -> str:
        return f"http://{self.clients.address}"

    @property
    def definitions(self) -> dict[str, str]:
        return dict(self._options)

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def alive(self) -> bool:
        return self.pid is not None

    @property
    def exit_code(self) -> int | None:
        """Of its last process, when that has ended."""
        return None if self._process is None else self._process.poll()

    def start(self, *, command: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> None:
        self.start_process(command, environment)
        self.wait_until_serving()

    def start_process(self, command: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> None:
        """Start it without waiting. Does nothing when it runs."""
        if self.alive:
            return
        usual = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*(command or self._command), *(f"-D{k}={v}" for k, v in self._options.items())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**usual, **self._environment, **(environment or {})},
                start_new_session=True,  # an interrupt of ours is not one of the cluster's
            )

    def wait_until_serving(self, timeout: float = START_SECONDS) -> None:
        deadline = time.monotonic() + timeout
        while not self.serves:
            if not self.alive:
                raise ChaosError(f"node {self.name} ended with code {self.exit_code}:\n{tail(self.log)}")
            if time.monotonic() > deadline:
                raise ChaosError(f"node {self.name} did not serve within {timeout:g} s:\n{tail(self.log)}")
            time.sleep(0.05)

    @property
    def serves(self) -> bool:
        """Whether it answers, its line aside."""
        try:
            return httpx.get(f"http://127.0.0.1:{self._port}/healthz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._wait(END_SECONDS)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)
        self.resume()
        if not self._wait(END_SECONDS):
            self.kill()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        self.terminate()
        self.clients.__exit__()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # does nothing when it is gone

    def _wait(self, timeout: float) -> bool:
        if self._process is None:
            return True
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True


class StagedCluster:
    """Nodes over one data directory. Entered, they run; left, they, their engines and their drivers are ended.

    Args:
        root: of everything: data, logs.
        options: of all nodes, over those of `OPTIONS`.
        lease: how long a leader that is not heard of keeps its leadership, in seconds.
        store_lines: the line of each node to the store, where there is such a thing; the options that make a node use
            it are in `node_options`.
        node_options: of each node.
        abilities: besides those that every cluster of local processes has.
        command: what a node is; options are appended to it.
        environment: added to that of the nodes.
    """

    def __init__(
        self,
        root: Path,
        *,
        nodes: int = 3,
        lease: float = 4.0,
        options: Mapping[str, str] | None = None,
        store_lines: Sequence[LineGroup] = (),
        node_options: Sequence[Mapping[str, str]] = (),
        abilities: frozenset[str] = frozenset(),
        command: Sequence[str] = NODE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self.lease = lease
        self.ca = None
        self.data_dir = root / "data"
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.options = {
            **OPTIONS,
            "data.dir": str(self.data_dir),
            "high-availability.lease-duration": f"{lease:g} s",
            **(options or {}),
        }
        self.token = self._make_token()
        port = _free_port(nodes)
        per_node = node_options or [{}] * nodes
        self._nodes = [
            LocalNode(
                f"n{n + 1}",
                (f"127.0.1.{n + 1}", port + n),
                {**self.options, **per_node[n]},
                root / f"n{n + 1}.log",
                store=store_lines[n] if store_lines else None,
                command=command,
                environment=environment,
            )
            for n in range(nodes)
        ]
        self.abilities = abilities | ABILITIES
        if store_lines:
            self.abilities |= {"store", "bad-store"}

    @property
    def configuration(self) -> Configuration:
        """Of the first node."""
        return load_configuration(overrides=self._nodes[0].definitions, environ={"HOME": os.environ.get("HOME", "/")})

    @property
    def cluster_id(self) -> str:
        return self.options.get("high-availability.cluster-id", "default")

    @property
    def home(self) -> Path:
        """Where jobs and engines are."""
        return ClusterLayout.below(self.data_dir, self.cluster_id).home

    @property
    def addresses(self) -> list[str]:
        return [node.address for node in self._nodes]

    def nodes(self) -> list[LocalNode]:
        return list(self._nodes)

    def sites(self) -> list[Site]:
        return [Site("", self.data_dir, self.cluster_id)]

    def client(self) -> ClusterClient:
        return ClusterClient(self.addresses, token=self.token)

    def start(self) -> None:
        """All nodes that do not run, at the same time."""
        started = [node for node in self._nodes if not node.alive]
        for node in started:
            node.start_process()
        for node in started:
            node.wait_until_serving()

    def close(self) -> None:
        for node in self._nodes:
            with contextlib.suppress(OSError):
                node.close()
        engines = EngineDirectory(self.home)
        for record in engines.all():
            stop_engine(engines, record, grace=5)
        for file in self.home.glob("jobs/*/attempts/*/driver.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                found = json.loads(file.read_text())
                ProcessIdentity(found["pid"], found["started"]).signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # raised again; nodes that were started would be left behind
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_token(self) -> str:
        """In the file that all nodes share: the one that a node draws for itself is known to no other."""
        usual = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
        argv = [*TOKEN_COMMAND, f"-Ddata.dir={self.data_dir}"]
        made = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, env=usual)
        token = next((word for word in made.stdout.split() if word.startswith("fst_")), None)
        if made.returncode != 0 or token is None:
            raise ChaosError(f"cannot create a token: {made.stdout}{made.stderr}")
        return token


def _free_port(count: int) -> int:
    """The first of so many ports in a row that nobody uses, at the addresses of the nodes and of their lines."""
    try:
        return unused_ports(count, [LOOPBACK, *(f"127.0.1.{n + 1}" for n in range(count))])[0]
    except NoPortError as error:
        raise ChaosError(
            "cannot listen on 127.0.1.1 and the following addresses; on macOS run ifconfig lo0 alias 127.0.1.1"
        ) from error
