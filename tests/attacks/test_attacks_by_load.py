"""Too much, too large, too slow, too deep: S24, S25, S26. Others are served meanwhile."""

from __future__ import annotations

import contextlib
import io
import json
import select
import socket
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.attacks.attacked_node import NO_JOB, AttackedNode, Caller, People, form, status_of, until
from tests.attacks.graphs import BATCH, changed

from firesteel.config.sections import Role

pytestmark = pytest.mark.xdist_group("attacks")

SAVEPOINTS = f"/jobs/{NO_JOB}/savepoints"
CHUNK = b"10000\r\n" + b"x" * 65536 + b"\r\n"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    """A node with little patience and little room."""
    overrides = {
        "engine.master": "sc://localhost:9",
        "rest.request-timeout": "2 s",
        "rest.server.max-content-length": "64k",
        "blob.max-size": "1m",
        "blob.quota": "2m",
        "rest.rate-limit.requests-per-second": "50",
        "rest.rate-limit.burst": "100",
        "rest.rate-limit.submissions-per-second": "5",
    }
    with AttackedNode(tmp_path_factory.mktemp("small") / "state", overrides) as node:
        yield node
        assert node.process is not None
        assert node.process.poll() is None
    assert "Traceback" not in node.log_text()


@pytest.fixture(scope="module")
def crowd(small: AttackedNode) -> Iterator[People]:
    with small.people() as people:
        yield people


@pytest.fixture
def watched(small: AttackedNode) -> Iterator[None]:
    """Somebody asks for the node's health and for their jobs all the time, and is always answered."""
    over = threading.Event()
    told: Counter[int] = Counter()
    token = small.new_token(f"watch {time.monotonic_ns()}", Role.VIEWER, "watch")

    def watch() -> None:
        visitor, viewer = small.caller(None), small.caller(token)
        while not over.wait(0.1):
            told[visitor.get("/healthz").status] += 1
            told[viewer.get("/jobs").status] += 1
        visitor.close()
        viewer.close()

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        until(lambda: told[200] >= 4)
        yield
        seen = told[200]
        until(lambda: told[200] >= seen + 4 or watching.done())
        over.set()
        watching.result(60)
    assert set(told) == {200}


def head(caller: Caller, method: str, path: str, *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {caller.token}", *more]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("path", ["/jobs", "/blobs", "/jars/upload", SAVEPOINTS])
def test_a_hundred_gigabytes_are_refused_before_they_come(small: AttackedNode, crowd: People, path: str) -> None:
    """S24: by what they say of themselves, and by what comes when they say nothing."""
    said = head(
        crowd.alice, "POST", path, "Content-Length: 107374182400", "Content-Type: multipart/form-data; boundary=x"
    )
    with small.connected() as connection:
        connection.sendall(said)
        assert status_of(connection.recv(65536)) == 413
    unsaid = head(
        crowd.alice, "POST", path, "Transfer-Encoding: chunked", "Content-Type: multipart/form-data; boundary=x"
    )
    begin = b'--x\r\nContent-Disposition: form-data; name="f"; filename="x.py"\r\n\r\n'
    with small.connected() as connection:
        connection.sendall(unsaid + b"%x\r\n%s\r\n" % (len(begin), begin))
        sent = 0
        while not select.select([connection], [], [], 0)[0]:
            connection.sendall(CHUNK)
            sent += 65536
            assert sent < 64 << 20, "nobody stops it"
        # To /jobs no file is sent, whatever its size: only Flink's client does that.
        assert status_of(connection.recv(65536)) == (400 if path == "/jobs" else 413)
    assert not list((small.cluster / "blobs" / "uploads").iterdir())
    assert not list(small.cluster.glob("upload-*"))


@pytest.mark.usefixtures("watched")
def test_slow_bodies_and_slow_heads_are_given_up(small: AttackedNode, crowd: People) -> None:
    """S24: many at once, so that each would keep something."""
    begun: list[tuple[str, socket.socket]] = []
    with contextlib.ExitStack() as opened:
        for number in range(60):
            connection = opened.enter_context(small.connected(60))
            path = ("", SAVEPOINTS, "/blobs")[number % 3]
            if path:
                connection.sendall(head(crowd.alice, "POST", path, "Content-Length: 1000") + b"{")
            else:
                connection.sendall(b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX-")  # a head that does not end
            begun.append((path, connection))
        told = {(path, connection.recv(12)) for path, connection in begun}
    assert told == {("", b""), (SAVEPOINTS, b"HTTP/1.1 408"), ("/blobs", b"HTTP/1.1 408")}
    assert not list((small.cluster / "blobs" / "uploads").iterdir())


@pytest.mark.usefixtures("watched")
def test_archives_that_grow_when_they_are_opened_are_refused(small: AttackedNode, crowd: People) -> None:
    """S24: a zip bomb of 64 MB in as many kB; and archives that lie about themselves."""
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", b"\0" * (64 << 20))
    outside = io.BytesIO()
    with zipfile.ZipFile(outside, "w") as archive:
        archive.writestr("../../evil.py", b"print(1)")
    lies = b"PK\x05\x06" + b"\0" * 4 + b"\xff" * 12 + b"\0\0"
    for content in (bomb.getvalue(), outside.getvalue(), lies, b"PK\x03\x04" + b"\0" * 100, b""):
        for name in ("x.zip", "x.whl"):
            assert crowd.alice.post("/jars/upload", *form(name, content)).status == 400, (name, content[:100])
    assert not list(small.cluster.glob("upload-*"))
    assert not list(small.directory.rglob("evil*"))


@pytest.mark.usefixtures("watched")
def test_a_million_parts_are_refused(crowd: People) -> None:
    """S24"""
    part = b'--limit\r\nContent-Disposition: form-data; name="x"\r\n\r\n\r\n'
    headers = {"content-type": "multipart/form-data; boundary=limit"}
    assert crowd.alice.post("/jars/upload", part * 15_000 + b"--limit--\r\n", headers).status == 400
    many = b"--limit\r\n" + b"X: y\r\n" * 10_000 + b"\r\n\r\n--limit--\r\n"
    assert crowd.alice.post("/jars/upload", many, headers).status == 400


def test_what_one_owner_keeps_leaves_room_for_others(small: AttackedNode, crowd: People) -> None:
    """S24: a quota for each, by bytes; whatever the number of their tokens."""
    again = small.caller(small.new_token("bob's other laptop", Role.OPERATOR, "bob"))
    statuses = [c.post("/blobs", bytes([n]) * 600_000).status for n in range(4) for c in (crowd.bob, again)]
    assert statuses.count(413) >= 2
    assert statuses[0] == 201
    assert crowd.alice.post("/blobs", b"alice's" * 10_000).status == 201
    kept = sum(f.stat().st_size for f in (small.cluster / "blobs").rglob("*") if f.is_file())
    assert kept < 4 << 20
    again.close()


# -- shapes that hurt --------------------------------------------------------------------------------------------------


def deep(depth: int) -> bytes:
    return b'{"graph":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"


def test_deep_and_huge_bodies_are_refused_and_nothing_is_slow(people: People) -> None:
    """S25: on the node with the usual limits."""
    for body in (deep(100), deep(20_000), b"[" * 500_000, b'{"graph": ' + b"[" * 500_000):
        assert people.alice.post("/jobs", body).status == 400
    bomb = "a: &a [" + ",".join("x" * 9) + "]\n"
    for letter, before in zip("bcdefghij", "abcdefghi", strict=True):
        bomb += f"{letter}: &{letter} [" + ",".join([f"*{before}"] * 9) + "]\n"
    yaml = {"content-type": "application/yaml"}
    assert people.alice.post("/jobs", bomb.encode(), yaml).status == 400
    assert people.alice.post("/jobs", b"- " * 50_000, yaml).status == 400
    for name in ("n" * 201, "n" * 900_000, "a\nb", ""):
        assert people.alice.post("/jobs", {"graph": {**BATCH, "name": name}}).status == 400
    huge = {**BATCH, "vertices": [{"kind": "source", "name": f"v{n}", "format": "x"} for n in range(3000)]}
    assert people.alice.post("/jobs", {"graph": huge}).status == 400
    for path in ("/{a,b}" * 40, "/" + "{" * 5000, "/*" * 20_000):
        assert people.alice.post("/jobs", {"graph": changed(BATCH, "vertices", 0, "path", to=path)}).status in (
            202,
            400,
        )


@pytest.mark.parametrize("duration", ["9" * 30 + " d", "9" * 400 + " s", "99999999999 h"])
def test_a_time_without_end_is_refused(people: People, duration: str) -> None:
    """S25: it would be a number that no answer can hold."""
    stream = {**BATCH, "mode": "streaming"}
    for graph in (
        changed(stream, "vertices", 2, "trigger", to=duration),
        changed(stream, "settings", "checkpoint_interval", to=duration),
        changed(BATCH, "settings", "restart", to={"type": "fixed-delay", "delay": duration}),
        changed(BATCH, "settings", "restart", to={"type": "exponential-delay", "max_delay": duration}),
        changed(BATCH, "settings", "restart", to={"type": "failure-rate", "interval": duration}),
    ):
        answer = people.alice.post("/jobs", {"graph": graph})
        assert answer.status == 400
        assert "hundred years" in answer.errors[0]


def test_filters_and_patterns_do_not_run_away(people: People) -> None:
    """S25: each in the time that the whole test has."""
    job = people.alice.submit(BATCH)
    for text in ("a" * 20_000, "(a+)+$" * 3000, "," * 19_000, "%28" * 6000, "a:b," * 4000):
        for path in (
            f"/jobs/metrics?get={text}&agg=min",
            f"/jobs/{job}/metrics?get={text}",
            f"/jobs/{job}/exceptions?failureLabelFilter={text}",
            f"/taskmanagers/metrics?taskmanagers={text}",
            f"/jobmanager/metrics?get={text}",
        ):
            assert people.alice.get(path).status in (200, 400, 404), path


def test_lists_are_read_by_pages(people: People) -> None:
    """S25"""
    for limit, status in (("0", 400), ("1001", 400), ("99999999999", 400), ("-1", 400), ("1000", 200)):
        assert people.alice.get(f"/history?limit={limit}").status == status
    assert len(people.root.get("/history?limit=1").json()["jobs"]) <= 1 + len(people.root.get("/jobs").json()["jobs"])


# -- floods ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("watched")
def test_one_who_floods_is_slowed_down_and_the_others_are_not(small: AttackedNode, crowd: People) -> None:
    """S26: by one token from four connections; and by strangers from the same address."""

    def flood(token: str | None) -> Counter[int]:
        caller = small.caller(token)
        told: Counter[int] = Counter()
        for _ in range(150):
            answer = caller.get("/jobs")
            told[answer.status] += 1
            if answer.status == 429:
                assert int(answer.headers["retry-after"]) >= 1
        caller.close()
        return told

    flooding = small.new_token("flood", Role.OPERATOR, "flood")
    with ThreadPoolExecutor(6) as pool:
        floods = [pool.submit(flood, token) for token in (flooding, flooding, flooding, flooding, None, None)]
        others = [crowd.alice.get("/jobs").status for _ in range(40)]
        told = sum((f.result() for f in floods[:4]), Counter())
        strangers = sum((f.result() for f in floods[4:]), Counter())
    assert set(others) == {200}
    assert told[429] > 0
    assert told[200] >= 100
    assert set(told) == {200, 429}
    assert strangers[429] > 0
    assert set(strangers) == {401, 429}


@pytest.mark.usefixtures("watched")
def test_a_flood_of_jobs_is_slowed_down_for_its_owner_and_nobody_else(small: AttackedNode, crowd: People) -> None:
    """S26: however many tokens the owner has, and whichever door it takes."""
    callers = [small.caller(small.new_token(f"flood {n}", Role.OPERATOR, "flooder")) for n in range(4)]
    program = callers[0].upload_program("p.json", json.dumps(BATCH).encode())
    told: Counter[int] = Counter()
    for _ in range(10):
        for caller in callers:
            told[caller.post("/jobs", {"graph": BATCH}).status] += 1
            told[caller.post(f"/jars/{program}/run", {}).status] += 1
    assert told[429] > 0
    assert told[202] + told[200] >= 5
    assert set(told) <= {200, 202, 429}
    refused = until(lambda: next((a for a in (callers[0].post("/jobs", {"graph": BATCH}),) if a.status == 429), None))
    assert "rest.rate-limit.submissions-per-second" in refused.errors[0]
    assert int(refused.headers["retry-after"]) >= 1
    assert crowd.alice.post("/jobs", {"graph": BATCH}).status == 202
    for caller in callers:
        caller.close()
