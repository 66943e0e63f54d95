"""What is one tenant's is nobody else's, with real tokens on a real node: S19, S20; and an admin who sees all of it."""

from __future__ import annotations

import hashlib
import json
import socket
import uuid
from collections.abc import Iterator

import pytest
from tests.attacks.attacked_node import NO_JOB, Answer, AttackedNode, Caller, People, Route, routes, until
from tests.attacks.graphs import BATCH, STREAM, changed

from firesteel.sandbox.owners import owner_directory
from firesteel.types import vertex_id

pytestmark = pytest.mark.xdist_group("attacks")

SECRET = "alices-secret-plan"
PROGRAM = b"print('alices-secret-plan')\n"
OF_A_JOB = [r for r in routes() if "{jobid}" in r.path or "{applicationid}" in r.path]


@pytest.fixture(scope="module")
def job(node: AttackedNode, people: People) -> Iterator[str]:
    """A stream of alice's that runs, with a log and a savepoint that was asked for."""
    job_id = people.alice.submit({**STREAM, "name": SECRET, "description": SECRET})
    attempt = node.cluster / "jobs" / job_id / "attempts" / "1" / "output"
    until((attempt / "stdout.log").exists)
    (attempt / "stdout.log").write_text(f"{SECRET}\n")
    assert people.alice.post(f"/jobs/{job_id}/savepoints", {"triggerId": "d" * 32}).status == 202
    yield job_id
    assert people.alice.get(f"/jobs/{job_id}").json()["state"] == "RUNNING", "one of the attacks has changed it"


def target(route: Route, job_id: str) -> str:
    return route.filled(jobid=job_id, applicationid=job_id, vertexid=vertex_id("a"), triggerid="d" * 32)


def plain(answer: Answer, job_id: str) -> tuple[int, str]:
    return answer.status, answer.text.replace(job_id, "<id>")


@pytest.mark.parametrize("route", [r for r in OF_A_JOB if not r.changes and not r.streams], ids=str)
def test_somebody_elses_job_reads_as_if_it_were_not_there(people: People, job: str, route: Route) -> None:
    """S19: KYUUBI-7391. To the letter the answer for an id that nobody has."""
    theirs, nobodys = people.bob.get(target(route, job)), people.bob.get(target(route, NO_JOB))
    assert SECRET not in theirs.text
    assert plain(theirs, job) == plain(nobodys, NO_JOB)
    assert theirs.status in (200, 404)
    assert people.root.get(target(route, job)).status == people.alice.get(target(route, job)).status


CHANGES = [r for r in OF_A_JOB if r.changes and not r.path.endswith("/yarn-stop")]


@pytest.mark.parametrize("route", CHANGES, ids=str)
@pytest.mark.parametrize("who", ["bob", "watcher"])
def test_somebody_elses_job_cannot_be_changed(
    node: AttackedNode, people: People, job: str, route: Route, who: str
) -> None:
    """S20: refused, and written down with who it was. Nor by one who may only look."""
    caller: Caller = getattr(people, who)
    body: dict[str, object] = {"expiredTimestamp": 1} if "Heartbeat" in route.path else {}
    if route.method == "PUT":
        body = {vertex_id("a"): {"parallelism": {"lowerBound": 1, "upperBound": 1}}}
    query = "?parallelism=2" if "rescaling" in route.path else ""
    answer = caller.ask(route.method, target(route, job) + query, body)
    assert answer.status in (403, 404), answer
    assert SECRET not in answer.text
    record = node.audited(answer.headers["x-request-id"])
    assert record["principal"] in ("bob's laptop", "alice's dashboard")
    assert record["outcome"] in ("refused", "failed")
    assert record["status"] == answer.status
    assert record["job_id"] == job


def test_what_ends_or_copies_a_job_is_refused_with_403(people: People, job: str) -> None:
    """S20"""
    for method, path in (
        ("PATCH", f"/jobs/{job}"),
        ("GET", f"/jobs/{job}/yarn-cancel"),
        ("POST", f"/jobs/{job}/stop"),
        ("POST", f"/jobs/{job}/savepoints"),
        ("POST", f"/jobs/{job}/checkpoints"),
    ):
        assert people.bob.ask(method, path, {}).status == 403
        assert people.watcher.ask(method, path, {}).status == 403


def test_lists_have_what_is_the_callers(people: People, job: str) -> None:
    """S19"""
    mine = people.bob.submit({**BATCH, "name": "bobs"})
    for path in (
        "/jobs",
        "/jobs/overview",
        "/applications/overview",
        "/history",
        "/queue",
        "/overview",
        "/jobs/metrics",
    ):
        seen = people.bob.get(path).text
        assert job not in seen, path
        assert SECRET not in seen, path
    assert mine in people.bob.get("/jobs").text
    assert mine not in people.watcher.get("/jobs").text
    assert job in people.watcher.get("/jobs/overview").text
    both = people.root.get("/jobs/overview").text
    assert job in both
    assert mine in both
    assert (
        people.bob.get(f"/jobs/metrics?get=duration&jobs={job}").text
        == people.bob.get(f"/jobs/metrics?get=duration&jobs={NO_JOB}").text
    )
    for engine in people.bob.get("/taskmanagers").json()["taskmanagers"]:
        assert job not in people.bob.get(f"/taskmanagers/{engine['id']}").text
        for path in ("logs", "log", "stdout", "thread-dump"):
            assert people.bob.get(f"/taskmanagers/{engine['id']}/{path}").status == 403


def test_uploads_are_the_callers(people: People) -> None:
    """S19, S20"""
    key = people.alice.upload(PROGRAM)
    for method, path in (("GET", ""), ("GET", "/info"), ("DELETE", "")):
        theirs = people.bob.ask(method, f"/blobs/{key}{path}")
        nobodys = people.bob.ask(method, f"/blobs/{'0' * 64}{path}")
        assert theirs.status == nobodys.status == 404
        assert theirs.text.replace(key, "") == nobodys.text.replace("0" * 64, "")
    assert key not in people.bob.get("/blobs").text
    assert people.watcher.ask("DELETE", f"/blobs/{key}").status == 403
    assert people.watcher.post("/blobs", b"x").status == 403
    script = {"name": "x", "vertices": [{"kind": "script", "name": "s", "file": f"blob:{key}/x.py"}]}
    assert people.bob.post("/jobs", {"graph": script}).status == 400
    with_file = changed(BATCH, "settings", "artifacts", to={"files": [f"blob:{key}/x.txt"]})
    assert people.bob.post("/jobs", {"graph": with_file}).status == 400
    assert people.alice.get(f"/blobs/{key}").body == PROGRAM


def test_programs_are_the_callers(people: People) -> None:
    """S19, S20"""
    program = people.alice.upload_program("alices.py", PROGRAM)
    assert program not in people.bob.get("/jars").text
    assert program in people.watcher.get("/jars").text
    for method, action in (("GET", "/plan"), ("POST", "/plan"), ("POST", "/run"), ("POST", "/run-application")):
        theirs = people.bob.ask(method, f"/jars/{program}{action}", {} if method == "POST" else None)
        assert theirs.status == 404
        assert SECRET not in theirs.text
    assert people.bob.ask("DELETE", f"/jars/{program}").status == 400
    for method, path in (("DELETE", ""), ("POST", "/run"), ("POST", "/run-application")):
        assert people.watcher.ask(method, f"/jars/{program}{path}", {}).status == 403
    assert program in people.alice.get("/jars").text


def test_ids_are_not_there_to_be_guessed_or_taken(people: People, job: str) -> None:
    """S19: at least 122 random bits; and whose an id is, is not told to one who tries to use it."""
    ids = [people.alice.submit(BATCH) for _ in range(5)]
    assert {uuid.UUID(i).version for i in ids} == {4}
    assert len(set(ids)) == 5
    taken = people.bob.post("/jobs", {"graph": BATCH, "jobId": job})
    assert taken.status == 409
    assert SECRET not in taken.text
    assert "alice" not in taken.text
    key = {"idempotency-key": "the-same-for-both"}
    first, second = (c.post("/jobs", {"graph": BATCH}, key).json()["jobId"] for c in (people.alice, people.bob))
    assert first != second


class Events:
    """What comes on an event stream, one event after the other."""

    def __init__(self, node: AttackedNode, caller: Caller, path: str) -> None:
        self._connection = node.connected(60)
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {caller.token}\r\n\r\n"
        self._connection.sendall(head.encode())
        self._text = b""
        self.status = int(self._until(b"\r\n\r\n").split()[1])

    def _until(self, end: bytes) -> bytes:
        while end not in self._text:
            data = self._connection.recv(65536)
            assert data, "the stream has ended"
            self._text += data
        found, _, self._text = self._text.partition(end)
        return found

    def greeted(self) -> None:
        self._until(b"keep-alive")

    def next_job(self) -> str:
        """Of the next event that has one."""
        while True:
            event = self._until(b"\n\n")
            if (start := event.find(b"data: ")) >= 0:
                return str(json.loads(event[start + 6 :].split(b"\r\n")[0])["job_id"])

    def close(self) -> None:
        self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def test_events_are_the_callers(node: AttackedNode, people: People, job: str) -> None:
    """S19: bob is told of nothing that happens to alice, though it happens before what happens to him."""
    everything, theirs = Events(node, people.bob, "/events"), Events(node, people.bob, f"/jobs/{job}/events?logs=true")
    assert (everything.status, theirs.status) == (200, 404)
    everything.greeted()
    alices = [people.alice.submit(BATCH) for _ in range(3)]
    bobs = people.bob.submit(BATCH)
    told = everything.next_job()
    assert told == bobs
    assert told not in alices
    for stream in (everything, theirs):
        stream.close()


def test_the_progress_of_somebody_elses_stream_is_not_gone_on_from(
    node: AttackedNode, people: People, job: str
) -> None:
    """S36: the checkpoint as one's own, by an option of the sink."""
    place = f"{node.directory}/checkpoints/{owner_directory('alice')}/{job}/o"
    own = changed(STREAM, "vertices", 2, "options", to={"checkpointLocation": place})
    theirs = people.bob.post("/jobs", {"graph": own})
    assert theirs.status == 400, theirs
    assert "options.checkpointLocation" in theirs.text
    assert people.alice.post("/jobs", {"graph": own}).status == 202


def test_the_job_of_somebody_elses_key_cannot_be_taken(people: People) -> None:
    """S41: the id that a key stands for follows from a secret, so nobody can choose it first."""
    key = "nightly-2026-11-17"
    taken = hashlib.sha256(f"alice\0{key}".encode()).hexdigest()[:32]
    assert people.bob.post("/jobs", {"graph": BATCH, "jobId": taken}).status == 202
    answers = [people.alice.post("/jobs", {"graph": BATCH}, {"idempotency-key": key}) for _ in range(2)]
    assert [answer.status for answer in answers] == [202, 202]
    assert answers[0].json()["jobId"] == answers[1].json()["jobId"] != taken


def test_only_an_admin_ends_the_cluster_or_disposes_of_savepoints(node: AttackedNode, people: People) -> None:
    """S20"""
    for caller in (people.alice, people.bob, people.watcher):
        assert caller.ask("DELETE", "/cluster").status == 403
        assert caller.post("/savepoint-disposal", {"savepoint-path": "/x"}).status == 403
        for path in ("/jobmanager/log", "/jobmanager/logs", "/jobmanager/stdout", "/jobmanager/logs/node.log"):
            assert caller.get(path).status == 403
    assert people.root.get("/jobmanager/logs").status == 200
    assert node.process is not None
    assert node.process.poll() is None
