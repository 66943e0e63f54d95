"""Nodes on hosts of our own: one process on each, with files of its own, which the others reach over the bridge by TLS."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx

from firesteel.client.cluster import ClusterClient
from firesteel.fs.files import tail
from firesteel_chaos.cluster import END_SECONDS, NODE, OPTIONS, START_SECONDS, TOKEN_COMMAND
from firesteel_chaos.controlled import ASK_SECONDS, ChaosError, Line, answers, trust
from firesteel_chaos.hosts.certificates import ClusterCertificate, make_certificate
from firesteel_chaos.hosts.host import HostProcess, StagedHost
from firesteel_chaos.hosts.network import HostNetwork
from firesteel_chaos.sightings import Drivers
from firesteel_chaos.sites import Site

WORKER = (sys.executable, "-c", "from firesteel.cli.main import main; main()", "worker", "start", "--foreground")
PORT = 8081
"""Every host has its own."""


class HostedNode:
    """A node of a cluster, and the host that it has to itself or shares with a worker."""

    def __init__(
        self,
        host: StagedHost,
        options: Mapping[str, str],
        ca: Path,
        *,
        command: Sequence[str] = NODE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.host = host
        self.name = host.name
        self.clients: Line | None = None
        self.store: Line | None = None
        self._ca = ca
        self._command = tuple(command)
        self._environment = dict(environment or {})
        self._options = {
            **options,
            "rest.bind-address": host.address,
            "rest.address": host.address,
            "rest.port": str(PORT),
        }
        self._process: HostProcess | None = None

    @property
    def address(self) -> str:
        return f"https://{self.host.address}:{PORT}"

    @property
    def log(self) -> Path:
        return self.host.files / "node.log"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.exit_code

    def start(self, *, command: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> None:
        self.start_process(command, environment)
        self.wait_until_serving()

    def start_process(self, command: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> None:
        """Start it without waiting, and its host before it. Does nothing when it runs."""
        if self.alive:
            return
        self.host.boot()
        usual = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
        self._process = self.host.start(
            [*(command or self._command), *(f"-D{k}={v}" for k, v in self._options.items())],
            log=self.log.name,
            environment={**usual, **self._environment, **(environment or {})},
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
        try:
            return httpx.get(f"{self.address}/healthz", timeout=2, verify=trust(self._ca)).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def terminate(self) -> None:
        if self._process is None:
            return
        self._process.signal(signal.SIGTERM)
        self.resume()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        if self._process is not None:
            self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.signal(signal.SIGCONT)


class HostedWorker:
    """The worker of a host. It joins the cluster when it is started for the first time."""

    def __init__(self, host: StagedHost, cluster: HostedCluster) -> None:
        self.host = host
        self.name = host.name
        self._cluster = cluster
        self._starting = threading.Lock()
        self.wanted = False
        """Started again when it ends by itself, as a process manager would do it."""
        self._process: HostProcess | None = None

    @property
    def log(self) -> Path:
        return self.host.files / "worker.log"

    @property
    def data_dir(self) -> Path:
        """As this machine sees it."""
        return self.host.files / "data" / "workers" / self.name

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    @property
    def process(self) -> HostProcess:
        assert self._process is not None, f"worker {self.name} was never started"
        return self._process

    def start(self) -> None:
        """Start it without waiting for the leader to take it, and its host before it. Does nothing when it runs."""
        with self._starting:
            self.wanted = True
            if not self.alive:
                self._start()

    def _start(self) -> None:
        self.host.boot()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
        joined = (self.site.home / "credential.json").exists()
        token = [] if joined else ["--token", self._cluster.worker_token(self.name)]
        options = {**self._cluster.worker_options, "client.addresses": " ".join(self._cluster.addresses)}
        self._process = self.host.start(
            [*WORKER, "--name", self.name, *token, *(f"-D{k}={v}" for k, v in options.items())],
            log=self.log.name,
            environment=environment,
        )

    def keep_running(self) -> None:
        """Start it again if it has ended by itself."""
        with self._starting:
            if self.wanted and not self.alive:
                self._start()

    def kill(self) -> None:
        """Only its process: drivers and engines run on."""
        with self._starting:
            self.wanted = False
            if self._process is not None:
                self._process.kill()

    def crash(self) -> None:
        """With its host."""
        with self._starting:
            self.wanted = False
            self.host.crash()

    @property
    def busy(self) -> bool:
        """Whether a driver works there."""
        return any(d.working for d in Drivers(self.site.home / "jobs", self.host.lives).look())

    @property
    def site(self) -> Site:
        return Site(self.host.name, self.data_dir, self._cluster.cluster_id, self.host.lives)


class HostedCluster:
    """A node on each of some hosts, and a worker on each of others. Entered, they run; left, all on their hosts is ended.

    What the nodes share is what hosts share: the store, and `network.shared` as a file system of all.

    Args:
        network: entered by the caller, who leaves it after the cluster.
        hosts: the names of those that have a node.
        workers: the names of those that have a worker. Where there are any, nodes run no jobs themselves.
        options: of all nodes and workers, over those of `OPTIONS`; they name a store that the hosts reach.
        isolation: for how long a worker runs on that hears from no leader, in seconds.
    """

    def __init__(
        self,
        network: HostNetwork,
        hosts: Sequence[str],
        *,
        workers: Sequence[str] = (),
        options: Mapping[str, str],
        lease: float = 4.0,
        isolation: float = 10.0,
        command: Sequence[str] = NODE,
        environment: Mapping[str, str] | None = None,
        abilities: frozenset[str] = frozenset(),
    ) -> None:
        self.network = network
        self.lease = lease
        self.isolation = isolation
        self.abilities = abilities | {"kill", "pause", "terminate", "hosts"} | ({"workers"} if workers else set())
        secrets = network.shared / "secrets"
        self.certificate: ClusterCertificate = make_certificate(secrets, [host.address for host in network])
        self.ca = self.certificate.certificate
        self.options = {
            **OPTIONS,
            "data.dir": str(network.local / "data"),
            "high-availability.lease-duration": f"{lease:g} s",
            "security.rest.tokens-file": str(secrets / "tokens.json"),
            "state.checkpoints.dir": str(network.shared / "checkpoints"),
            "state.savepoints.dir": str(network.shared / "savepoints"),
            **self.certificate.options(),
            **options,
        }
        self.worker_options = {
            key: value
            for key, value in self.options.items()
            if key.startswith(("data.", "engine.", "spark.", "worker.", "state."))
        } | {"client.ssl.ca": str(self.ca), "worker.isolation-timeout": f"{isolation:g} s"}
        if workers:
            self.options["worker.embedded"] = "false"
        self.token = self._make_token()
        self._ending = threading.Event()
        self._tending: threading.Thread | None = None
        self._workers = [HostedWorker(network[name], self) for name in workers]
        self._nodes = [
            HostedNode(network[name], self.options, self.ca, command=command, environment=environment) for name in hosts
        ]

    @property
    def cluster_id(self) -> str:
        return self.options.get("high-availability.cluster-id", "default")

    @property
    def data_dir(self) -> Path:
        """Of the first node; those of the others are below the files of their hosts."""
        return self._nodes[0].host.files / "data"

    def sites(self) -> list[Site]:
        of_nodes = [Site(n.host.name, n.host.files / "data", self.cluster_id, n.host.lives) for n in self._nodes]
        return [*of_nodes, *(worker.site for worker in self._workers)]

    @property
    def addresses(self) -> list[str]:
        return [node.address for node in self._nodes]

    def nodes(self) -> list[HostedNode]:
        return list(self._nodes)

    def workers(self) -> list[HostedWorker]:
        return list(self._workers)

    def worker_token(self, name: str) -> str:
        """A token with which one worker joins."""
        said: list[str] = []
        for address in self.addresses:
            with contextlib.suppress(httpx.HTTPError, ValueError, KeyError):
                asked = httpx.post(
                    f"{address}/workers/tokens",
                    json={"name": name},
                    headers={"authorization": f"Bearer {self.token}"},
                    timeout=ASK_SECONDS,
                    verify=trust(self.ca),
                )
                said.append(asked.text[:300])
                return str(asked.json()["token"])
        raise ChaosError(f"no token for worker {name} could be made: {said}")

    def client(self) -> ClusterClient:
        return ClusterClient(self.addresses, token=self.token, ca=self.ca)

    def start(self) -> None:
        """All nodes that do not run, at the same time."""
        started = [node for node in self._nodes if not node.alive]
        for node in started:
            node.start_process()
        for node in started:
            node.wait_until_serving()
        if self._workers:
            self._wait_for_leader()
        for worker in self._workers:
            worker.start()
        if self._workers and self._tending is None:
            self._tending = threading.Thread(target=self._tend, name="chaos-workers", daemon=True)
            self._tending.start()

    def _tend(self) -> None:
        while not self._ending.wait(1.0):
            for worker in self._workers:
                with contextlib.suppress(ChaosError, OSError):
                    worker.keep_running()

    def _wait_for_leader(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not answers(self):
            if time.monotonic() > deadline:
                raise ChaosError(f"no node led within {START_SECONDS:g} s:\n{tail(self._nodes[0].log)}")
            time.sleep(0.05)

    def close(self) -> None:
        self._ending.set()
        if self._tending is not None:
            self._tending.join()
        for node in self._nodes:
            with contextlib.suppress(OSError, ChaosError):
                node.terminate()
        for host in [*(node.host for node in self._nodes), *(worker.host for worker in self._workers)]:
            host.crash()

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
        """In the file that all nodes share."""
        usual = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
        keys = ("data.dir", "security.rest.tokens-file")
        argv = [*TOKEN_COMMAND, *(f"-D{key}={self.options[key]}" for key in keys)]
        made = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, env=usual)
        token = next((word for word in made.stdout.split() if word.startswith("fst_")), None)
        if made.returncode != 0 or token is None:
            raise ChaosError(f"no token could be made: {made.stdout}{made.stderr}")
        return token
