"""The model of a fault, and of the world that it acts on."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from firesteel.engines.record import EngineDirectory, EngineRecord
from firesteel.layout import ClusterLayout
from firesteel.processes import ProcessIdentity
from firesteel_chaos.controlled import ControlledCluster, ControlledNode, answers, leader_of, leading_node
from firesteel_chaos.history import History
from firesteel_chaos.sightings import over_since

T = TypeVar("T")

ABILITIES = {
    "kill": "nodes can be killed and started",
    "pause": "nodes can be paused and resumed",
    "terminate": "nodes can be terminated gracefully",
    "processes": "drivers, engines and the data directory are on this host and may be harmed",
    "limits": "nodes are processes of this host whose limits can be set (Linux)",
    "command": "nodes can be started by another command",
    "failing-node": "that command can run a node with another time of day",
    "orders": "nodes can be told to crash at a write to the store",
    "clients": "the line from a node to clients and to the other nodes can be cut",
    "bad-clients": "that line can also be degraded without being cut",
    "store": "the line from a node to the store can be cut",
    "bad-store": "that line can also be degraded without being cut",
    "records": "records can be written to the store past the cluster",
    "sqlite": "the store is an SQLite file on this host",
    "small-disk": "the data directory is on its own disk, which can be filled",
    "zookeeper": "the ZooKeeper servers may be harmed",
    "postgresql": "the PostgreSQL server may be harmed",
    "hosts": "nodes are on simulated hosts, which can crash, freeze and be cut off",
    "workers": "jobs run on workers, which are on such hosts too",
}


class NoTargetError(Exception):
    """The fault has no target right now: there is no leader, or no driver runs."""


class Records(Protocol):
    """Writes to the store past the cluster (`chaos.records`)."""

    def put(self, path: str, value: bytes) -> None: ...

    def delete(self, path: str) -> None: ...


class Pressure(Protocol):
    """The load, as far as faults know it."""

    def pressure(self, factor: int) -> None: ...


@dataclass
class World:
    """What faults act on. One thread plays; a fault may have others of its own while it lasts."""

    cluster: ControlledCluster
    history: History
    root: Path
    """For files of the faults' own."""
    draw: random.Random
    load: Pressure | None = None
    records: Records | None = None
    failing_node: tuple[str, ...] = ()
    """The command of a node that fails as told by its environment."""
    orders: Path | None = None
    """The file that tells nodes at which write to crash."""
    patience: float = 20.0
    """How long a fault waits for what it needs, in seconds."""
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    # -- nodes ------------------------------------------------------------------------------------------------------

    def leader(self) -> ControlledNode:
        """The node that leads; waits a moment for one. Raises NoTargetError."""
        return self.wait_for(lambda: leading_node(self.cluster), 5.0, "there is no leader")

    def follower(self) -> ControlledNode:
        leader = leader_of(self.cluster)
        others = [n for n in self.alive_nodes() if leader is None or n.address != leader.address]
        if not others:
            raise NoTargetError("there is no node that does not lead")
        return self.draw.choice(others)

    def alive_nodes(self) -> list[ControlledNode]:
        return [node for node in self.cluster.nodes() if node.alive]

    def wait_for_leader_other_than(self, node: ControlledNode, timeout: float) -> bool:
        """True once another one leads."""

        def other() -> bool | None:
            found = leading_node(self.cluster)
            return True if found is not None and found.name != node.name else None

        try:
            return self.wait_for(other, timeout, "")
        except NoTargetError:
            return False

    # -- drivers and engines ----------------------------------------------------------------------------------------

    @property
    def home(self) -> Path:
        return ClusterLayout.below(self.cluster.data_dir, self.cluster.cluster_id).home

    def attempts(self) -> Iterator[tuple[str, Path, ProcessIdentity]]:
        """Job, directory and driver of each attempt that has one; the driver may be gone."""
        for file in sorted(self.home.glob("jobs/*/attempts/*/driver.json")):
            with contextlib.suppress(OSError, ValueError, KeyError):
                found = json.loads(file.read_text())
                yield file.parents[2].name, file.parent, ProcessIdentity(found["pid"], found["started"])

    def drivers(self, *loads: str) -> list[tuple[str, Path, ProcessIdentity]]:
        """Those at work on an attempt that has no result, of jobs of these kinds of load."""
        wanted = self.jobs_of(*loads) if loads else None
        return [
            (job, directory, driver)
            for job, directory, driver in self.attempts()
            if driver.alive and over_since(directory) is None and (wanted is None or job in wanted)
        ]

    def driver(self, *loads: str) -> tuple[str, Path, ProcessIdentity]:
        """One that runs, waiting a moment for one. Raises NoTargetError."""
        what = f"no driver runs ({' or '.join(loads) or 'any'})"
        found = self.wait_for(lambda: self.drivers(*loads) or None, self.patience / 2, what)
        return self.draw.choice(found)

    def engine(self) -> EngineRecord:
        alive = EngineDirectory(self.home).alive()
        if not alive:
            raise NoTargetError("no engine runs")
        return self.draw.choice(alive)

    def jobs_of(self, *loads: str) -> set[str]:
        return {e["job"] for e in self.history.events() if e.kind == "job" and e["load"] in loads}

    def stream(self) -> str:
        """A streaming job whose driver runs."""
        return self.driver("streaming")[0]

    def wait_for_answer(self, timeout: float = 20.0) -> bool:
        """True once a leader is asked and answers."""
        try:
            return self.wait_for(lambda: answers(self.cluster) or None, timeout, "")
        except NoTargetError:
            return False

    # -- waiting ----------------------------------------------------------------------------------------------------

    @staticmethod
    def wait_for(look: Callable[[], T | None], timeout: float, what: str) -> T:
        """What `look` gives once it gives something. Raises NoTargetError."""
        deadline = time.monotonic() + timeout
        while (found := look()) is None:
            if time.monotonic() > deadline:
                raise NoTargetError(what)
            time.sleep(0.05)
        return found


@dataclass
class Strike:
    """One use of a fault."""

    world: World
    fault: Fault
    hold: float
    """How long it is to last, in seconds."""
    id: int = 0
    begun: bool = False
    began_at: float = 0.0
    checks: list[Callable[[], None]] = field(default_factory=list)
    cleanups: list[Callable[[], None]] = field(default_factory=list)

    def later(self, check: Callable[[], None]) -> None:
        """Have something looked at once all faults are healed and the cluster answers."""
        self.checks.append(check)

    def finally_(self, cleanup: Callable[[], None]) -> None:
        """Have something taken away once the checks are done, or the round is given up."""
        self.cleanups.append(cleanup)

    def begin(
        self,
        target: str,
        jobs: Sequence[str] = (),
        what: str | None = None,
        *,
        harms: Collection[str] | None = None,
        **more: object,
    ) -> None:
        """To be called right before something is done: what is seen from now on may come of it.

        Args:
            harms: instead of what the fault usually harms.
        """
        self.begun = True
        self.began_at = time.monotonic()
        self.world.history.record(
            "fault",
            id=self.id,
            name=self.fault.name,
            variant=self.fault.variant,
            what=what or self.fault.what,
            target=target,
            harms=sorted(self.fault.harms if harms is None else harms),
            jobs=list(jobs),
            **more,
        )

    def last(self, seconds: float) -> None:
        """Wait until it has lasted so long."""
        time.sleep(max(0.0, self.began_at + seconds - time.monotonic()))

    def expect(self, held: bool, what: str, invariant: str) -> None:
        """Write down whether something held that only the fault itself can tell."""
        self.world.history.record("expectation", fault=self.id, what=what, held=held, invariant=invariant)

    def note(self, what: str) -> None:
        """Write down what became of it, for whoever reads the history."""
        self.world.history.record("note", fault=self.id, what=what)

    @contextlib.contextmanager
    def meanwhile(self, work: Callable[[threading.Event], None]) -> Iterator[None]:
        """Have `work` done in a thread until the block is left; it ends when its event is set. Its error is raised here."""
        over = threading.Event()
        errors: list[BaseException] = []

        def run() -> None:
            try:
                work(over)
            except NoTargetError:
                pass
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, name=f"fault-{self.fault.key}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if errors:
            raise errors[0]


Injection = Callable[[World, Strike], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that can be done to a cluster. It is injected when `inject` is entered, and healed when that is left."""

    name: str
    """As in the list of faults, F1 to F29."""
    variant: str
    what: str
    inject: Injection = field(compare=False)
    needs: frozenset[str] = frozenset()
    harms: frozenset[str] = frozenset()
    """What may be hit: nodes, drivers, engines, store, quorum, network, clients, disk, hosts. `frozen`: drivers stand still, or
    run on with nobody to end them."""
    hold: tuple[float, float] = (0.5, 3.0)
    """For how long, at least and at most, in seconds."""
    leases: bool = False
    """`hold` is in leases, not in seconds."""
    weight: float = 1.0
    """How often it is drawn; below one for what costs much time."""

    @property
    def key(self) -> str:
        return f"{self.name}/{self.variant}"


def fault(
    name: str,
    variant: str,
    what: str,
    *,
    needs: str,
    harms: str,
    hold: tuple[float, float] = (0.5, 3.0),
    leases: bool = False,
    weight: float = 1.0,
) -> Callable[[Callable[[World, Strike], Iterator[None]]], Fault]:
    """Makes a Fault of a generator that injects, yields and heals. Words of `needs` and `harms` have spaces between them."""

    def made(work: Callable[[World, Strike], Iterator[None]]) -> Fault:
        unknown = set(needs.split()) - set(ABILITIES)
        assert not unknown, unknown
        return Fault(
            name,
            variant,
            what,
            contextlib.contextmanager(work),
            frozenset(needs.split()),
            frozenset(harms.split()),
            hold,
            leases,
            weight,
        )

    return made
