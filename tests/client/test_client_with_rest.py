"""Both clients against the REST application itself, over a Dispatcher that only pretends: they speak the same language."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.client.fake_cluster import Node, Switch
from tests.client.twins import Twin
from tests.rest.desk import ADMIN, Desk
from tests.rest.fake_fleet import ONE as WORKER_ONE
from tests.rest.fake_fleet import TWO as WORKER_TWO
from tests.rest.fake_fleet import FakeFleet, view
from tests.rest.native_people import ALICE, NOBODY, ONE, TWO, attempt_file, plain, put

from firesteel.blob.keys import BlobRef
from firesteel.client import JobFailedError
from firesteel.config.sections import Role
from firesteel.errors import (
    DuplicateJobError,
    ForbiddenError,
    InvalidRequestError,
    JobNotFoundError,
    JobStateError,
    SavepointError,
    WorkerNotFoundError,
    WorkerStateError,
)
from firesteel.failure import Failure, FailureKind
from firesteel.fleet.view import Standing
from firesteel.jobmaster.events import state_event
from firesteel.rest.security.principals import Principal
from firesteel.status import JobStatus
from firesteel.stores.operations import Operation, OperationKind, OperationStatus
from firesteel.types import JobID


class Operations(dict[tuple[str, str], Operation]):
    """Whatever is asked for was triggered, and has ended like this."""

    def __init__(self, kind: OperationKind, result: dict[str, JsonValue] | None = None, error: str = "") -> None:
        self.kind = kind
        self.outcome = result or {}
        self.error = error

    def get(self, key: tuple[str, str], default: object = None) -> Operation:
        return Operation(
            job_id=JobID(key[0]),
            trigger_id=key[1],
            kind=self.kind,
            started_at=1.0,
            status=OperationStatus.FAILED if self.error else OperationStatus.COMPLETED,
            ended_at=2.0,
            result=self.outcome,
            error=self.error,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "cluster", {"security.savepoint-directories.allowed": "file:/sp"})


@pytest.fixture
def rest(server: tuple[Node, Switch], desk: Desk) -> Node:
    node, switch = server
    switch.app = desk.client(ALICE).app
    return node


def test_submission_with_its_files(twin: Twin, desk: Desk, rest: Node, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "helpers.py").write_text("X = 1\n")
    given = plain(settings={"artifacts": {"py_files": ["lib"]}})
    client = twin.client(rest.address)
    job = twin(client.submit(given, priority=2, client_heartbeat_timeout=30, artifacts_from=tmp_path))
    again = twin(
        client.submit(given, job_id=job.job_id, priority=2, client_heartbeat_timeout=30, artifacts_from=tmp_path)
    )
    (submission,) = desk.gateway.submitted
    assert submission.job_id == job.job_id == again.job_id
    assert (submission.priority, submission.initial_client_heartbeat_timeout) == (2, 30.0)
    assert BlobRef.parse(submission.graph.settings.artifacts.py_files[0]).name == "lib.zip"
    with pytest.raises(DuplicateJobError):
        twin(client.submit(plain("another"), job_id=job.job_id))


def test_graph_that_is_refused(twin: Twin, desk: Desk, rest: Node) -> None:
    broken = {
        "name": "x",
        "vertices": [{"kind": "sql", "name": "a", "query": "SELECT"}, {"kind": "nonsense", "name": "b"}],
    }
    with pytest.raises(InvalidRequestError) as refused:
        twin(twin.client(rest.address).submit(broken))
    assert any("'b'" in p.message for p in refused.value.problems)
    assert not desk.gateway.submitted


def test_variables_are_put_in_by_the_cluster(twin: Twin, desk: Desk, rest: Node) -> None:
    given = plain("etl-${day}", variables={"day": None})
    twin(twin.client(rest.address).submit(given, variables={"day": "monday"}))
    assert desk.gateway.submitted[0].graph.name == "etl-monday"


def test_what_is_not_there_or_not_allowed(twin: Twin, desk: Desk, rest: Node) -> None:
    client = twin.client(rest.address)
    nobody = client.job(NOBODY)
    for ask in (nobody.status, nobody.details, nobody.cancel, nobody.exceptions, nobody.lineage, nobody.attempts,
                nobody.logs, nobody.savepoint, nobody.wait):  # fmt: skip
        with pytest.raises(JobNotFoundError):
            twin(ask())
    with pytest.raises(JobNotFoundError):
        twin.items(nobody.events())
    with pytest.raises(ForbiddenError):
        twin(client.shut_down())
    put(desk, ONE, status=JobStatus.FINISHED)
    with pytest.raises(JobStateError):
        twin(client.job(ONE).cancel())


def test_end_of_a_job_is_heard(twin: Twin, desk: Desk, rest: Node) -> None:
    job_id = put(desk, ONE)
    found = []
    client = twin.client(rest.address)

    def finish() -> None:
        put(desk, ONE, status=JobStatus.FINISHED)
        desk.gateway.hub.publish(state_event(job_id, JobStatus.FINISHED, time.time(), attempt=1))

    original = desk.gateway.events

    def listened(job: JobID | None = None) -> object:
        subscription = original(job)
        rest.soon(finish)  # once there is somebody to hear it
        return subscription

    desk.gateway.events = listened  # type: ignore[assignment]
    found = twin.items(client.job(ONE).events(logs=True))
    assert found[0].kind == "snapshot"
    assert (found[-1].final, found[-1].status) == (True, JobStatus.FINISHED)
    result = twin(client.job(ONE).result())
    assert (result.status, result.duration, result.attempts) == (JobStatus.FINISHED, 1000.0, 1)


def test_failure_of_a_job_is_told(twin: Twin, desk: Desk, rest: Node) -> None:
    put(desk, ONE, status=JobStatus.FAILED)
    desk.gateway.jobs[JobID(ONE)]["failure"] = Failure(FailureKind.DATA, "no such column", "big").to_json()
    with pytest.raises(JobFailedError, match="data error in vertex 'big': no such column"):
        twin(twin.client(rest.address).job(ONE).result())


def test_savepoints_stops_and_checkpoints(twin: Twin, desk: Desk, rest: Node) -> None:
    put(desk, ONE)
    job = twin.client(rest.address).job(ONE)
    desk.gateway.operations = Operations(OperationKind.SAVEPOINT, {"location": "file:/sp/1"})
    assert twin(job.savepoint("file:/sp", cancel=True)) == "file:/sp/1"
    desk.gateway.operations = Operations(OperationKind.STOP, {"location": "file:/sp/2"})
    assert twin(job.stop()) == "file:/sp/2"
    desk.gateway.operations = Operations(OperationKind.STOP)
    assert twin(job.stop(savepoint=False)) is None
    desk.gateway.operations = Operations(OperationKind.CHECKPOINT, {"batches": {"out": 7}})
    assert twin(job.checkpoint()) == {"checkpointId": 7}
    twin(job.heartbeat())
    wishes = [(a[0], *a[3:]) for a in desk.gateway.asked]
    assert wishes == [
        ("savepoint", "file:/sp", True),
        ("stop", None, True),
        ("stop", None, False),
        ("checkpoint",),
        ("heartbeat",),
    ]
    desk.gateway.operations = Operations(OperationKind.SAVEPOINT, error="there is no room\non the disk")
    with pytest.raises(SavepointError) as failed:
        twin(job.savepoint())
    assert str(failed.value) == "there is no room\non the disk"


def test_looking_at_jobs(twin: Twin, desk: Desk, rest: Node) -> None:
    put(desk, ONE)
    put(desk, TWO, status=JobStatus.FINISHED)
    attempt_file(desk, ONE, "stdout.log", "one\ntwo\nthree\n")
    client = twin.client(rest.address)
    jobs = {j.job_id: j for j in twin(client.jobs())}
    assert (jobs[JobID(ONE)].status, jobs[JobID(ONE)].ended_at) == (JobStatus.RUNNING, None)
    assert (jobs[JobID(TWO)].status, jobs[JobID(TWO)].ended_at) == (JobStatus.FINISHED, 2000.0)
    page = twin(client.history())
    assert ([j.job_id for j in page.jobs], page.next) == ([TWO], None)
    job = client.job(ONE)
    assert twin(job.status()) is JobStatus.RUNNING
    assert twin(job.details())["graph"]["name"] == "etl"
    assert {i["vertex"] for i in twin(job.lineage())["inputs"]} == {"orders"}
    assert twin(job.exceptions()) == ()
    (attempt,) = twin(job.attempts())
    assert [(log.name, log.size) for log in attempt.logs] == [("stdout", 14)]
    assert twin(job.logs(tail=1)) == "three\n"
    assert b"".join(twin.items(job.log_chunks(attempt=1))) == b"one\ntwo\nthree\n"


def test_looking_at_the_cluster(twin: Twin, desk: Desk, rest: Node) -> None:
    put(desk, ONE)
    client = twin.client(rest.address)
    assert twin(client.overview()).running == 1
    assert twin(client.engines()) == ()
    assert twin(client.queue()).waiting == 0
    who = twin(client.whoami())
    assert (who.name, who.role, who.owner) == (ALICE.name, "operator", "alice")
    status = twin(client.cluster_status())
    assert (status.cluster_id, status.high_availability) == ("default", "sql")


def test_workers_and_what_is_to_become_of_them(twin: Twin, desk: Desk, rest: Node) -> None:
    fleet = FakeFleet(view(), view(WORKER_TWO, "beta", standing=Standing.SILENT, gone_at=1061.0))
    desk.gateway.fleet = fleet
    client = twin.client(rest.address)
    one, two = twin(client.workers())
    assert (one.worker_id, one.name, one.standing, one.labels, one.host) == (
        WORKER_ONE,
        "alpha",
        "CONNECTED",
        {"zone": "a"},
        "",
    )
    assert (two.gone_at, two.last_heard, one.gone_at) == (1061.0, 1001.0, None)
    with pytest.raises(ForbiddenError):
        twin(client.drain_worker("alpha"))
    with pytest.raises(ForbiddenError):
        twin(client.worker_token())
    with pytest.raises(WorkerNotFoundError):
        twin(client.worker("nobody"))


def test_admins_decide_and_hosts_join(twin: Twin, desk: Desk, server: tuple[Node, Switch]) -> None:
    node, switch = server
    switch.app = desk.client(ADMIN).app
    client = twin.client(node.address)
    token = twin(client.worker_token("alpha", lifetime=60.0))
    assert token.token.startswith(f"fst_join.{token.token_id}.")
    switch.app = desk.client(Principal(f"join-{token.token_id}", Role.JOINER, "x")).app
    for _ in range(2):
        assert twin(client.join_worker(WORKER_ONE, "ab" * 32, name="alpha")) == "alpha"
    with pytest.raises(ForbiddenError, match="used"):
        twin(client.join_worker(WORKER_TWO, "ab" * 32, name="alpha"))
    switch.app = desk.client(ADMIN).app
    assert twin(client.drain_worker("alpha")).draining
    assert not twin(client.undrain_worker(WORKER_ONE)).draining
    assert twin(client.declare_worker_lost("alpha")).standing == "LOST"
    twin(client.revoke_worker("alpha"))
    assert twin(client.worker(WORKER_ONE)).revoked
    desk.gateway.fleet = FakeFleet(view())
    with pytest.raises(WorkerStateError, match="connected"):
        twin(client.declare_worker_lost("alpha"))
