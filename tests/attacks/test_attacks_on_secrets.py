"""Seeded canaries are found nowhere (S27): answers, logs, the audit log, arguments of processes, files that others can read."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.attacks.attacked_node import AttackedNode, People, argv_of, processes_of, routes, until
from tests.attacks.canaries import CONFIGURATION, ENVIRONMENT, GRAPH, MARK, canary

from firesteel.types import vertex_id

pytestmark = pytest.mark.xdist_group("attacks")


@pytest.fixture(scope="module")
def jobs(node: AttackedNode, people: People) -> list[str]:
    """One full of secrets, and a program with one among its arguments."""
    first = people.root.submit(GRAPH)
    program = people.root.upload_program("p.py", b"print(1)\n")
    body = {"programArgsList": ["--password", canary("program"), f"--token={canary('program')}", "--verbose"]}
    ran = people.root.post(f"/jars/{program}/run", body)
    assert ran.status == 200, ran
    second = ran.json()["jobid"]
    until((node.cluster / "jobs" / first / "attempts" / "1" / "output" / "events.jsonl").exists)
    return [first, second]


def test_the_canaries_are_where_they_belong(node: AttackedNode, people: People, jobs: list[str]) -> None:
    """Else none would be found anywhere, and nothing would be shown by it."""
    shown = {row["key"]: row["value"] for row in people.root.get("/jobmanager/config").json()}
    assert set(CONFIGURATION) <= set(shown)
    environ = Path(f"/proc/{node.pid}/environ").read_bytes()
    assert all(value.encode() in environ for value in ENVIRONMENT.values())
    assert (
        people.root.get(f"/jobs/{jobs[0]}/execution-graph").json()["graph"]["vertices"][0]["options"]["dbtable"] == "t"
    )
    spec = node.cluster / "jobs" / jobs[0] / "attempts" / "1" / "spec.json"
    assert canary("option") in spec.read_text()
    assert canary("engine-token") in spec.read_text()


def test_no_answer_has_one(node: AttackedNode, people: People, jobs: list[str]) -> None:
    """LIVY-1039, KYUUBI-7639: to one who may see everything."""
    asked = 0
    for route in routes():
        if route.method != "GET" or route.streams or route.changes:
            continue
        for job in jobs if "{jobid}" in route.path or "{applicationid}" in route.path else jobs[:1]:
            for vertex in ("a", "q", "o"):
                target = route.filled(jobid=job, applicationid=job, vertexid=vertex_id(vertex))
                for name in ("events", "stderr") if "{name}" in route.path else ("",):
                    answer = people.root.get(target.replace("stdout", name) if name else target)
                    assert MARK not in answer.text, (target, answer)
                    asked += answer.status == 200
    assert asked > 100
    with node.connected() as connection:
        head = f"GET /jobs/{jobs[0]}/events?logs=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {people.root.token}"
        connection.sendall(f"{head}\r\n\r\n".encode())
        text = b""
        while b"\n\n" not in text.partition(b"event: snapshot")[2]:
            text += connection.recv(65536)
        assert MARK.encode() not in text


def test_no_log_and_no_audit_record_has_one(node: AttackedNode, people: People) -> None:
    """Credentials that are wrong, in every place where one can be."""
    secret = canary("credential")
    basic = base64.b64encode(f"root:{secret}".encode()).decode()
    shaped = f"fst_0123456789abcdef_{MARK}{'0' * 42}"
    for value in (f"Bearer {secret}", f"Basic {basic}", f"Bearer {shaped}", f"Digest {secret}", secret):
        assert people.nobody.get("/jobs", {"authorization": value}).status == 401
    for path in (f"/jobs?token={secret}", f"/jobs/password={secret}", f"/{shaped}/x", f"/jobs?x={shaped}"):
        assert people.nobody.post(path, {"password": secret}).status in (400, 401)
        assert people.root.post(path, {"password": secret}).status in (400, 404)
    last = people.root.post(f"/https://x:{secret}@host/", {})
    node.audited(last.headers["x-request-id"])
    for name in ("audit.log", "drivers.log"):
        assert MARK not in (node.cluster / name).read_text()
    assert MARK not in node.log_text()
    assert basic not in (node.cluster / "audit.log").read_text()


def test_no_process_has_one_among_its_arguments(node: AttackedNode, people: People, jobs: list[str]) -> None:
    """Anybody on the machine can list processes."""
    found = [argv_of(pid) for pid in processes_of(node)]
    assert any("firesteel.entrypoint" in argv for argv in found)
    assert any("firesteel.driver.zygote" in argv for argv in found)
    said = " ".join(part for argv in found for part in argv)
    assert MARK not in said
    for token in (people.root.token, people.alice.token, node.token):
        assert str(token) not in said


def files(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in directory.rglob("*"):
        try:
            yield path, path.lstat()
        except FileNotFoundError:
            continue


def test_nobody_else_can_read_what_the_node_keeps(node: AttackedNode, jobs: list[str]) -> None:
    """Directories are closed, and what has secrets is closed by itself too."""
    others = stat.S_IRWXG | stat.S_IRWXO
    for path, status in files(node.cluster.parent):
        if stat.S_ISDIR(status.st_mode):
            assert not status.st_mode & others, path
    for path in (node.cluster / "rest.json", node.cluster / "audit.log", node.directory / "tokens.json"):
        assert not path.stat().st_mode & others, path
    specs = list(node.cluster.rglob("spec.json"))
    assert specs
    assert not [p for p in specs if p.stat().st_mode & others]


def test_tokens_are_in_no_file(node: AttackedNode, people: People) -> None:
    """Hashes only, and nothing at all of the one of the node's owner."""
    tokens = [str(c.token).encode() for c in (people.alice, people.bob, people.watcher, people.root)]
    secrets = [t.rpartition(b"_")[2] for t in tokens]
    for path, status in files(node.directory):
        if not stat.S_ISREG(status.st_mode):
            continue
        content = path.read_bytes()
        assert not [s for s in (*secrets, node.token.encode()) if s in content], path
