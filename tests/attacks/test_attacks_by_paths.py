"""No byte from outside the directories that are served, and none written outside: S4, S5, S6, S10."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.attacks.attacked_node import AttackedNode, Caller, People, form, until
from tests.attacks.graphs import BATCH, STREAM, changed

from firesteel.attempts.attempt import AttemptDirectory, EventTail
from firesteel.fs.files import tail
from firesteel.rest.logs import json_object
from firesteel.rest.native.log_tail import LogTail
from firesteel.types import AttemptId, SparkIds, new_job_id, vertex_id

pytestmark = pytest.mark.xdist_group("attacks")

IDS = SparkIds(AttemptId(new_job_id(), 1), "alice", "s")
CANARY = "root:x:0:0:of-this-machine"
UPS = ("..", "%2e%2e", "%2E%2e", ".%2e", "%252e%252e", "%c0%ae%c0%ae", "%u002e%u002e", "..;", "....//", "..%00")
SLASHES = ("/", "%2f", "%2F", "%252f", "%5c", "\\", "%255c", "%c0%af", "/./", "//")
TARGETS = ("state/secret.txt", "secret.txt", "rest.json", "tokens.json", "etc/passwd", "node.log")


@pytest.fixture(scope="module")
def job(node: AttackedNode, people: People) -> str:
    """One of alice's that has an attempt with logs."""
    job_id = people.alice.submit(STREAM)
    attempt = node.cluster / "jobs" / job_id / "attempts" / "1" / "output"
    until((attempt / "stdout.log").exists)
    (attempt / "stdout.log").write_text("of the job\n")
    return job_id


@pytest.fixture(scope="module")
def secrets(node: AttackedNode) -> Iterator[list[Path]]:
    """Files with a canary, in every directory above a log."""
    planted = []
    for directory in (node.directory, node.directory.parent, node.cluster, node.cluster / "jobs"):
        (directory / "secret.txt").write_text(CANARY)
        planted.append(directory / "secret.txt")
    yield planted
    for file in planted:
        file.unlink()


def spellings() -> Iterator[str]:
    for up in UPS:
        for slash in SLASHES:
            for depth in (1, 3, 8):
                for target in TARGETS[:2] if depth == 3 else TARGETS[4:5]:
                    yield slash.join([*[up] * depth, *target.split("/")])
    yield from ("%2fetc%2fpasswd", "//etc/passwd", "file:%2f%2f%2fetc%2fpasswd", "%00", "stdout.log%00.txt", "~root")
    yield from (
        "stdout%00",
        "stdout.log",
        "stdout/",
        "STDOUT",
        "stdout%20",
        "stdout.",
        "events.jsonl",
        "spec.json",
        ".",
    )


def test_no_spelling_of_a_path_gets_out_of_a_directory(
    node: AttackedNode, people: People, job: str, secrets: list[Path]
) -> None:
    """S4: CVE-2020-17519, CVE-2023-6020. All routes that serve a file, all spellings, for one who may see everything."""
    bases = (
        f"/jobs/{job}/logs/",
        f"/jobs/{job}/attempts/1/logs/",
        f"/jobs/{job}/attempts/",
        f"/jobs/{job}/vertices/",
        "/jobmanager/logs/",
        "/taskmanagers/engine/logs/",
        "/taskmanagers/",
        "/blobs/",
        "/jars/",
        "/",
        "/v1/",
    )
    assert people.root.get(f"/jobs/{job}/logs/stdout").text == "of the job\n"
    assert CANARY in secrets[0].read_text()
    spelled = list(spellings())
    assert len(spelled) > 300
    for base in bases:
        for spelling in spelled:
            answer = people.root.get(base + spelling)
            assert CANARY not in answer.text, (base, spelling)
            assert "root:x:0:0" not in answer.text, (base, spelling)
            assert node.token not in answer.text, (base, spelling)
            # What is served in its place is the log itself, or the page that the plain path names.
            assert answer.status in (400, 404) or answer.text == "of the job\n" or base in ("/", "/v1/"), (
                base,
                spelling,
            )


def test_request_lines_of_another_form_lead_nowhere_else(node: AttackedNode, people: People) -> None:
    """S4: what proxies and old servers understand, and some frameworks join to a path."""
    head = f"Host: localhost\r\nAuthorization: Bearer {people.root.token}\r\nConnection: close\r\n\r\n"
    for target in (
        "http://evil.example/etc/passwd",
        "/../../../../etc/passwd",
        "*",
        "file:///etc/passwd",
        "//etc/passwd",
    ):
        raw = node.raw(f"GET {target} HTTP/1.1\r\n{head}".encode())
        assert b"root:x:0:0" not in raw
        assert b"HTTP/1.1 200" not in raw


def test_links_and_pipes_that_a_job_planted_are_not_followed(
    node: AttackedNode, people: People, secrets: list[Path]
) -> None:
    """S4: the code of a job owns its directory. What it puts there is shown or not, but leads nowhere else."""
    job_id = people.alice.submit(BATCH)
    attempts = node.cluster / "jobs" / job_id / "attempts"
    first = attempts / "1" / "output"
    until((first / "events.jsonl").exists)
    outside = node.directory.parent / "elsewhere"
    (outside / "output").mkdir(parents=True)
    written = ("stdout.log", "stderr.log", "events.jsonl", "operators.json", "result.json")
    for name in ("jvm.log", *(f"output/{n}" for n in written)):
        (outside / name).write_text(json.dumps({"rows": {CANARY: 1}, "sinks": {CANARY: {}}, "x": CANARY}))
    (first / "stdout.log").unlink()
    (first / "stdout.log").symlink_to(secrets[0])
    (attempts / "1" / "jvm.log").hardlink_to(first / "stderr.log")  # of its own: not elsewhere
    (first / "operators.json").symlink_to(outside / "output" / "operators.json")
    (attempts / "7").symlink_to(outside, target_is_directory=True)
    os.mkfifo(first / "stderr.log.pipe")
    (first / "stderr.log.pipe").replace(first / "stderr.log")
    paths = [
        f"/jobs/{job_id}/attempts",
        f"/jobs/{job_id}/operators",
        f"/jobs/{job_id}/lineage",
        f"/jobs/{job_id}/vertices/a/log",
        f"/jobs/{job_id}/vertices/{vertex_id('a')}",
        f"/jobs/{job_id}",
        *(
            f"/jobs/{job_id}/{where}{name}"
            for where in ("logs/", "attempts/1/logs/", "attempts/7/logs/")
            for name in LOGS
        ),
    ]
    for path in paths * 2:
        answer = people.alice.get(path)
        assert CANARY not in answer.text, path
        assert answer.status in (200, 404), path
    assert people.alice.get(f"/jobs/{job_id}/attempts/7/logs/stdout").status == 404
    with events(node, people.alice, job_id) as stream:
        assert b"event: snapshot" in stream.recv(65536)


def test_pipes_in_the_place_of_files_keep_no_thread(node: AttackedNode, people: People) -> None:
    """S4, S24: a reader of a pipe waits for ever, and a node has few threads."""
    job_id = people.alice.submit(BATCH)
    first = node.cluster / "jobs" / job_id / "attempts" / "1"
    until((first / "output" / "events.jsonl").exists)
    for name in ("output/stdout.log", "output/stderr.log", "jvm.log"):
        (first / name).unlink(missing_ok=True)
        os.mkfifo(first / name)
    for _ in range(20):
        for name in ("stdout", "stderr", "jvm"):
            assert people.alice.get(f"/jobs/{job_id}/logs/{name}").status == 404
            assert people.alice.get(f"/jobs/{job_id}/logs/{name}?tail=5").status == 404
        with events(node, people.alice, job_id) as stream:
            assert b"event: snapshot" in stream.recv(65536)
    assert people.bob.get("/jobs").status == 200


@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("output/operators.json", lambda attempt: json_object(attempt.operators)),
        ("output/stdout.log", lambda attempt: LogTail(attempt.stdout).new()),
        ("output/stderr.log", lambda attempt: tail(attempt.stderr)),
        ("output/operators.json", lambda attempt: attempt.read_operators()),
        ("output/result.json", lambda attempt: attempt.read_result()),
        ("output/sessions.txt", lambda attempt: attempt.session_ids(IDS)),
        ("output/events.jsonl", lambda attempt: EventTail(attempt.events).new()),
        ("result.json", lambda attempt: attempt.read_result()),
        ("driver.json", lambda attempt: attempt.read_driver()),
    ],
)
def test_no_reader_of_what_a_job_could_replace_waits(
    tmp_path: Path, file: str, read: Callable[[AttemptDirectory], object]
) -> None:
    """S4, S24: the threads of the node that look after attempts are everybody's."""
    directory = tmp_path / ("a" * 32) / "attempts" / "1"
    (directory / "output").mkdir(parents=True)

    def look() -> None:
        with contextlib.suppress(Exception):
            read(AttemptDirectory(directory))

    def found_waiting() -> bool:
        """Whether somebody was at the other end of the pipe. Who only looks at it is not there for long."""
        (directory / file).unlink(missing_ok=True)
        os.mkfifo(directory / file)
        reader = threading.Thread(target=look, name="reader", daemon=True)
        reader.start()
        writer = until(lambda: -1 if not reader.is_alive() else _writer(directory / file))
        if writer >= 0:
            os.close(writer)
        reader.join(30)
        return writer >= 0

    assert not all(found_waiting() for _ in range(5))


def _writer(pipe: Path) -> int | None:
    """The end of a pipe that is written to, once somebody reads the other one."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


LOGS = ("stdout", "stderr", "events", "jvm")


def events(node: AttackedNode, caller: Caller, job_id: str) -> socket.socket:
    """An event stream whose head was read."""
    connection = node.connected()
    connection.sendall(
        f"GET /jobs/{job_id}/events?logs=true HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {caller.token}\r\n\r\n".encode()
    )
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(1)
    assert head.startswith(b"HTTP/1.1 200"), head
    return connection


# -- uploads -----------------------------------------------------------------------------------------------------------

NAMES = (
    "../../evil.py",
    "..\\..\\evil.py",
    "/etc/cron.d/evil.py",
    "C:\\evil.py",
    "%2e%2e%2fevil.py",
    "evil.py\0.txt",
    "....//evil.py",
    ".evil.py",
    "-rf.py",
    "a/../../evil.py",
    "evil.py/.",
    "~/evil.py",
    "$(touch evil).py",
    "con.py:stream",
    "e" * 400 + ".py",
    "evil.py.",
    "\u202eevil.py",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_an_upload_writes_no_file(node: AttackedNode, people: People, name: str) -> None:
    """S5: CVE-2020-17518, CVE-2026-52680. The stored name is the server's; a name that could be a path is refused."""
    before = {p for p in node.directory.rglob("*") if "blobs" not in p.parts}
    body, headers = form(name, b"print(1)\n")
    answer = people.alice.post("/jars/upload", body, headers)
    assert answer.status in (200, 400), answer
    if answer.status == 200:  # whatever came before the last separator is gone
        stored = answer.json()["filename"].rpartition("/")[2]
        assert "/" not in stored
        assert "\\" not in stored
        assert ".." not in stored
    after = {p for p in node.directory.rglob("*") if "blobs" not in p.parts}
    assert not [p for p in after - before if "evil" in p.name or "rf" in p.name]
    assert not [p for p in node.cluster.rglob("*evil*") if "blobs" in p.parts]
    assert not list(node.directory.parent.glob("*evil*"))


@pytest.mark.parametrize(
    "reference",
    [
        "blob:{key}/../../evil.py",
        "blob:{key}/..",
        "blob:{key}/.ssh",
        "blob:{key}/a/../b.py",
        "blob:{KEY}/x.py",
        "blob:{key}/x.py.",
        "blob:{key}/%2e%2e",
        "blob:{key}",
        "blob:../../{key}/x.py",
        "BLOB:{key}/x.py",
        " blob:{key}/x.py",
        "blob:{key}/x.py\n",
        "blob:{key}/-x.py",
        "blob:{key}/x\\y.py",
    ],
)
def test_references_have_one_spelling(people: People, reference: str) -> None:
    """S6: CVE-2025-66249, CVE-2025-66518. A list of what is allowed is not got around by another spelling."""
    key = people.alice.upload(b"print(1)\n")
    text = reference.format(key=key, KEY=key.upper())
    script = {"name": "x", "vertices": [{"kind": "script", "name": "s", "file": text}]}
    assert people.alice.post("/jobs", {"graph": script}).status == 400
    with_file = changed(BATCH, "settings", "artifacts", to={"files": [text]})
    assert people.alice.post("/jobs", {"graph": with_file}).status == 400


@pytest.mark.parametrize("key", ["{key}%00", "{key}.", "{key}%20", "{key}/../{key}", "./{key}", "{key}%0a"])
def test_keys_have_one_spelling(people: People, key: str) -> None:
    """S4, S6"""
    there = people.alice.upload(b"content\n")
    assert people.alice.get(f"/blobs/{there}").text == "content\n"
    assert people.alice.get(f"/blobs/{key.format(key=there)}").status in (400, 404)


# -- asking others on somebody's behalf --------------------------------------------------------------------------------


class Bait:
    """Listens, and counts who comes."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.visits = 0
        self._thread = threading.Thread(target=self._count, name="bait", daemon=True)
        self._thread.start()

    def _count(self) -> None:
        while True:
            try:
                self._listener.accept()[0].close()
            except OSError:
                return
            self.visits += 1

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()


def test_the_node_connects_to_no_place_that_a_caller_names(node: AttackedNode, people: People) -> None:
    """S9, S10: CVE-2023-48023 (`/log_proxy?url=`), CVE-2026-40564, KYUUBI-7483. Ids, artifacts and headers with addresses."""
    bait = Bait()
    url = f"http://127.0.0.1:{bait.port}/x"
    place = url.replace("/", "%2f")
    for caller in (people.root, people.alice):
        for path in (
            f"/taskmanagers/{place}",
            f"/taskmanagers/{place}/logs",
            f"/taskmanagers/{place}/log",
            f"/taskmanagers/{place}/thread-dump",
            f"/taskmanagers/127.0.0.1:{bait.port}/logs/engine.log",
            f"/taskmanagers/metrics?taskmanagers={url}",
            f"/jobs/{'f' * 32}/taskmanagers/{place}/log-url",
            f"/log_proxy?url={url}",
            f"/proxy/{place}",
            f"/jobmanager/logs/{place}",
            f"/jars/{place}/plan",
        ):
            caller.get(path)
        for headers in ({"x-forwarded-host": f"127.0.0.1:{bait.port}"}, {"x-original-url": url}, {"referer": url}):
            caller.get("/jobs", headers)
        for scheme in (
            url,
            f"file://{node.cluster}/rest.json",
            f"ftp://127.0.0.1:{bait.port}/x",
            "s3a://b/x",
            "ivy://a:b:1",
        ):
            for field in ("py_files", "jars", "files", "archives"):
                refused = caller.post("/jobs", {"graph": changed(BATCH, "settings", "artifacts", to={field: [scheme]})})
                assert refused.status == 400, (caller, field, scheme)
            script = {"name": "x", "vertices": [{"kind": "script", "name": "s", "file": scheme}]}
            assert caller.post("/jobs", {"graph": script}).status == 400
        caller.post("/savepoint-disposal", {"savepoint-path": url})
    link = people.alice.get(f"/jobs/{'f' * 32}/taskmanagers/127.0.0.1:{bait.port}/log-url").json()["url"]
    assert link.startswith(f"{node.address}/#/")
    assert people.alice.get("/jobs").status == 200
    bait.close()
    assert bait.visits == 0
