"""Whatever is sent, no answer is a 5xx, and nothing is a surprise to the node: wrong types, giant numbers, half characters,
absurd headers, methods that are none. Always the same, from a fixed seed."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from tests.attacks.attacked_node import (
    NO_JOB,
    UNLIMITED,
    Answer,
    AttackedNode,
    Caller,
    People,
    Route,
    routes,
    status_of,
    until,
)
from tests.attacks.graphs import BATCH, changed

from firesteel.types import vertex_id

pytestmark = pytest.mark.xdist_group("attacks")

BODIES = (
    b"",
    b"null",
    b"[]",
    b"0",
    b'"x"',
    b"{",
    b"\xff\xfe",
    b'{"a":\xff}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"1e999",
    b"9" * 5000,
    b'{"a":1,"a":2}',
    b'"\\ud800"',
    b'{"\\ud800":1}',
    b"\x00",
    b"\xef\xbb\xbf{}",
    b"NaN",
    b"{}{}",
    b"\xed\xa0\x80",
    b"\x1f\x8b\x08\x00\x00",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    10**400,
    1.5,
    1e308,
    "",
    "x" * 100_000,
    "\x00",
    "\ud800",
    "../../etc/passwd",
    "NaN",
    "\u202e",
    "${x}",
    [],
    [[[]]],
    {},
    {"a": None},
    ["x"] * 2000,
)
IN_A_PATH = (
    *(
        ".",
        "..",
        "%2e%2e",
        "..%2f..%2fx",
        "%00",
        "%0a",
        "%0d%0aX:%20y",
        "%ff",
        "%ed%a0%80",
        "a" * 3000,
        "-1",
        "0",
        "1e9",
    ),
    *(
        "9" * 400,
        "%E2%80%AE",
        "*",
        "%3F",
        "%23",
        "~",
        "$(id)",
        "%60id%60",
        ";",
        "%5c..%5c",
        "%22",
        "<script>",
        "%7B%7D",
    ),
    *("true", "0x10", "1_0", "%D9%A1", "%2B1", "1%20", "01", "%"),
)
METHODS = ("TRACE", "CONNECT", "PROPFIND", "OPTIONS", "PUT", "PATCH", "HEAD", "DELETE", "POST", "BREW", "X" * 40)
ENDING = ("/yarn-cancel", "/yarn-stop", "/cancel", "/stop")


class Fuzzed:
    """Counts answers, and keeps those that must not be."""

    def __init__(self) -> None:
        self.told: Counter[int] = Counter()
        self.wrong: list[tuple[str, Answer]] = []

    def note(self, what: str, answer: Answer) -> None:
        self.told[answer.status] += 1
        if answer.status >= 500 or "Traceback" in answer.text:
            self.wrong.append((what[:300], answer))

    def check(self, node: AttackedNode, at_least: int) -> None:
        assert not self.wrong, self.wrong[:5]
        assert sum(self.told.values()) >= at_least, self.told
        assert "Traceback" not in node.log_text()


@pytest.fixture(scope="module")
def ending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    """A node whose jobs end at once, as no engine answers: for those that are accepted by the hundred."""
    overrides = {"engine.master": "sc://localhost:9", "rest.server.max-content-length": "1m", **UNLIMITED}
    with AttackedNode(tmp_path_factory.mktemp("ending") / "state", overrides) as node:
        yield node


@pytest.fixture(scope="module")
def alice_there(ending: AttackedNode) -> Iterator[Caller]:
    with ending.people() as people:
        yield people.alice


@pytest.fixture(scope="module")
def things(people: People) -> dict[str, str]:
    """One of each of alice's, so that what is asked for is there."""
    job = people.alice.submit({**BATCH, "mode": "streaming"})
    until(lambda: people.alice.get(f"/jobs/{job}").json()["state"] == "RUNNING")
    return {
        "jobid": job,
        "applicationid": job,
        "vertexid": vertex_id("a"),
        "jarid": people.alice.upload_program("x.json", json.dumps(BATCH).encode()),
        "key": people.alice.upload(b"x"),
    }


@pytest.fixture(scope="module")
def operations(people: People) -> list[tuple[Route, dict[str, Any]]]:
    document = people.root.get("/openapi.json").json()
    found = [
        (Route(method.upper(), path), operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return [(route, operation) for route, operation in found if not route.streams]


Operations = list[tuple[Route, dict[str, Any]]]


def test_bodies(node: AttackedNode, people: People, operations: Operations, things: dict[str, str]) -> None:
    fuzzed = Fuzzed()
    for route, operation in operations:
        if route.method == "GET" or route.path in ("/blobs/{key}", "/jars/{jarid}", *SUBMITTING):
            continue
        target = route.filled(**things)
        if route.path.endswith(ENDING):
            target = route.filled(**{**things, "jobid": NO_JOB, "applicationid": NO_JOB})
        send_bodies(people.alice, route, target, operation, fuzzed)
    fuzzed.check(node, 600)


def test_bodies_that_submit(ending: AttackedNode, alice_there: Caller, operations: Operations) -> None:
    program = alice_there.upload_program("x.json", json.dumps(BATCH).encode())
    fuzzed = Fuzzed()
    for route, operation in operations:
        if route.method == "POST" and route.path in SUBMITTING:
            send_bodies(alice_there, route, route.filled(jarid=program), operation, fuzzed)
    fuzzed.check(ending, 400)


SUBMITTING = ("/jobs", "/jars/{jarid}/run", "/jars/{jarid}/run-application")
KINDS = ("application/json", "application/yaml", "multipart/form-data; boundary=x", "")


def send_bodies(caller: Caller, route: Route, target: str, operation: dict[str, Any], fuzzed: Fuzzed) -> None:
    """What is no body at all, and each field that is declared with what does not belong there."""
    for body in BODIES:
        for kind in KINDS if route.path in ("/jobs", "/jars/upload") else KINDS[:1]:
            answer = caller.ask(route.method, target, body, {"content-type": kind})
            fuzzed.note(f"{route} {kind} {body[:40]!r}", answer)
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for name in schema.get("properties", {}):
        for value in VALUES:
            fuzzed.note(f"{route} {name}={str(value)[:40]!r}", caller.ask(route.method, target, {name: value}))


def test_parameters(node: AttackedNode, people: People, operations: Operations, things: dict[str, str]) -> None:
    fuzzed = Fuzzed()
    for route, operation in operations:
        for parameter in operation.get("parameters", ()):
            name = parameter["name"]
            for target in targets(route, name, parameter["in"], things):
                fuzzed.note(f"{route} {target}", people.alice.ask(route.method, target))
            if parameter["in"] == "header":
                for value in ("", "x" * 5000, "\xff", "bytes=99999999999999999999-", "bytes=-0", "bytes=1-0,2-3"):
                    fuzzed.note(
                        f"{route} {name}", people.alice.ask(route.method, route.filled(**things), headers={name: value})
                    )
    fuzzed.check(node, 3000)


def targets(route: Route, name: str, where: str, things: dict[str, str]) -> Iterator[str]:
    if where == "path":
        for text in IN_A_PATH:
            yield route.filled(**{**things, name: text})
    if where == "query" and not route.path.endswith(ENDING):
        target = route.filled(**{**things, "jobid": NO_JOB} if route.changes else things)
        for value in VALUES:
            if not isinstance(value, list | dict):
                raw = str(value).encode("utf-8", "surrogatepass")[:3000]
                yield f"{target}?{name}={quote_from_bytes(raw)}"
        yield from (
            f"{target}?{name}",
            f"{target}?{name}=1&{name}=2",
            f"{target}?%ff=%ff&{name}=%ff",
            f"{target}?{name}[]=1",
        )


def test_methods(node: AttackedNode, people: People, things: dict[str, str]) -> None:
    fuzzed = Fuzzed()
    known = {(r.method, r.path) for r in routes()}
    for path in sorted({r.path for r in routes()}):
        for method in METHODS:
            if (method, path) not in known and not path.endswith("/events"):
                answer = people.alice.ask(method, Route(method, path).filled(**things))
                assert answer.status >= 400, (method, path)
                fuzzed.note(f"{method} {path}", answer)
    fuzzed.check(node, 800)


HEADERS = (
    b"Content-Type: \xff\xfe",
    b"Content-Type: application/json; charset=utf-7",
    b"Content-Type: multipart/form-data; boundary=" + b"x" * 5000,
    b"Content-Type: multipart/form-data; boundary=\x00",
    b"Content-Encoding: gzip",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: identity",
    b"Expect: 999-continue",
    b"Connection: upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
    b"Connection: close, host",
    b"Range: bytes=0-0,1-1,2-2",
    b"Accept: " + b"text/html;q=0.1," * 2000,
    b"Accept-Language: " + b"*" * 5000,
    b"Cookie: " + b"a=b; " * 5000,
    b"If-None-Match: *",
    b"X-HTTP-Method-Override: DELETE",
    b"X-Original-URL: /cluster",
    b": empty",
    b"\x00: x",
    b"A\x7f: x",
    b"Folded: a\r\n b",
    b"\r\n".join(b"X-%d: y" % n for n in range(3000)),
    b"Content-Length: 99999999999999999999999",
    b"Content-Length: 1, 1",
    b"Content-Length: +1",
    b"Authorization: Bearer x",
    b"Host: evil",
)


@pytest.mark.parametrize("line", HEADERS, ids=lambda line: repr(line[:40]))
def test_headers(node: AttackedNode, people: People, line: bytes) -> None:
    """An answer or the end of the connection; never a 5xx, and never somebody else's rights."""
    for method, path in ((b"GET", b"/jobs"), (b"POST", b"/jobs"), (b"POST", b"/jars/upload"), (b"POST", b"/blobs")):
        head = b"%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" % (method, path)
        token = b"Authorization: Bearer %s\r\n" % str(people.alice.token).encode()
        for sent in (head + token + line + b"\r\n\r\n", head + line + b"\r\n\r\n"):
            with node.connected() as connection:
                connection.sendall(sent + b"0\r\n\r\n")
                connection.settimeout(30)
                try:
                    found = connection.recv(65536)
                except ConnectionResetError:
                    continue
            if found:
                assert status_of(found) < 500
                assert token in sent or status_of(found) in (400, 401, 413, 431)
    assert "Traceback" not in node.log_text()


# -- graphs -------------------------------------------------------------------------------------------------------------

WHOLE: dict[str, Any] = {
    "version": 1,
    "name": "whole",
    "description": "",
    "mode": "streaming",
    "parallelism": 2,
    "settings": {
        "restart": {"type": "exponential-delay", "initial_delay": "1 s", "max_delay": "1 min", "multiplier": 2.0},
        "checkpoint_interval": "10 s",
        "spark": {"spark.sql.shuffle.partitions": "3"},
        "row_metrics": "exact",
        "artifacts": {"py_files": [], "jars": [], "files": [], "archives": []},
    },
    "vertices": [
        {
            "kind": "source",
            "name": "a",
            "format": "csv",
            "path": "/nonexistent/in",
            "schema": "id INT, t TIMESTAMP",
            "options": {"header": "true"},
            "watermark": {"column": "t", "delay": "1 min"},
            "deduplicate": {"columns": ["id"], "within_watermark": True},
            "resources": {"cpu": 1.0, "memory": "512m"},
            "parallelism": 3,
        },
        {
            "kind": "sql",
            "name": "q",
            "query": "SELECT * FROM a",
            "inputs": ["a"],
            "resources": {"cpu": 1, "memory": "1g"},
        },
        {
            "kind": "python",
            "name": "p",
            "function": "m:f",
            "inputs": ["q"],
            "args": {"x": 1},
            "resources": {"cpu": 1, "memory": "1g"},
        },
        {
            "kind": "sink",
            "name": "o",
            "input": "p",
            "format": "csv",
            "path": "/nonexistent/out",
            "options": {"a": "b"},
            "trigger": "10 s",
            "partition_by": ["id"],
            "resources": {"cpu": 1, "memory": "1g"},
        },
    ],
}
IN_A_GRAPH: tuple[Any, ...] = (
    *VALUES[:16],
    *(
        "9" * 30 + " d",
        "0 s",
        "0.0000001 ms",
        "9" * 30 + "t",
        "1t",
        "0k",
        "`",
        "';--",
        "a:b",
        "os:system",
        "/",
        "file:///",
    ),
    *("s3a://u:p@h/x", "\n", "{a,{b,c}}", "*" * 200, "[", "(", "SET x=1", "--conf", "$", "${", "{{x}}", "%s%n"),
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


def test_graphs(ending: AttackedNode, alice_there: Caller) -> None:
    """Each field of a graph with what does not belong there. What is accepted can be looked at, from every side."""
    drawn = random.Random(2020)
    fuzzed = Fuzzed()
    accepted: list[str] = []
    # Her functions come with the job: those of installed modules are for admins.
    module = f"blob:{alice_there.upload(b'def f(x): return x')}/m.py"
    whole = changed(WHOLE, "settings", "artifacts", "py_files", to=[module])
    for path in places(whole):
        for value in drawn.sample(IN_A_GRAPH, 8):
            answer = alice_there.post("/jobs", {"graph": changed(whole, *path, to=value)})
            fuzzed.note(f"{path}={str(value)[:40]!r}", answer)
            if answer.status == 202:
                accepted.append(answer.json()["jobId"])
    fuzzed.check(ending, 400)
    assert accepted
    looking = Fuzzed()
    for job in drawn.sample(accepted, min(len(accepted), 25)):
        for route in routes():
            if route.method == "GET" and "{jobid}" in route.path and not route.changes and not route.streams:
                looking.note(f"{route} {job}", alice_there.get(route.filled(jobid=job, vertexid=vertex_id("a"))))
    looking.check(ending, 1000)
