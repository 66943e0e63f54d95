"""Nodes on hosts of our own: one process on each, with files of its own, which the others reach over the bridge by TLS."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx

from firesteel.client.cluster import ClusterClient
from firesteel.fs.files import tail
from firesteel.layout import ClusterLayout
from firesteel_chaos.cluster import END_SECONDS, NODE, OPTIONS, START_SECONDS, TOKEN_COMMAND
from firesteel_chaos.controlled import ChaosError, Line, trust
from firesteel_chaos.hosts.certificates import ClusterCertificate, make_certificate
from firesteel_chaos.hosts.host import HostProcess, StagedHost
from firesteel_chaos.hosts.network import HostNetwork

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


class HostedCluster:
    """A node on each of some hosts. Entered, they run; left, they are ended, with everything else on their hosts.

    What the nodes share is what hosts share: the store, and `network.shared` as a file system of all.

    Args:
        network: entered by the caller, who leaves it after the cluster.
        hosts: the names of those that have a node.
        options: of all nodes, over those of `OPTIONS`; they name a store that the hosts reach.
    """

    def __init__(
        self,
        network: HostNetwork,
        hosts: Sequence[str],
        *,
        options: Mapping[str, str],
        lease: float = 4.0,
        command: Sequence[str] = NODE,
        environment: Mapping[str, str] | None = None,
        abilities: frozenset[str] = frozenset(),
    ) -> None:
        self.network = network
        self.lease = lease
        self.abilities = abilities | {"kill", "pause", "terminate", "hosts"}
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
        self.token = self._make_token()
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

    def home_on(self, host: StagedHost) -> Path:
        """Where jobs and engines of a host are, as this machine sees it."""
        return ClusterLayout.below(host.files / "data", self.cluster_id).home

    @property
    def addresses(self) -> list[str]:
        return [node.address for node in self._nodes]

    def nodes(self) -> list[HostedNode]:
        return list(self._nodes)

    def client(self) -> ClusterClient:
        return ClusterClient(self.addresses, token=self.token, ca=self.ca)

    def start(self) -> None:
        """All nodes that do not run, at the same time."""
        started = [node for node in self._nodes if not node.alive]
        for node in started:
            node.start_process()
        for node in started:
            node.wait_until_serving()

    def close(self) -> None:
        for node in self._nodes:
            with contextlib.suppress(OSError, ChaosError):
                node.terminate()
        for node in self._nodes:
            node.host.crash()

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
