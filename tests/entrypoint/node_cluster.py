"""Several nodes of one cluster, each a process of its own, and clients that find them by themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.waiting import until

from firesteel.client.cluster import ClusterClient
from firesteel.client.discovery import connect, find_nodes
from firesteel.client.errors import ClusterError
from firesteel.client.model import ClusterStatus
from firesteel.config import Configuration, load_configuration
from firesteel.errors import FiresteelError
from firesteel.types import new_job_id

DEADLINE = 60.0
GRAPH = {
    "name": "waits",
    "vertices": [
        {"kind": "sql", "name": "one", "query": "SELECT 1 AS x"},
        {"kind": "sink", "name": "out", "input": "one", "format": "noop", "mode": "overwrite"},
    ],
}


class Node:
    """A process of `python -m firesteel.entrypoint`, serving."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, address: str) -> None:
        self.process = process
        self.log = log
        self.address = address

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(DEADLINE)


class NodeCluster:
    """`options` are those of the high-availability backend.

    There is one slot, on an engine that never answers: the first job runs for good there, and all others wait.
    """

    def __init__(self, directory: Path, options: Mapping[str, str]) -> None:
        self.directory = directory
        self.nodes: list[Node] = []
        self._started = 0
        self._silence = socket.create_server(("127.0.0.1", 0))
        """The engine: somebody listens, and never answers."""
        self._definitions = {
            "data.dir": str(directory / "data"),
            "rest.port": "0",
            "engine.master": f"sc://127.0.0.1:{self._silence.getsockname()[1]}",
            "engine.slots": "1",
            "engine.max": "1",
            "client.timeout": "60 s",
            "rest.rate-limit.requests-per-second": "100000",
            "rest.rate-limit.submissions-per-second": "100000",
            **options,
        }
        self._environ = {k: v for k, v in os.environ.items() if not k.startswith(("FIRESTEEL_", "XDG_"))}
        self._environ["HOME"] = str(directory)

    def configuration(self, **more: str) -> Configuration:
        """As a client on this machine has it, who names no addresses. `more` with `__` for a dot, `_` for a dash."""
        overrides = {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}
        return load_configuration(overrides={**self._definitions, **overrides}, environ={"HOME": str(self.directory)})

    def start(self) -> Node:
        """One more node; returns when it serves."""
        self._started += 1
        log = self.directory / f"node-{self._started}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "firesteel.entrypoint", *(f"-D{k}={v}" for k, v in self._definitions.items())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                env=self._environ,
            )
        node = Node(process, log, "")
        self.nodes.append(node)

        def serves() -> bool:
            assert process.poll() is None, node.said
            found = [n.address for n in find_nodes(self.configuration()) if n.process.pid == process.pid]
            node.address = found[0] if found else ""
            return bool(found)

        until(serves, lambda: f"the node does not serve:\n{node.said}")
        return node

    def client(self, **more: str) -> ClusterClient:
        return connect(self.configuration(**more))

    def status(self, node: Node | None = None) -> ClusterStatus:
        """Of the cluster, as `node` tells it."""
        if node is None:
            with self.client() as client:
                return client.cluster_status()
        token = next(n.token for n in find_nodes(self.configuration()) if n.address == node.address)
        with ClusterClient(node.address, token=token, timeout=10) as client:
            return client.cluster_status()

    def leader(self) -> Node:
        """The node that leads, once one does."""
        found: list[Node] = []

        def leads() -> bool:
            with contextlib.suppress(ClusterError):
                address = self.status().leader
                found[:] = [n for n in self.nodes if n.address == address]
            return bool(found)

        until(leads, lambda: "no node leads:\n" + "\n".join(n.said[-2000:] for n in self.nodes))
        return found[0]

    def close(self) -> None:
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.send_signal(signal.SIGCONT)
                node.kill()
        self._silence.close()
        for pid in self.drivers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def drivers(self) -> list[int]:
        """Processes of jobs, which outlive their node: they work in the directories of their jobs."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                place = (directory / "cwd").readlink()
                if place.is_relative_to(self.directory / "data") and "jobs" in place.parts:
                    found.append(int(directory.name))
        return found


@dataclass
class Submitted:
    """What the clients of `submitting` have seen."""

    acknowledged: list[str] = field(default_factory=list)
    """Ids, in the order of their answers."""
    errors: list[FiresteelError] = field(default_factory=list)
    slowest: float = 0.0
    """Of all requests, in seconds."""
    reads: int = 0


@contextlib.contextmanager
def submitting(cluster: NodeCluster, *, threads: int = 3) -> Iterator[Submitted]:
    """Clients that submit, each job under an id of its own, and read what they submitted, for as long as the block lasts."""
    seen = Submitted()
    over = threading.Event()
    lock = threading.Lock()

    def work() -> None:
        with cluster.client() as client:
            while not over.is_set():
                job_id = new_job_id()
                began = time.monotonic()
                try:
                    client.submit(GRAPH, job_id=job_id)
                    between = time.monotonic()
                    known = client.job(job_id).status()
                except FiresteelError as error:
                    with lock:
                        seen.errors.append(error)
                    continue
                with lock:
                    seen.acknowledged.append(job_id)
                    seen.reads += known is not None
                    seen.slowest = max(seen.slowest, between - began, time.monotonic() - between)
                over.wait(0.02)

    workers = [threading.Thread(target=work, name=f"client-{n}") for n in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield seen
    finally:
        over.set()
        for worker in workers:
            worker.join(DEADLINE * 2)
