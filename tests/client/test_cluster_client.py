"""Both clients against a node: what is sent, what comes back, and what happens when nodes fail."""

from __future__ import annotations

import asyncio
import inspect
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest
from tests.client.fake_cluster import TOKEN, FakeCluster, Fault, Node, serving
from tests.client.twins import Twin

from firesteel.client import (
    AsyncClusterClient,
    AsyncJobClient,
    ClusterClient,
    ClusterError,
    ClusterUnreachableError,
    JobClient,
)
from firesteel.client.endpoints import Location
from firesteel.client.transport import AsyncTransport, run
from firesteel.errors import (
    DuplicateJobError,
    ForbiddenError,
    InvalidConfigError,
    InvalidRequestError,
    JobNotFoundError,
    RateLimitedError,
    SavepointError,
    UnauthenticatedError,
)
from firesteel.jobgraph import Job
from firesteel.status import JobStatus
from firesteel.types import new_job_id

GRAPH = {
    "name": "orders",
    "vertices": [
        {"kind": "source", "name": "a", "format": "csv", "path": "/data/a.csv"},
        {"kind": "sink", "name": "b", "input": "a", "format": "parquet", "path": "/data/b"},
    ],
}


@pytest.fixture
def dead() -> str:
    """An address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


# -- submitting ---------------------------------------------------------------------------------------------------------


def test_submission_carries_an_id_that_the_client_chose(twin: Twin, fake: FakeCluster, node: Node) -> None:
    job = twin(
        twin.client(node.address).submit(GRAPH, priority=3, client_heartbeat_timeout=1.5, variables={"day": "1"})
    )
    (sent,) = fake.asked("POST", "/jobs")
    assert sent.json == {
        "jobId": job.job_id,
        "graph": GRAPH,
        "priority": 3,
        "clientHeartbeatTimeout": 1500,
        "variables": {"day": "1"},
    }
    assert sent.headers["authorization"] == f"Bearer {TOKEN}"


def test_graph_may_be_a_job_or_a_model(twin: Twin, fake: FakeCluster, node: Node) -> None:
    made = Job("orders")
    made.source("a", "csv", path="/data/a.csv", schema="id BIGINT")
    made.sink("b", input="a", format="parquet", path="/data/b")
    client = twin.client(node.address)
    twin(client.submit(made))
    twin(client.submit(made.graph()))
    first, second = (s.json["graph"] for s in fake.asked("POST", "/jobs"))
    assert first == second
    assert first["vertices"][0]["schema"] == "id BIGINT"


def test_submission_whose_answer_was_lost_is_repeated_and_is_one_job(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.faults.append(Fault("/jobs", "lose answer"))
    job = twin(twin.client(node.address).submit(GRAPH))
    assert len(fake.asked("POST", "/jobs")) == 2
    assert list(fake.jobs) == [job.job_id]


def test_submission_that_never_arrived_is_repeated(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.faults += [Fault("/jobs", "drop"), Fault("/jobs", "drop")]
    job = twin(twin.client(node.address).submit(GRAPH))
    assert list(fake.jobs) == [job.job_id]


def test_another_graph_under_the_same_id_is_refused(twin: Twin, node: Node) -> None:
    client = twin.client(node.address)
    job_id = new_job_id()
    twin(client.submit(GRAPH, job_id=job_id))
    assert twin(client.submit(GRAPH, job_id=job_id)).job_id == job_id
    with pytest.raises(DuplicateJobError, match=job_id):
        twin(client.submit({**GRAPH, "name": "another"}, job_id=job_id))


def test_what_is_no_job_id_is_refused_at_once(twin: Twin, fake: FakeCluster, node: Node) -> None:
    with pytest.raises(ValueError, match="32 hex digits"):
        twin(twin.client(node.address).submit(GRAPH, job_id="../../cluster"))
    with pytest.raises(ValueError, match="32 hex digits"):
        twin.client(node.address).job("x")
    assert not fake.seen


def test_refused_graph_has_a_problem_for_each_reason(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.faults.append(Fault("/jobs", "answer", 400, body=b'{"errors": ["one", "two"]}'))
    with pytest.raises(InvalidRequestError) as refused:
        twin(twin.client(node.address).submit(GRAPH))
    assert [p.message for p in refused.value.problems] == ["one", "two"]
    assert len(fake.seen) == 1


# -- nodes that fail ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [502, 503, 504])
def test_node_that_cannot_now_is_asked_again(twin: Twin, fake: FakeCluster, node: Node, status: int) -> None:
    fake.faults.append(Fault("/whoami", "answer", status, {"retry-after": "0.1"}))
    fake.answers["/whoami"] = {"name": "me", "role": "operator", "owner": "us"}
    assert twin(twin.client(node.address).whoami()).name == "me"
    assert len(fake.seen) == 2


def test_too_many_requests_are_sent_again_later(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.faults.append(Fault("/queue", "answer", 429, {"retry-after": "0.1"}))
    fake.answers["/queue"] = {"waiting": 0, "jobs": []}
    assert twin(twin.client(node.address).queue()).waiting == 0
    assert len(fake.seen) == 2


def test_too_many_requests_for_longer_than_one_waits(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.faults.append(Fault("/queue", "answer", 429, {"retry-after": "3600"}, b'{"errors": ["slower"]}'))
    with pytest.raises(RateLimitedError, match="slower") as refused:
        twin(twin.client(node.address).queue())
    assert refused.value.retry_after == 3600


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, UnauthenticatedError), (403, ForbiddenError), (404, ClusterError), (500, ClusterError), (408, ClusterError)],
)
def test_other_refusals_are_final(
    twin: Twin, fake: FakeCluster, node: Node, status: int, kind: type[Exception]
) -> None:
    fake.faults.append(Fault("/queue", "answer", status))
    with pytest.raises(kind):
        twin(twin.client(node.address).queue())
    assert len(fake.seen) == 1


def test_address_at_which_nobody_listens_is_passed_over(twin: Twin, fake: FakeCluster, node: Node, dead: str) -> None:
    client = twin.client(dead, node.address)
    job = twin(client.submit(GRAPH))
    assert list(fake.jobs) == [job.job_id]
    assert client.addresses == (node.address, dead)  # and is not asked first again


def test_node_that_dies_is_replaced_by_another(twin: Twin, fake: FakeCluster, node: Node) -> None:
    first = Node(fake)
    client = twin.client(first.address, node.address)
    job = twin(client.submit(GRAPH))
    first.stop()
    assert twin(job.status()) is JobStatus.FINISHED


def test_nobody_answers_in_time(twin: Twin, dead: str) -> None:
    with pytest.raises(ClusterUnreachableError) as unreachable:
        twin(twin.client(dead, timeout=0.3).jobs())
    assert dead in str(unreachable.value)
    assert "0.3 s" in str(unreachable.value)
    assert unreachable.value.attempts[dead]


def test_last_words_of_a_node_are_in_the_error(twin: Twin, fake: FakeCluster, node: Node) -> None:
    words = b'{"errors": ["the disk of the store is full"]}'
    fake.faults.append(Fault("/jobs/list", "answer", 503, {"retry-after": "3600"}, words))
    with pytest.raises(ClusterUnreachableError, match="the disk of the store is full"):
        twin(twin.client(node.address).jobs())  # without waiting: it would be in vain


def test_node_that_is_silent_is_given_up(twin: Twin) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterUnreachableError, match=r"no (answer|connection) in time"):
            twin(twin.client(address, timeout=0.3).jobs())


def test_cluster_that_moved_is_found_again(twin: Twin, fake: FakeCluster, node: Node, dead: str) -> None:
    places = deque([None, None, Location((node.address,), "new token")])
    client = twin.client(dead, rediscover=lambda: places.popleft() if len(places) > 1 else places[0])
    twin(client.submit(GRAPH))
    assert client.addresses == (node.address,)
    assert {s.headers["authorization"] for s in fake.seen} == {"Bearer new token"}


def test_end_of_a_node_is_not_asked_for_twice(twin: Twin, fake: FakeCluster, node: Node) -> None:
    client = twin.client(node.address)
    twin(client.shut_down())
    fake.faults.append(Fault("/cluster", "lose answer"))
    with pytest.raises(ClusterError, match="DELETE /cluster"):
        twin(client.shut_down())
    assert len(fake.asked("DELETE", "/cluster")) == 2
    fake.faults.append(Fault("/cluster", "answer", 503))  # it has refused, so it can be asked again
    twin(client.shut_down())
    assert len(fake.asked("DELETE", "/cluster")) == 4


# -- whom the token is shown --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_is_not_followed_and_nobody_else_sees_the_token(
    twin: Twin, fake: FakeCluster, node: Node, status: int
) -> None:
    stranger = FakeCluster()
    with serving(stranger) as elsewhere:
        location = f"{elsewhere.address}/v1/jobs"
        fake.faults.append(Fault("/jobs", "answer", status, {"location": location}, b""))
        with pytest.raises(ClusterError, match=location):
            twin(twin.client(node.address).submit(GRAPH))
    assert not stranger.seen


def test_requests_to_this_machine_go_through_no_proxy(
    twin: Twin, fake: FakeCluster, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = FakeCluster()
    with serving(stranger) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.address)
        twin(twin.client(node.address).submit(GRAPH))
    assert fake.jobs
    assert not stranger.seen


def test_no_token_no_header(twin: Twin, fake: FakeCluster, node: Node) -> None:
    twin(twin.client(node.address, token=None).submit(GRAPH))
    assert "authorization" not in fake.seen[0].headers


def test_token_in_plain_text_to_another_machine_is_warned_of(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    twin.client("http://node.example.com:8081")
    assert "plain text" in caplog.text
    assert TOKEN not in caplog.text


def test_authorities_that_cannot_be_read(twin: Twin, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"client\.ssl\.ca"):
        twin.client("https://127.0.0.1:1", ca=tmp_path / "none.pem")
    with pytest.raises(InvalidConfigError, match=r"client\.ssl\.certificate"):
        twin.client("https://127.0.0.1:1", certificate=tmp_path / "none.pem")


# -- looking around -----------------------------------------------------------------------------------------------------


def test_jobs_and_history(twin: Twin, fake: FakeCluster, node: Node) -> None:
    row = {
        "jid": "0" * 32,
        "name": "orders",
        "jobType": "STREAMING",
        "start-time": 1500,
        "end-time": -1,
        "duration": 250,
        "state": "RUNNING",
        "last-modification": 1750,
        "tasks": {"total": 2},
    }
    line: dict[str, object] = {
        "id": "0" * 32,
        "name": "orders",
        "mode": "streaming",
        "kind": "streaming",
        "status": "RUNNING",
    }
    line |= {"submitted": 1500, "changed": 1750, "ended": None, "duration": 250}
    script = {"mode": "batch", "kind": "script", "ended": 2500, "status": "FINISHED"}
    fake.answers["/jobs/list"] = {"jobs": [line, {**line, **script}]}
    fake.answers["/history"] = {"jobs": [row, {**row, "jobType": "BATCH", "kind": "script"}], "next": 1499}
    client = twin.client(node.address)
    running, ended = twin(client.jobs())
    assert (running.job_id, running.mode, running.status) == ("0" * 32, "streaming", JobStatus.RUNNING)
    assert (running.started_at, running.ended_at, running.duration, running.changed_at) == (1.5, None, 0.25, 1.75)
    assert (ended.ended_at, running.kind, ended.kind) == (2.5, "streaming", "script")
    page = twin(client.history(limit=7, before=1600))
    assert (page.next, [j.kind for j in page.jobs]) == (1499, ["streaming", "script"])
    first = page.jobs[0]
    assert (first.job_id, first.status, first.started_at) == ("0" * 32, JobStatus.RUNNING, 1.5)
    assert (first.ended_at, first.duration, first.changed_at) == (None, 0.25, 1.75)
    assert fake.asked("GET", "/history")[0].query == "limit=7&before=1600"


def test_the_cluster_itself(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.answers |= {
        "/overview": {
            "taskmanagers": 1,
            "slots-total": 8,
            "slots-available": 5,
            "jobs-running": 3,
            "jobs-finished": 2,
            "jobs-cancelled": 1,
            "jobs-failed": 4,
        },
        "/engines": {
            "engines": [
                {
                    "id": "e1",
                    "master": "local[2]",
                    "memory": "1g",
                    "slots": 8,
                    "free": 5,
                    "state": "READY",
                    "since": 1500,
                }
            ]
        },
        "/queue": {"waiting": 1, "jobs": [{"job_id": "1" * 32, "name": "n", "since": 5500}]},
        "/cluster/status": {
            "cluster_id": "default",
            "version": "0.2",
            "leader": {"address": "http://n1:8081", "epoch": 7},
            "node": {"pid": 4},
            "high-availability": "sql",
        },
    }
    client = twin.client(node.address)
    overview = twin(client.overview())
    assert (overview.engines, overview.slots, overview.free_slots) == (1, 8, 5)
    assert (overview.running, overview.finished, overview.canceled, overview.failed) == (3, 2, 1, 4)
    (engine,) = twin(client.engines())
    assert (engine.engine_id, engine.state, engine.cores, engine.foreign) == ("e1", "READY", 0, False)
    assert engine.since == 1.5
    (waiting,) = twin(client.queue()).jobs
    assert (waiting.job_id, waiting.name, waiting.since) == ("1" * 32, "n", 5.5)
    status = twin(client.cluster_status())
    assert (status.leader, status.epoch, status.node) == ("http://n1:8081", 7, {"pid": 4})


@pytest.mark.parametrize("answer", [[], {}, {"jobs": [{}]}, {"jobs": [{"jid": 1}]}, "text"])
def test_answer_of_something_that_is_no_node_is_a_plain_error(
    twin: Twin, fake: FakeCluster, node: Node, answer: object
) -> None:
    fake.answers["/jobs/list"] = answer
    with pytest.raises(ClusterError, match="Firesteel node"):
        twin(twin.client(node.address).jobs())


def test_answer_that_is_no_json(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.faults.append(Fault("/jobs/list", "answer", 200, body=b"<html>"))
    with pytest.raises(ClusterError, match="not JSON"):
        twin(twin.client(node.address).jobs())


def test_disposal_of_a_savepoint(twin: Twin, fake: FakeCluster, node: Node) -> None:
    client = twin.client(node.address)
    fake.outcome = {}
    twin(client.dispose_savepoint("file:/savepoints/1"))
    (sent,) = fake.asked("POST", "/savepoint-disposal")
    assert sent.json["savepoint-path"] == "file:/savepoints/1"
    fake.outcome = {
        "failure-cause": {"class": "X", "stack-trace": "X: it is in use\n\tat somewhere", "serialized-throwable": "…"}
    }
    with pytest.raises(SavepointError) as refused:
        twin(client.dispose_savepoint("file:/savepoints/1"))
    assert str(refused.value) == "it is in use"


# -- the two of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("blocking", "on_loop"), [(ClusterClient, AsyncClusterClient), (JobClient, AsyncJobClient)])
def test_twins_have_the_same_methods_and_parameters(blocking: type, on_loop: type) -> None:
    def public(kind: type) -> dict[str, list[tuple[str, object, object]]]:
        return {
            name: [(p.name, p.kind, p.default) for p in inspect.signature(method).parameters.values()]
            for name, method in vars(kind).items()
            if inspect.isfunction(method) and not name.startswith("_")
        }

    assert public(blocking) == public(on_loop)


def test_client_needs_no_event_loop_that_is_there_and_none_that_is_not(fake: FakeCluster, node: Node) -> None:
    async def inside() -> str:
        with ClusterClient(node.address) as client:  # as in a notebook, whose loop is running
            return client.submit(GRAPH).job_id

    assert asyncio.run(inside()) in fake.jobs


def test_coroutine_that_waits_for_a_loop_is_not_run_without_one() -> None:
    with pytest.raises(RuntimeError, match="event loop"):
        run(AsyncTransport({}).sleep(60))


def test_unknown_job(twin: Twin, node: Node) -> None:
    with pytest.raises(JobNotFoundError):
        twin(twin.client(node.address).job(new_job_id()).status())


def test_import_is_light() -> None:
    heavy = {"pyspark", "fastapi", "starlette", "uvicorn", "pydantic", "sqlalchemy", "yaml", "sqlglot", "pandas"}
    code = (
        "import sys, firesteel, firesteel.client\n"
        f"bad = {{m.split('.')[0] for m in sys.modules}} & {heavy!r}\n"
        "bad |= {m for m in sys.modules if m.startswith(('firesteel.rest', 'firesteel.dispatcher', 'firesteel.jobgraph'))}\n"
        "print(sorted(bad))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_package_offers_the_clients_and_imports_them_late() -> None:
    code = (
        "import sys, firesteel\n"
        "assert 'httpx' not in sys.modules\n"
        "print(firesteel.connect, firesteel.ClusterClient, firesteel.AsyncClusterClient, firesteel.JobClient)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
