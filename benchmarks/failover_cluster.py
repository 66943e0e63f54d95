"""A cluster of several real nodes on one machine, for `failover.py`: its store, its node processes, and what runs under them.

All that is judged is looked at from outside the control plane: processes, files of attempts, the store itself, the engines.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from tests.support.postgresql import servers
from tests.support.zookeeper import ZooKeeperQuorum

from firesteel.attempts.attempt import AttemptDirectory
from firesteel.attempts.events import ProgressTail
from firesteel.client.cluster import ClusterClient
from firesteel.config import load_configuration
from firesteel.config.sections import Role
from firesteel.engines.api import EngineApi
from firesteel.engines.launcher import stop_engine
from firesteel.engines.record import EngineDirectory, EngineRecord
from firesteel.fs.files import tail
from firesteel.ha.services import open_high_availability
from firesteel.hosts import this_user
from firesteel.ports import unused_ports
from firesteel.processes import ProcessIdentity, end
from firesteel.rest.security.principals import EVERYBODY
from firesteel.rest.security.tokens import TokenFile

BACKENDS = ("zookeeper", "postgresql", "sqlite")
PREFIXES = ("graphs", "jobs", "results", "operations", "parked", "uploads", "secrets")
_GRANTED = re.compile(r"^(\S+ \S+) .*leadership granted: epoch (\d+)", re.MULTILINE)
_TAKEN_OVER = re.compile(r"^(\S+ \S+) .*all (\d+) jobs of earlier leaders are taken over", re.MULTILINE)


@contextlib.contextmanager
def store(backend: str, root: Path, lease: float) -> Iterator[dict[str, str]]:
    """The options of a store that lives for as long as the block: a quorum of three, one database server, or a file."""
    match backend:
        case "zookeeper":
            with ZooKeeperQuorum(root / "zookeeper") as quorum:
                yield {
                    "high-availability.type": "zookeeper",
                    "high-availability.zookeeper.quorum": quorum.hosts,
                    "high-availability.zookeeper.client.session-timeout": f"{lease:g} s",
                    "high-availability.storageDir": str(root / "large"),
                }
        case "postgresql":
            with servers() as server:
                yield {"high-availability.sql.url": server.url, "high-availability.lease-duration": f"{lease:g} s"}
        case _:
            yield {"high-availability.lease-duration": f"{lease:g} s"}


@dataclass(frozen=True, slots=True)
class Life:
    """What must not change when the control plane dies: who runs a job, as which query, on which engines."""

    drivers: dict[str, ProcessIdentity | None]
    runs: dict[str, str]
    attempts: dict[str, int]
    engines: dict[str, ProcessIdentity | None]


class Nodes:
    """Node processes of one cluster, each at a port of its own. Whatever they started ends with the block."""

    def __init__(self, root: Path, options: dict[str, str], count: int = 3) -> None:
        data = root / "data"
        data.mkdir(parents=True)
        self.root = root
        self.home = data / "clusters" / "default"
        self.token = TokenFile(data / "tokens.json").create(this_user(), Role.ADMIN, EVERYBODY)
        self.ports = unused_ports(count)
        self.options = {
            "data.dir": str(data),
            "engine.reuse": "false",
            # A starved engine is not what is measured here.
            "heartbeat.timeout": "300 s",
            "engine.start-timeout": "600 s",
            "rest.rate-limit.requests-per-second": "100000",
            "rest.rate-limit.burst": "100000",
            "rest.rate-limit.submissions-per-second": "100000",
            **options,
        }
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * count
        self.http = httpx.Client(headers={"Authorization": f"Bearer {self.token}"}, timeout=5, trust_env=False)

    def __enter__(self) -> Nodes:
        for number in range(len(self.ports)):
            self.start(number)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process is not None and process.poll() is None:
                process.kill()
                process.send_signal(signal.SIGCONT)
                process.wait(30)
        for driver in set(self.drivers().values()) - {None}:
            if driver is not None and driver.alive:
                end(driver, grace=0)
        directory = EngineDirectory(self.home)
        for record in directory.alive():
            stop_engine(directory, record, grace=0)
        self.http.close()

    # -- processes ------------------------------------------------------------------------------------------------

    def log(self, number: int) -> Path:
        return self.root / f"node-{number}.log"

    def address(self, number: int) -> str:
        return f"http://127.0.0.1:{self.ports[number]}"

    @property
    def addresses(self) -> list[str]:
        return [self.address(n) for n in range(len(self.ports))]

    def start(self, number: int) -> None:
        definitions = {**self.options, "rest.port": str(self.ports[number])}
        with self.log(number).open("ab") as output:
            self.processes[number] = subprocess.Popen(
                [sys.executable, "-m", "firesteel.entrypoint", *(f"-D{k}={v}" for k, v in definitions.items())],
                stdout=output,
                stderr=output,
                env=self.environment,
                start_new_session=True,
            )

    def process(self, number: int) -> subprocess.Popen[bytes]:
        found = self.processes[number]
        assert found is not None
        return found

    def restart(self, number: int) -> None:
        """A node that has ended is started again; returns when it serves as a follower."""
        self.process(number).wait(60)
        self.start(number)
        self.until(lambda: self.status(number) is not None, f"node {number} did not come back")

    def until(self, condition: Any, what: str, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(f"node {n}\n{tail(self.log(n), lines=20)}" for n in range(len(self.ports)))
                raise TimeoutError(f"{what} within {seconds:g} s\n{logs}")
            time.sleep(0.02)

    # -- asking ---------------------------------------------------------------------------------------------------

    def client(self) -> ClusterClient:
        return ClusterClient(self.addresses, token=self.token)

    def get(self, number: int, path: str) -> Any:
        """What a node answers; None when it does not, or not with 200."""
        try:
            answer = self.http.get(f"{self.address(number)}{path}")
        except httpx.HTTPError:
            return None
        return answer.json() if answer.status_code == 200 else None

    def status(self, number: int) -> Any:
        return self.get(number, "/cluster/status")

    def leader(self) -> int:
        """The node that leads, once all that run agree on one that serves."""
        found = -1

        def agreed() -> bool:
            nonlocal found
            running = [n for n, p in enumerate(self.processes) if p is not None and p.poll() is None]
            told = {((self.status(n) or {}).get("leader") or {}).get("address") for n in running}
            if len(told) != 1 or (address := told.pop()) not in self.addresses:
                return False
            found = self.addresses.index(address)
            return found in running and self.get(found, "/jobs/overview") is not None

        self.until(agreed, "no leader that all agree on")
        return found

    def granted(self) -> dict[int, tuple[int, float]]:
        """By epoch: the node that was granted it, and when, as the nodes' logs say."""
        return {
            int(epoch): (number, _seconds(at))
            for number in range(len(self.ports))
            for at, epoch in _GRANTED.findall(self.log(number).read_text(errors="replace"))
        }

    def taken_over(self, number: int, after: float) -> float | None:
        """When a node said that all recovered jobs are taken over."""
        times = [_seconds(at) for at, _ in _TAKEN_OVER.findall(self.log(number).read_text(errors="replace"))]
        return next((t for t in times if t >= after), None)

    # -- looking --------------------------------------------------------------------------------------------------

    def directories(self) -> Iterator[tuple[str, AttemptDirectory]]:
        for attempt in sorted((self.home / "jobs").glob("*/attempts/*")):
            yield f"{attempt.parents[1].name}/{attempt.name}", AttemptDirectory(attempt)

    def drivers(self) -> dict[str, ProcessIdentity | None]:
        return {name: directory.read_driver() for name, directory in self.directories()}

    def life(self, jobs: set[str]) -> Life:
        mine = [(name, d) for name, d in self.directories() if name.partition("/")[0] in jobs]
        runs = {
            f"{name}/{sink}": str(run)
            for name, d in mine
            for sink, run in ProgressTail(d.events).look().get("query_runs", {}).items()
        }
        attempts: dict[str, int] = {}
        for name, _ in mine:
            attempts[name.partition("/")[0]] = attempts.get(name.partition("/")[0], 0) + 1
        engines = {r.engine_id: r.process for r in self.engines()}
        return Life({name: d.read_driver() for name, d in mine}, runs, attempts, engines)

    def engines(self) -> list[EngineRecord]:
        return EngineDirectory(self.home).alive()

    def groups(self) -> set[str]:
        """Who has ever started a Spark job, as the engines' monitoring API tells: a query's run id, or a session."""
        return {
            f"{engine.engine_id}/{job.get('jobGroup', '')}"
            for engine in self.engines()
            for job in EngineApi(engine, timeout=30).get("jobs") or ()
        }

    def stored(self) -> dict[str, tuple[int, bytes]]:
        """Everything in the store, by path, with versions: read past every node."""

        async def read() -> dict[str, tuple[int, bytes]]:
            services = await open_high_availability(
                load_configuration(overrides=self.options, environ=self.environment)
            )
            try:
                found = [await services.store.list(prefix) for prefix in PREFIXES]
                return {path: (s.version, s.value) for part in found for path, s in part.items()}
            finally:
                await services.close()

        return asyncio.run(read())


def _seconds(logged: str) -> float:
    return datetime.strptime(logged, "%Y-%m-%d %H:%M:%S,%f").timestamp()  # noqa: DTZ007 - as the log has it
