"""What happens to drivers and engines: F13, F14, F15 and F18."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from firesteel.processes import ProcessIdentity
from firesteel_chaos.controlled import ControlledNode
from firesteel_chaos.faults.model import NoTargetError, Strike, World, fault
from firesteel_chaos.faults.nodes import down
from firesteel_chaos.sightings import over_since

ZYGOTE = b"firesteel.driver.zygote"


@fault("F13", "kill-driver", "SIGKILL of a driver", needs="processes", harms="drivers", hold=(0.0, 1.0))
def kill_driver(world: World, strike: Strike) -> Iterator[None]:
    job, _, driver = world.driver()
    strike.begin(job, [job])
    driver.signal(signal.SIGKILL)
    yield


@fault(
    "F13",
    "kill-driver-and-leader",
    "SIGKILL of a driver and of the leader in the same moment",
    needs="processes kill",
    harms="drivers nodes",
    hold=(0.0, 1.5),
)
def kill_driver_and_leader(world: World, strike: Strike) -> Iterator[None]:
    node = world.leader()
    job, _, driver = world.driver()
    strike.begin(job, [job], what=f"SIGKILL of a driver and of {node.name}")
    driver.signal(signal.SIGKILL)
    with down(node):
        yield


@fault(
    "F13",
    "driver-without-memory",
    "a driver gets no more memory, and is killed for it in the end",
    needs="processes limits",
    harms="drivers",
    hold=(1.0, 3.0),
)
def driver_without_memory(world: World, strike: Strike) -> Iterator[None]:
    job, _, driver = world.driver()
    strike.begin(job, [job])
    try:
        with limited(driver.pid, resource.RLIMIT_AS, 1 << 20):
            yield
    finally:
        # As the kernel does. One that got away may hang for good: a thread that it needs could not be started.
        driver.signal(signal.SIGKILL)


@fault("F13", "kill-engine", "SIGKILL of an engine", needs="processes", harms="engines", hold=(0.0, 1.0), weight=0.25)
def kill_engine(world: World, strike: Strike) -> Iterator[None]:
    engine = world.engine()
    assert engine.process is not None
    strike.begin(engine.engine_id)
    engine.process.signal(signal.SIGKILL)
    yield


@fault(
    "F13",
    "kill-zygote",
    "SIGKILL of the process that the leader has its drivers forked by",
    needs="processes",
    harms="nodes",
    hold=(0.0, 1.0),
)
def kill_zygote(world: World, strike: Strike) -> Iterator[None]:
    node = world.leader()
    zygote = _zygote(node)
    strike.begin(node.name)
    zygote.signal(signal.SIGKILL)
    yield


@fault("F14", "silent-driver", "SIGSTOP of a driver, then SIGCONT", needs="processes", harms="", hold=(1.0, 6.0))
def silent_driver(world: World, strike: Strike) -> Iterator[None]:
    job, _, driver = world.driver()
    strike.begin(job, [job])
    driver.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        driver.signal(signal.SIGCONT)


@fault(
    "F14",
    "silent-engine",
    "SIGSTOP of an engine for less than heartbeat.timeout, then SIGCONT",
    needs="processes",
    harms="",
    hold=(1.0, 6.0),
)
def silent_engine(world: World, strike: Strike) -> Iterator[None]:
    process = world.engine().process
    assert process is not None
    strike.begin(world.engine().engine_id)
    process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.signal(signal.SIGCONT)


@fault(
    "F15",
    "end-unseen",
    "a driver ends while no node runs",
    needs="processes kill",
    harms="nodes",
    hold=(0.0, 0.5),
)
def end_unseen(world: World, strike: Strike) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        _end_unseen(world, strike, stack)
        yield


@fault(
    "F15",
    "record-deleted",
    "a driver ends while no node runs, and the record of its process is deleted",
    needs="processes kill",
    harms="nodes",
    hold=(0.0, 0.5),
)
def record_deleted(world: World, strike: Strike) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for directory in _end_unseen(world, strike, stack):
            (directory / "driver.json").unlink(missing_ok=True)
        yield


def _end_unseen(world: World, strike: Strike, stack: contextlib.ExitStack) -> list[Path]:
    """Kill all nodes and wait until some driver has ended by itself. Gives the directories of attempts that ended so."""
    nodes = world.alive_nodes()
    world.driver("batch", "script")
    strike.begin("all nodes")
    stack.enter_context(down(*nodes))
    running = world.drivers("batch", "script")

    def ended() -> list[Path] | None:
        found = [d for _, d, driver in running if not driver.alive and over_since(d) is not None]
        return found or None

    try:
        return world.wait_for(ended, world.patience, "no driver ended")
    except NoTargetError:
        return []


@fault(
    "F18",
    "pid-reused",
    "the pid of a dead driver is a stranger's by the time that the next leader looks",
    needs="processes kill",
    harms="drivers nodes",
    hold=(0.5, 2.0),
)
def pid_reused(world: World, strike: Strike) -> Iterator[None]:
    node = world.leader()
    job, directory, driver = world.driver()
    others = [n for n in world.alive_nodes() if n.name != node.name]
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)

    def end_stranger() -> None:
        stranger.kill()
        stranger.wait()

    def check() -> None:
        strike.expect(stranger.poll() is None, f"the stranger with the pid of job {job}'s driver is left alone", "I2")

    strike.finally_(end_stranger)
    strike.later(check)
    strike.begin(job, [job], stranger=stranger.pid)
    with down(node, *others):
        driver.signal(signal.SIGKILL)
        driver.wait(5)
        # Whoever observes finds the stranger's pid from now on, and would not learn how this one ended.
        world.history.record(
            "driver", job=job, attempt=int(directory.name), pid=driver.pid, started=driver.started, alive=False
        )
        with contextlib.suppress(OSError, ValueError):
            file = directory / "driver.json"
            said = json.loads(file.read_text())
            file.write_text(json.dumps({**said, "pid": stranger.pid}))
        yield


@fault(
    "F18",
    "port-reused",
    "an engine dies, and a stranger listens on its port",
    needs="processes",
    harms="engines",
    hold=(3.0, 6.0),
    weight=0.2,
)
def port_reused(world: World, strike: Strike) -> Iterator[None]:
    engine = world.engine()
    assert engine.process is not None
    strike.begin(engine.engine_id)
    engine.process.signal(signal.SIGKILL)
    engine.process.wait(5)

    def listen(over: threading.Event) -> None:
        with contextlib.ExitStack() as stack:
            listener = _listener(engine.host, engine.port, over)
            if listener is None:
                return
            stack.enter_context(listener)
            listener.settimeout(0.2)
            while not over.is_set():
                with contextlib.suppress(TimeoutError, OSError):
                    connection, _ = listener.accept()
                    stack.enter_context(connection)
                    connection.sendall(b"220 not what you are looking for\r\n")

    with strike.meanwhile(listen):
        yield


def _listener(host: str, port: int, over: threading.Event) -> socket.socket | None:
    while not over.wait(0.05):
        try:
            return socket.create_server((host, port))
        except OSError:
            continue
    return None


def _zygote(node: ControlledNode) -> ProcessIdentity:
    for pid in children_of(node.pid):
        with contextlib.suppress(OSError):
            if ZYGOTE in Path(f"/proc/{pid}/cmdline").read_bytes() and (found := ProcessIdentity.of(pid)) is not None:
                return found
    raise NoTargetError(f"node {node.name} has no process that forks drivers")


def children_of(pid: int | None) -> list[int]:
    """Its children and theirs, as far as they can be seen."""
    if pid is None:
        return []
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *children_of(int(child))]
    return found


@contextlib.contextmanager
def limited(pid: int, what: int, value: int) -> Iterator[None]:
    """The soft limit only, which can be raised again."""
    try:
        before = resource.prlimit(pid, what)
        resource.prlimit(pid, what, (value, before[1]))
    except OSError:
        raise NoTargetError(f"process {pid} is gone") from None
    try:
        yield
    finally:
        for each in [pid, *children_of(pid)]:
            with contextlib.suppress(OSError):
                resource.prlimit(each, what, before)


FAULTS = (
    kill_driver,
    kill_driver_and_leader,
    driver_without_memory,
    kill_engine,
    kill_zygote,
    silent_driver,
    silent_engine,
    end_unseen,
    record_deleted,
    pid_reused,
    port_reused,
)
