"""What clients do, and what happens to them half-way: F19, F20 and F23."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx

from firesteel.client.cluster import ClusterClient
from firesteel.client.errors import ClusterError
from firesteel.client.operations import SAVEPOINT
from firesteel.errors import DuplicateJobError, FiresteelError, OperationNotFoundError, SavepointError
from firesteel.types import JobID
from firesteel_chaos.controlled import BadLine, trust
from firesteel_chaos.faults.model import NoTargetError, Strike, World, fault
from firesteel_chaos.faults.nodes import down

UPLOAD_BYTES = 4 << 20
COPIES = 3
"""How often each node is sent the same submission."""


def graph(name: str, number: int) -> dict[str, Any]:
    """A job that ends in a moment."""
    return {
        "name": name,
        "vertices": [
            {"kind": "sql", "name": "one", "query": f"SELECT {number} AS x"},
            {"kind": "sink", "name": "out", "input": "one", "format": "noop", "mode": "overwrite"},
        ],
    }


@fault(
    "F19",
    "mid-upload",
    "SIGKILL of the leader while a file is uploaded",
    needs="kill",
    harms="nodes",
    hold=(0.2, 1.5),
)
def mid_upload(world: World, strike: Strike) -> Iterator[None]:
    content = world.draw.randbytes(UPLOAD_BYTES)
    key = hashlib.sha256(content).hexdigest()
    node = world.leader()
    half, killed = threading.Event(), threading.Event()

    def body() -> Iterator[bytes]:
        yield content[: UPLOAD_BYTES // 2]
        half.set()
        killed.wait(10)
        yield content[UPLOAD_BYTES // 2 :]

    def upload(_: threading.Event) -> None:
        headers = {"authorization": f"Bearer {world.cluster.token}", "content-type": "application/octet-stream"}
        with contextlib.suppress(httpx.HTTPError):
            httpx.post(
                f"{node.address}/blobs",
                content=body(),
                headers={**headers, "x-content-sha256": key},
                timeout=10,
                verify=trust(world.cluster.ca),
            )
        half.set()

    def check() -> None:
        with world.cluster.client() as client:
            there = _blob(world, key)
            strike.expect(there in (None, key), f"half of blob {key[:12]} is not served", "I17")
            client.upload(content, "half")
            strike.expect(_blob(world, key) == key, f"blob {key[:12]} is whole once uploaded again", "I17")
        _call(world, "DELETE", f"/blobs/{key}")

    strike.later(check)
    with strike.meanwhile(upload):
        half.wait(10)
        strike.begin(node.name)
        with down(node):
            killed.set()
            yield


@fault(
    "F19",
    "mid-savepoint",
    "SIGKILL of the leader right after a savepoint was triggered",
    needs="kill",
    harms="nodes",
    hold=(0.2, 2.0),
)
def mid_savepoint(world: World, strike: Strike) -> Iterator[None]:
    job = JobID(world.stream())
    node = world.leader()
    trigger = uuid.UUID(int=world.draw.getrandbits(128)).hex
    with world.cluster.client() as client:
        try:
            client.trigger(SAVEPOINT, {"target-directory": None, "cancel-job": False}, job_id=job, trigger_id=trigger)
        except FiresteelError as error:
            raise NoTargetError(f"no savepoint of {job} could be triggered: {error}") from None

    def check() -> None:
        with world.cluster.client() as client:
            try:
                outcome = client.outcome(SAVEPOINT, trigger, job_id=job, timeout=60)
            except OperationNotFoundError as error:
                strike.expect(False, f"savepoint {trigger} of {job} is known to the next leader: {error}", "I19")
                return
            except SavepointError:
                return  # it says why it came to nothing; whether the job still runs is seen by others
            location = str(outcome.get("location", ""))
            there = Path(location.removeprefix("file://")).is_dir()
            strike.expect(there, f"savepoint {trigger} of {job} is where it is said to be: {location}", "I14")
            with contextlib.suppress(SavepointError):
                client.dispose_savepoint(location, timeout=60)

    strike.later(check)
    threading.Event().wait(world.draw.uniform(0, 0.3))
    strike.begin(node.name)
    with down(node):
        yield


@fault(
    "F20",
    "duplicates",
    "one submission is sent several times to every node at once; some clients give up, another body comes under the same id",
    needs="",
    harms="clients",
    hold=(0.0, 1.0),
)
def duplicates(world: World, strike: Strike) -> Iterator[None]:
    job = uuid.UUID(int=world.draw.getrandbits(128)).hex
    refused: list[str] = []

    def submit(address: str, timeout: float) -> None:
        with ClusterClient(address, token=world.cluster.token, ca=world.cluster.ca, timeout=timeout) as client:
            try:
                client.submit(graph("duplicates", 1), job_id=job)
            except ClusterError:
                pass  # nobody answered in time: it is there or not
            except FiresteelError as error:
                refused.append(f"{type(error).__name__}: {error}")

    begin_with_job(world, strike, job)
    clients = [
        threading.Thread(target=submit, args=(node.address, 0.05 if n == 0 else 10.0), daemon=True)
        for n in range(COPIES)
        for node in world.cluster.nodes()
    ]
    for each in clients:
        each.start()
    strike.later(lambda: one_job(world, strike, job, refused))
    yield
    for each in clients:
        each.join(15)


@fault(
    "F20",
    "answers-lost",
    "connections to the leader break every few milliseconds while a client submits and repeats",
    needs="bad-clients",
    harms="clients network",
    hold=(1.5, 3.0),
)
def answers_lost(world: World, strike: Strike) -> Iterator[None]:
    job = uuid.UUID(int=world.draw.getrandbits(128)).hex
    node = world.leader()
    line = cast("BadLine", node.clients)
    refused: list[str] = []

    def drops(over: threading.Event) -> None:
        while not over.wait(world.draw.uniform(0.002, 0.06)):
            line.drop()

    def submits(over: threading.Event) -> None:
        with world.cluster.client() as client:
            while not over.is_set():
                try:
                    client.submit(graph("duplicates", 1), job_id=job)
                except ClusterError:
                    pass
                except FiresteelError as error:
                    refused.append(f"{type(error).__name__}: {error}")

    begin_with_job(world, strike, job)
    strike.later(lambda: one_job(world, strike, job, refused))
    with strike.meanwhile(drops), strike.meanwhile(submits):
        yield


def begin_with_job(world: World, strike: Strike, job: str, target: str | None = None, what: str | None = None) -> None:
    strike.begin(target or job, what=what)
    world.history.record("job", job=job, load="fault", digest=None)


def one_job(world: World, strike: Strike, job: str, refused: list[str], name: str = "duplicates") -> None:
    """Whoever sends it again finds the job that is there, and whoever sends another one is refused."""
    strike.expect(not refused, f"copies of the submission of {job} are the same job: {refused}", "I3")
    with world.cluster.client() as client:
        client.submit(graph(name, 1), job_id=job)
        listed = sum(j.job_id == job for j in client.jobs())
        strike.expect(listed == 1, f"{job} is listed once (found {listed} times)", "I3")
        try:
            client.submit(graph("another", 2), job_id=job)
            strike.expect(False, f"another job under the id {job} is refused", "I3")
        except DuplicateJobError:
            strike.expect(True, f"another job under the id {job} is refused", "I3")


@fault(
    "F23",
    "load-at-failover",
    "ten times the load while the leader is killed",
    needs="kill",
    harms="nodes",
    hold=(2.0, 4.0),
    weight=0.5,
)
def load_at_failover(world: World, strike: Strike) -> Iterator[None]:
    if world.load is None:
        raise NoTargetError("there is no load")
    node = world.leader()
    strike.begin(node.name)
    world.load.pressure(10)
    try:
        with down(node):
            yield
    finally:
        world.load.pressure(1)


def _blob(world: World, key: str) -> str | None:
    """The digest of what is served as this blob; None when there is none."""
    answer = _call(world, "GET", f"/blobs/{key}")
    if answer is None or answer.status_code == 404:
        return None
    return hashlib.sha256(answer.content).hexdigest()


def _call(world: World, method: str, path: str) -> httpx.Response | None:
    headers = {"authorization": f"Bearer {world.cluster.token}"}
    for node in world.cluster.nodes():
        with contextlib.suppress(httpx.HTTPError):
            answer = httpx.request(
                method, node.address + path, headers=headers, timeout=10, verify=trust(world.cluster.ca)
            )
            if answer.status_code < 500:
                return answer
    return None


FAULTS = (mid_upload, mid_savepoint, duplicates, answers_lost, load_at_failover)
