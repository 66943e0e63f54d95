"""A real node to attack, the people around it, and requests that no decent client would send."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from fastapi.routing import APIRoute
from tests.chaos.rest_node import RestNode

from firesteel.client.discovery import find_local
from firesteel.config.sections import Role
from firesteel.flink_rest.routes import FLINK
from firesteel.processes import ProcessIdentity
from firesteel.rest.native import routes as native_routes
from firesteel.rest.security.tokens import TokenFile

T = TypeVar("T")

NO_JOB = "f" * 32
"""An id that no job has."""
UNLIMITED = {
    "rest.rate-limit.requests-per-second": "100000",
    "rest.rate-limit.burst": "100000",
    "rest.rate-limit.submissions-per-second": "100000",
}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    @property
    def errors(self) -> list[str]:
        """The messages of an answer in the contract's form."""
        assert self.headers["content-type"] == "application/json; charset=UTF-8", self
        found = self.json()
        assert list(found) == ["errors"], self
        return [str(message) for message in found["errors"]]

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str

    @property
    def changes(self) -> bool:
        return self.method not in ("GET", "HEAD") or self.path.endswith(("/yarn-cancel", "/yarn-stop"))

    @property
    def streams(self) -> bool:
        return self.path.endswith("/events")

    def filled(self, **values: str) -> str:
        """The path with something plausible in each place."""
        known = {
            "jobid": NO_JOB,
            "applicationid": NO_JOB,
            "vertexid": "e" * 32,
            "triggerid": "d" * 32,
            "datasetid": "c" * 32,
            "rescaleuuid": "b" * 32,
            "operatorUid": "a" * 32,
            "key": "0" * 64,
            "attempt": "1",
            "subtaskindex": "0",
            "checkpointid": "1",
            "name": "stdout",
            "filename": "node.log",
            "jarid": "00000000-0000-0000-0000-000000000000_x.py",
            "taskmanagerid": "engine",
            "worker": "w" + "0" * 16,
            **values,
        }
        return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: known[found[1]], self.path)


@cache
def routes() -> tuple[Route, ...]:
    """Every route of the application, those that its document does not show too."""
    found = [
        Route(method, route.path)
        for router in (*native_routes.ROUTERS, *FLINK.routers)
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods or ())
    ]
    return (*found, Route("GET", "/openapi.json"), Route("HEAD", "/openapi.json"))


class Caller:
    """One who asks, over one connection that is kept. Not for several threads."""

    def __init__(self, address: str, token: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._host = urlsplit(address).netloc
        self._tls = tls
        self.token = token
        self._connection: http.client.HTTPConnection | None = None

    def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = 60,
    ) -> Answer:
        """`body`: bytes as they are, anything else as JSON. `target` goes out as it is."""
        sent = {"authorization": f"Bearer {self.token}"} if self.token is not None else {}
        raw = body
        if body is not None and not isinstance(body, bytes):
            raw = json.dumps(body).encode()
            sent["content-type"] = "application/json"
        sent |= {name.lower(): value for name, value in (headers or {}).items()}
        for again in (True, False):
            connection = self._connection = self._connection or self._connect(timeout)
            try:
                connection.request(method, target, raw, sent)
                answer = connection.getresponse()
                found = Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
                if answer.will_close:
                    self.close()
                return found
            except (http.client.RemoteDisconnected, ConnectionError):
                self.close()  # it was kept open for too long
                if not again:
                    raise
            except BaseException:
                self.close()
                raise
        raise AssertionError

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(self._host, timeout=timeout)

    def get(self, target: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self.ask("GET", target, headers=headers)

    def post(self, target: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        return self.ask("POST", target, body, headers)

    def submit(self, graph: Mapping[str, Any], **more: Any) -> str:
        answer = self.post("/jobs", {"graph": dict(graph), **more})
        assert answer.status == 202, answer
        return str(answer.json()["jobId"])

    def upload(self, content: bytes) -> str:
        answer = self.post("/blobs", content)
        assert answer.status == 201, answer
        return str(answer.json()["key"])

    def upload_program(self, name: str, content: bytes) -> str:
        answer = self.post("/jars/upload", *form(name, content))
        assert answer.status == 200, answer
        return str(answer.json()["filename"]).rpartition("/")[2]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def form(name: str, content: bytes, field_name: str = "jarfile") -> tuple[bytes, dict[str, str]]:
    """Body and headers of an upload as browsers send it. The name goes in as it is."""
    head = f'Content-Disposition: form-data; name="{field_name}"; filename="{name}"'.encode()
    body = (
        b"--limit\r\n" + head + b"\r\nContent-Type: application/octet-stream\r\n\r\n" + content + b"\r\n--limit--\r\n"
    )
    return body, {"content-type": "multipart/form-data; boundary=limit"}


class SilentEngine:
    """A place that looks like a Spark Connect server that never answers: jobs run there, and cost no JVM."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._held: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, name="silent-engine", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                self._held.append(self._listener.accept()[0])
            except OSError:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()
        for connection in self._held:
            connection.close()


@dataclass
class People:
    """Two tenants, one who only looks, and an admin; with real tokens of the node's tokens file."""

    alice: Caller
    bob: Caller
    watcher: Caller
    """Sees what is alice's."""
    root: Caller
    owner: Caller
    """The one who started the node, by the token that only they can read."""
    nobody: Caller
    everybody: tuple[Caller, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.everybody = (self.alice, self.bob, self.watcher, self.root, self.owner, self.nobody)


class AttackedNode(RestNode):
    """With tokens for People, and `environ` in its environment."""

    python = sys.executable

    def __init__(self, directory: Path, overrides: Mapping[str, str], environ: Mapping[str, str] | None = None) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().__init__(directory, overrides)
        self._environ |= environ or {}
        self.tls: ssl.SSLContext | None = None

    def start(self) -> None:
        """Returns once it leads. A node without authentication has no token to wait for."""
        with self.log.open("ab") as output:
            self.process = process = subprocess.Popen(
                [self.python, "-m", "firesteel.entrypoint", *(f"-D{k}={v}" for k, v in self._definitions.items())],
                stdout=output,
                stderr=output,
                env=self._environ,
            )

        def announced() -> bool:
            assert process.poll() is None, self.log_text()
            found = find_local(self.configuration)
            if found is None or found.process.pid != process.pid:
                return False
            self.address, self.token = found.address, found.token or ""
            return True

        until(announced, 90)
        with self.caller(self.token or None) as asking:
            until(lambda: asking.get("/jobs").status == 200)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Jobs outlive their node, which is what they are made for; here nobody comes to look after them."""
        started = {ProcessIdentity.of(pid) for pid in processes_of(self) if pid != self.pid}
        super().__exit__(kind, error, trace)
        started |= {ProcessIdentity.of(pid) for pid in processes_of(self)}
        for process in started - {None}:
            assert process is not None
            process.signal(signal.SIGKILL)

    @property
    def cluster(self) -> Path:
        return self.directory / "clusters" / "default"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def new_token(self, name: str, role: Role, owner: str) -> str:
        return TokenFile(self.configuration.security.tokens_file).create(name, role, owner)

    def caller(self, token: str | None) -> Caller:
        return Caller(self.address, token, self.tls)

    @contextlib.contextmanager
    def people(self) -> Iterator[People]:
        people = People(
            alice=self.caller(self.new_token("alice's laptop", Role.OPERATOR, "alice")),
            bob=self.caller(self.new_token("bob's laptop", Role.OPERATOR, "bob")),
            watcher=self.caller(self.new_token("alice's dashboard", Role.VIEWER, "alice")),
            root=self.caller(self.new_token("root", Role.ADMIN, "*")),
            owner=self.caller(self.token),
            nobody=self.caller(None),
        )
        try:
            yield people
        finally:
            for caller in people.everybody:
                caller.close()

    def raw(self, sent: bytes, *, timeout: float = 30) -> bytes:
        """All that comes back for these bytes until the node closes the connection."""
        with self.connected(timeout) as connection:
            connection.sendall(sent)
            return everything(connection)

    def connected(self, timeout: float = 30) -> socket.socket:
        parts = urlsplit(self.address)
        assert parts.hostname is not None
        return socket.create_connection((parts.hostname, parts.port), timeout)

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def audit(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in (self.cluster / "audit.log").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def audited(self, request_id: str) -> dict[str, Any]:
        """What the audit log says of a request; it is written a moment later."""
        return until(lambda: next((r for r in self.audit() if r.get("request_id") == request_id), None))


def everything(connection: socket.socket) -> bytes:
    found = b""
    while True:
        try:
            data = connection.recv(1 << 16)
        except ConnectionResetError:
            return found
        if not data:
            return found
        found += data


def status_of(raw: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", raw)
    assert found is not None, raw[:200]
    return int(found[1])


def until(condition: Callable[[], T | None], timeout: float = 60.0) -> T:
    """What `condition` gives once it is something."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.02)
    return found


# -- processes ---------------------------------------------------------------------------------------------------------


def processes_of(node: AttackedNode) -> list[int]:
    """The node, its children and theirs; and those that have its directory in their arguments, or are there."""
    mark = os.fsencode(node.directory)
    parents: dict[int, int] = {}
    found = {node.pid} if node.process is not None and node.process.poll() is None else set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if mark in (entry / "cmdline").read_bytes() or mark in os.fsencode(os.readlink(entry / "cwd")):
                found.add(int(entry.name))
        except OSError:
            continue  # it has ended, or is not ours
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def argv_of(pid: int) -> list[str]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(part) for part in raw.split(b"\0")[:-1]]


def sockets_of(pid: int) -> set[str]:
    """Inodes."""
    found = set()
    try:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if (target := os.readlink(fd)).startswith("socket:["):
                    found.add(target[8:-1])
    except OSError:
        pass
    return found


def tcp_listeners(pid: int) -> dict[int, str]:
    """Port to address, as the kernel writes it: in pieces, so that on a busy machine one may be missing in between."""
    mine = sockets_of(pid)
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in mine:
                address, _, port = fields[1].partition(":")
                found[int(port, 16)] = address
    return found
