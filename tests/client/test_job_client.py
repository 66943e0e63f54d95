"""One job, through both clients."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster, Fault, Node, Stream, event, snapshot, state
from tests.client.twins import Twin

from firesteel.client import (
    AttemptInfo,
    ClusterError,
    ClusterUnreachableError,
    JobCanceledError,
    JobFailedError,
    JobTimeoutError,
    LogInfo,
    job,
)
from firesteel.errors import JobNotFoundError, JobStateError, OperationNotFoundError, SavepointError
from firesteel.failure import FailureKind
from firesteel.status import JobStatus
from firesteel.types import new_job_id

ID = new_job_id()
FAILURE = {
    "kind": "user code",
    "message": "ZeroDivisionError: division by zero",
    "vertex": "paid",
    "error_class": "ZeroDivisionError",
    "traceback": '  File "jobs.py", line 3\n    1 / 0',
}


# -- waiting ------------------------------------------------------------------------------------------------------------


def test_result_comes_with_the_end_of_the_stream(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.add(ID, attempt=2, restarts=1)
    fake.streams.append(Stream([snapshot(ID), state(ID, "RUNNING"), state(ID, "FINISHED")], end="stay"))
    result = twin(twin.client(node.address).job(ID).result())
    assert (result.status, result.name, result.duration) == (JobStatus.FINISHED, "orders", 2.5)
    assert (result.attempts, result.restarts, result.failure) == (2, 1, None)
    assert not fake.asked("GET", f"/jobs/{ID}/status")  # nobody polled


def ending(status: str = "FINISHED", **more: Any) -> bytes:
    """The final event, as nodes send it."""
    failure = {"failure": more.pop("failure")} if "failure" in more else {}
    summary = {
        "name": "orders",
        "mode": "batch",
        "submitted_at": 1000.0,
        "ended_at": 1002.5,
        "attempt": 2,
        "restarts": 1,
    }
    return state(ID, status, attempt=2, **failure, result={**summary, "stopped": False, **more})


def test_result_is_in_the_final_event_and_nothing_more_is_asked(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.streams.append(Stream([snapshot(ID), ending()], end="stay"))
    result = twin(twin.client(node.address).job(ID).result())
    assert (result.job_id, result.status, result.name, result.duration) == (ID, JobStatus.FINISHED, "orders", 2.5)
    assert (result.attempts, result.restarts, result.failure) == (2, 1, None)
    assert [s.path for s in fake.seen] == [f"/v1/jobs/{ID}/events"]


def test_failure_is_in_the_final_event(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.streams.append(Stream([snapshot(ID), ending("FAILED", failure=FAILURE)]))
    with pytest.raises(JobFailedError, match="division by zero") as failed:
        twin(twin.client(node.address).job(ID).result())
    assert failed.value.failure is not None
    assert failed.value.failure.traceback == FAILURE["traceback"]
    assert len(fake.seen) == 1


def test_savepoint_of_a_stopped_stream_is_asked_for_after_its_final_event(
    twin: Twin, fake: FakeCluster, node: Node
) -> None:
    """It is taken once the stream has ended."""
    fake.add(ID, mode="streaming", stopped=True, savepoint="file:/sp/1")
    stopped: dict[str, Any] = {"mode": "streaming", "stopped": True}
    fake.streams += [
        Stream([snapshot(ID), ending(**stopped)]),
        Stream([snapshot(ID), ending(**stopped, savepoint="file:/sp/0")]),
    ]
    job_client = twin.client(node.address).job(ID)
    assert twin(job_client.result()).savepoint == "file:/sp/1"
    assert len(fake.asked("GET", f"/jobs/{ID}/execution-graph")) == 1
    assert twin(job_client.result()).savepoint == "file:/sp/0"
    assert len(fake.asked("GET", f"/jobs/{ID}/execution-graph")) == 1


def test_failed_job_is_an_error_that_tells_all(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.add(ID, status="FAILED", failure=FAILURE)
    fake.streams.append(Stream([snapshot(ID, "FAILED"), state(ID, "FAILED", failure=FAILURE)]))
    with pytest.raises(JobFailedError) as failed:
        twin(twin.client(node.address).job(ID).result())
    assert failed.value.job_id == ID
    assert failed.value.failure is not None
    assert failed.value.failure.kind is FailureKind.USER_CODE
    for word in (ID, "orders", "user code", "vertex 'paid'", "division by zero", "jobs.py"):
        assert word in str(failed.value)


def test_canceled_job_is_an_error_and_wait_tells_it_without(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.add(ID, status="CANCELED")
    fake.streams += [Stream([snapshot(ID, "CANCELED"), state(ID, "CANCELED")]) for _ in range(2)]
    job_client = twin.client(node.address).job(ID)
    with pytest.raises(JobCanceledError, match=ID):
        twin(job_client.result())
    assert twin(job_client.wait()).status is JobStatus.CANCELED


@pytest.mark.parametrize("end", ["close", "abort"])
def test_stream_that_breaks_is_opened_again(twin: Twin, fake: FakeCluster, node: Node, end: Any) -> None:
    fake.add(ID)
    fake.statuses[ID] = deque(["RUNNING"])
    fake.streams += [Stream([snapshot(ID)], end=end), Stream([snapshot(ID), state(ID, "FINISHED")])]
    assert twin(twin.client(node.address).job(ID).result()).status is JobStatus.FINISHED
    assert len(fake.asked("GET", f"/jobs/{ID}/events")) == 2


def test_result_is_found_by_asking_when_there_are_no_streams(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.add(ID)
    fake.statuses[ID] = deque(["CREATED", "RUNNING"])
    assert twin(twin.client(node.address).job(ID).result()).status is JobStatus.FINISHED
    assert len(fake.asked("GET", f"/jobs/{ID}/status")) == 3


def test_wait_outlives_its_node(twin: Twin, fake: FakeCluster, node: Node) -> None:
    """The node that streams dies; the client goes on at the other one."""
    fake.add(ID, status="RUNNING")
    fake.streams += [
        Stream([snapshot(ID)], end="stay"),
        Stream([snapshot(ID, "RECONCILING"), state(ID, "RUNNING"), state(ID, "FINISHED")]),
    ]
    first = Node(fake)

    def fail_over() -> None:
        while not fake.asked("GET", f"/jobs/{ID}/events"):
            stopped.wait(0.01)
        first.stop()
        fake.add(ID)

    stopped = threading.Event()
    killer = threading.Thread(target=fail_over)
    killer.start()
    try:
        assert twin(twin.client(first.address, node.address).job(ID).result()).status is JobStatus.FINISHED
    finally:
        killer.join()


def test_result_that_is_not_durable_yet_is_waited_for(twin: Twin, fake: FakeCluster, node: Node) -> None:
    """The state is told before the result is stored."""
    fake.add(ID, ended_at=None)
    fake.streams += [Stream([snapshot(ID), state(ID, "FINISHED")]), Stream([snapshot(ID), state(ID, "FINISHED")])]
    job_client = twin.client(node.address).job(ID)

    def store() -> None:
        while not fake.asked("GET", f"/jobs/{ID}/execution-graph"):
            threading.Event().wait(0.01)
        fake.add(ID)

    writer = threading.Thread(target=store)
    writer.start()
    try:
        assert twin(job_client.result()).duration == 2.5
    finally:
        writer.join()


def test_patience_ends_and_the_job_goes_on(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.add(ID, status="RUNNING")
    with pytest.raises(JobTimeoutError, match=r"RUNNING after|time that was left") as late:
        twin(twin.client(node.address).job(ID).result(timeout=0.2))
    assert isinstance(late.value, TimeoutError)
    assert fake.jobs[ID]["status"] == "RUNNING"


def test_patience_that_is_long_enough_for_a_stream_uses_it(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.add(ID)
    fake.streams.append(Stream([snapshot(ID), state(ID, "FINISHED")], end="stay"))
    assert twin(twin.client(node.address).job(ID).result(timeout=600)).status is JobStatus.FINISHED
    assert not fake.asked("GET", f"/jobs/{ID}/status")


def test_stream_is_left_for_asking_when_the_deadline_comes_near(
    twin: Twin, fake: FakeCluster, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent stream would be noticed too late: with a deadline, only one that cannot make us late is read."""
    monkeypatch.setattr(job, "SILENCE_SECONDS", 599.9)
    fake.add(ID)
    progress = event("progress", job_id=ID, at=1.0, progress={})
    fake.streams.append(Stream(itertools.chain([snapshot(ID)], itertools.repeat(progress))))
    assert twin(twin.client(node.address).job(ID).result(timeout=600)).status is JobStatus.FINISHED
    assert fake.asked("GET", f"/jobs/{ID}/status")


def test_patience_ends_while_no_node_answers(twin: Twin, fake: FakeCluster) -> None:
    gone = Node(fake)
    gone.stop()
    with pytest.raises(JobTimeoutError, match=gone.address):
        twin(twin.client(gone.address).job(ID).result(timeout=0.2))


def test_wait_for_a_job_that_nobody_knows(twin: Twin, node: Node) -> None:
    with pytest.raises(JobNotFoundError):
        twin(twin.client(node.address).job(new_job_id()).result())


def test_wait_ends_when_the_cluster_is_gone(twin: Twin, fake: FakeCluster) -> None:
    gone = Node(fake)
    job_client = twin.client(gone.address, timeout=0.3).job(ID)
    gone.stop()
    with pytest.raises(ClusterUnreachableError, match=gone.address):
        twin(job_client.result())


# -- events -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "abort"])
def test_events_go_on_after_a_break(twin: Twin, fake: FakeCluster, node: Node, end: Any) -> None:
    log = event("log", job_id=ID, at=1.5, attempt=1, stream="stdout", lines=["hello"])
    fake.streams += [
        Stream([snapshot(ID), b": keep-alive\n\n", log[:20], log[20:]], end=end),
        Stream([snapshot(ID), state(ID, "FINISHED")], end="stay"),
    ]
    found = twin.items(twin.client(node.address).job(ID).events(logs=True))
    assert [e.kind for e in found] == ["snapshot", "log", "snapshot", "state"]
    assert found[1].data["lines"] == ["hello"]
    assert found[-1].final
    assert [s.query for s in fake.seen] == ["logs=true", "logs=true"]


def test_half_an_event_is_no_event(twin: Twin, fake: FakeCluster, node: Node) -> None:
    half = state(ID, "FAILED")[:-1]
    fake.streams += [Stream([snapshot(ID), half]), Stream([snapshot(ID), state(ID, "FINISHED")])]
    found = twin.items(twin.client(node.address).job(ID).events())
    assert [e.status for e in found if e.kind == "state"] == [JobStatus.FINISHED]


def test_events_that_nobody_wants_any_more_free_the_stream(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.streams.append(Stream([snapshot(ID)], end="stay"))
    assert len(twin.items(twin.client(node.address).job(ID).events(), limit=1)) == 1
    assert fake.left.wait(30)  # the node has noticed that nobody listens


def test_events_of_all_jobs_say_when_some_may_be_missing(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.streams += [Stream([state(ID, "RUNNING")]), Stream([b": keep-alive\n\n", state(ID, "FINISHED")])]
    found = twin.items(twin.client(node.address).events(), limit=3)
    assert [e.kind for e in found] == ["state", "lost", "state"]


def test_streams_that_tell_nothing_are_given_up(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.streams += [Stream([]) for _ in range(100)]
    with pytest.raises(ClusterUnreachableError, match=r"sent anything|answered within"):
        twin.items(twin.client(node.address, timeout=0.3).job(ID).events())


def test_answer_that_is_no_stream_is_an_error(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.faults.append(Fault("/events", "answer", 200, {"content-type": "text/html"}, b"<html>"))
    with pytest.raises(ClusterError, match="event stream"):
        twin.items(twin.client(node.address).job(ID).events())


def test_events_of_a_job_that_nobody_knows(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.faults.append(Fault("/events", "answer", 404))
    with pytest.raises(JobNotFoundError):
        twin.items(twin.client(node.address).job(ID).events())


# -- wishes -------------------------------------------------------------------------------------------------------------


def test_cancel(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.add(ID, status="RUNNING")
    job_client = twin.client(node.address).job(ID)
    twin(job_client.cancel())
    assert fake.seen[0].query == "mode=cancel"
    assert twin(job_client.status()) is JobStatus.CANCELED
    fake.add(ID)
    with pytest.raises(JobStateError, match="FINISHED"):
        twin(job_client.cancel())


def test_savepoint_is_triggered_under_an_id_of_ours_and_waited_for(twin: Twin, fake: FakeCluster, node: Node) -> None:
    location = twin(twin.client(node.address).job(ID).savepoint("file:/mine", cancel=True))
    assert location == "file:/savepoints/1"
    (sent,) = fake.asked("POST", f"/jobs/{ID}/savepoints")
    trigger = sent.json.pop("triggerId")
    assert sent.json["target-directory"] == "file:/mine"
    assert sent.json["cancel-job"] is True
    assert fake.asked("GET", f"/jobs/{ID}/savepoints/{trigger}")


def test_trigger_whose_answer_was_lost_is_one_operation(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.faults.append(Fault("/savepoints", "lose answer"))
    twin(twin.client(node.address).job(ID).savepoint())
    assert len(fake.asked("POST", f"/jobs/{ID}/savepoints")) == 2
    assert len(fake.operations) == 1


def test_savepoint_that_failed_says_why(twin: Twin, fake: FakeCluster, node: Node) -> None:
    stack = "org.example.Broken: no room\nfor it\n\tat a.b(c)\n\tat d.e(f)"
    fake.outcome = {"failure-cause": {"class": "org.example.Broken", "stack-trace": stack}}
    with pytest.raises(SavepointError) as failed:
        twin(twin.client(node.address).job(ID).savepoint())
    assert str(failed.value) == "no room\nfor it"


def test_operation_that_takes_too_long_goes_on(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.polls = -(10**9)
    with pytest.raises(JobTimeoutError, match="savepoint of job"):
        twin(twin.client(node.address).job(ID).savepoint(timeout=0.2))


def test_operation_that_was_forgotten(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.faults.append(Fault("/savepoints", "answer", 202, body=b'{"request-id": "unknown"}'))
    with pytest.raises(OperationNotFoundError):
        twin(twin.client(node.address).job(ID).savepoint())


def test_stop_gives_the_location_or_nothing(twin: Twin, fake: FakeCluster, node: Node) -> None:
    job_client = twin.client(node.address).job(ID)
    assert twin(job_client.stop("file:/mine")) == "file:/savepoints/1"
    fake.outcome = {"location": ""}
    assert twin(job_client.stop(savepoint=False)) is None
    first, second = (s.json for s in fake.asked("POST", f"/jobs/{ID}/stop"))
    assert (first["targetDirectory"], first["savepoint"]) == ("file:/mine", True)
    assert (second["targetDirectory"], second["savepoint"]) == (None, False)


def test_checkpoint(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.outcome = {"checkpointId": 7}
    job_client = twin.client(node.address).job(ID)
    assert twin(job_client.checkpoint()) == {"checkpointId": 7}
    fake.outcome = {"failureCause": {"class": "X", "stack-trace": "X: it has ended"}}
    with pytest.raises(JobStateError, match="it has ended"):
        twin(job_client.checkpoint())


def test_heartbeat(twin: Twin, fake: FakeCluster, node: Node) -> None:
    twin(twin.client(node.address).job(ID).heartbeat())
    (sent,) = fake.asked("PATCH", f"/jobs/{ID}/clientHeartbeat")
    assert sent.json["expiredTimestamp"] > 10**12


# -- looking at it ------------------------------------------------------------------------------------------------------


def test_details_lineage_attempts_and_exceptions(twin: Twin, fake: FakeCluster, node: Node) -> None:
    fake.add(ID, progress={"phase": "running"})
    entry = {
        "exceptionName": "E",
        "stacktrace": "E: x",
        "timestamp": 1500,
        "taskName": "paid",
        "failureLabels": {"a": "b"},
    }
    log = {"name": "stdout", "size": 9, "modified": 1500}
    fake.answers |= {
        f"/jobs/{ID}/lineage": {"job_id": ID, "inputs": []},
        f"/jobs/{ID}/attempts": {"attempts": [{"attempt": 1, "logs": [log]}]},
        f"/jobs/{ID}/exceptions": {"exceptionHistory": {"entries": [entry], "truncated": False}},
    }
    job_client = twin.client(node.address).job(ID)
    assert twin(job_client.details())["progress"] == {"phase": "running"}
    assert twin(job_client.lineage())["inputs"] == []
    assert twin(job_client.attempts()) == (AttemptInfo(1, (LogInfo("stdout", 9, 1.5),)),)
    (exception,) = twin(job_client.exceptions())
    assert (exception.name, exception.text, exception.at, exception.task) == ("E", "E: x", 1.5, "paid")
    assert exception.labels == {"a": "b"}


def test_logs(twin: Twin, node: Node) -> None:
    job_client = twin.client(node.address).job(ID)
    assert twin(job_client.logs()).splitlines()[0] == "last: stdout 0"
    assert twin(job_client.logs("stderr", attempt=2, tail=1)) == "2: stderr 4\n"
    assert b"".join(twin.items(job_client.log_chunks("jvm", tail=2))) == b"last: jvm 3\nlast: jvm 4\n"
