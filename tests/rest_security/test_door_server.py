"""The door behind real sockets: what only the server's protocol can do (S24), and what it must not do (S13)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.rest_security.rig import BEARER, UPLOAD_LIMIT, make_door, rest, security, served, until

from firesteel.rest.security import protocol
from firesteel.rest.security.audit import AuditLog, AuditRecord
from firesteel.rest.security.door import Door

TOKEN = BEARER["authorization"].encode()
HEAD = b"POST /body HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + TOKEN + b"\r\n"


@contextlib.contextmanager
def behind(door: Door | None = None, **options: Any) -> Iterator[int]:
    configured = rest(**options)
    with served(door or make_door(rest=configured), configured, security()) as port:
        yield port


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with behind(max_content_length="1k", request_timeout=30.0) as port:
        yield port


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        yield connection


def everything(connection: socket.socket) -> bytes:
    """Until the server closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(65536):
            received += data
    return received


def one_answer(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_the_requests_of_flinks_client(port: int) -> None:
    """A two-byte body on GET and PATCH, chunked uploads, one connection each, no User-Agent."""
    for method in (b"GET", b"PATCH"):
        with connected(port) as connection:
            connection.sendall(
                method + b" /body HTTP/1.1\r\nhost: localhost:8081\r\nauthorization: " + TOKEN + b"\r\n"
                b"connection: close\r\ncontent-type: application/json; charset=UTF-8\r\ncontent-length: 2\r\n\r\n{}"
            )
            answer = everything(connection)
        assert status(answer) == 202
        assert answer.endswith(b'{"received":2}')


def test_a_chunked_body_that_grows_too_large_is_answered_with_413(port: int) -> None:
    """S24"""
    with connected(port) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b"x" * 1024 + b"\r\n1\r\ny\r\n")
        answer = one_answer(connection)  # though the body has no end
    assert status(answer) == 413
    assert "larger than 1024" in json.loads(answer.partition(b"\r\n\r\n")[2])["errors"][0]


def test_a_client_that_sends_a_large_body_gets_to_read_the_answer(port: int) -> None:
    """S24: closing at once would look like a broken network."""
    with httpx.Client(base_url=f"http://localhost:{port}", headers=BEARER) as client:
        for _ in range(3):
            assert client.post("/body", content=b"x" * 3_000_000).status_code == 413
        assert client.post("/body", content=b"x").status_code == 202


def test_a_client_that_wants_one_answer_only_gets_to_read_it_too(port: int) -> None:
    """S24: Flink's client sends `connection: close` with everything, and reads when it has sent all of it."""
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    with connected(port) as connection:
        connection.sendall(HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(40):
            connection.sendall(chunk)
        connection.sendall(b"0\r\n\r\n")
        answer = everything(connection)
    assert status(answer) == 413


def test_a_connection_that_is_to_end_ends_with_the_answer(port: int) -> None:
    for end in (b"Connection: close\r\n", b""):
        version = b"HTTP/1.1" if end else b"HTTP/1.0"
        with connected(port) as connection:
            connection.sendall(HEAD.replace(b"HTTP/1.1", version) + end + b"Content-Length: 2\r\n\r\n{}")
            assert status(everything(connection)) == 202


def test_uploads_pass(port: int) -> None:
    with httpx.Client(base_url=f"http://localhost:{port}", headers=BEARER) as client:
        assert client.post("/upload", content=b"x" * UPLOAD_LIMIT).json() == {"received": UPLOAD_LIMIT}
        assert client.post("/upload", content=iter([b"x" * 60_000] * 2)).status_code == 413


def test_nobody_is_told_to_go_on_who_would_be_refused(port: int) -> None:
    """S24: with Expect the body is sent only after 100; a stranger is not asked for it."""
    expecting = b"POST /body HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n"
    with connected(port) as connection:
        connection.sendall(expecting)
        assert status(one_answer(connection)) == 401


def test_a_body_that_does_not_come_is_answered_with_408() -> None:
    """S24"""
    with behind(request_timeout=0.05) as port, connected(port) as connection:
        connection.sendall(HEAD + b"Content-Length: 10\r\n\r\nxxx")
        assert status(one_answer(connection)) == 408


def test_a_head_that_does_not_come_ends_the_connection() -> None:
    """S24: neither silence nor a header a minute keeps a connection."""
    with behind(request_timeout=0.05) as port:
        for begun in (b"", b"G", HEAD):
            with connected(port) as connection:
                connection.sendall(begun)
                assert everything(connection) == b""


def test_a_slow_head_on_a_connection_that_was_used_before_ends_it_too() -> None:
    with behind(request_timeout=0.2) as port, connected(port) as connection:
        connection.sendall(HEAD + b"Content-Length: 1\r\n\r\nx")
        assert status(one_answer(connection)) == 202
        connection.sendall(b"GET /who HTTP/1.1\r\nHost:")
        assert everything(connection) == b""


@pytest.mark.parametrize("endless", [b"X-Long: " + b"a" * 1000, b"X-Many: 1\r\n" * 90], ids=["long", "many"])
def test_a_head_without_end_is_cut_off(port: int, endless: bytes) -> None:
    """S24: nobody has shown a credential yet."""
    with connected(port) as connection:
        connection.sendall(HEAD)
        sent = 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while sent < 50 * protocol.MAX_HEAD:
                connection.sendall(endless)
                sent += len(endless)
        assert sent < 50 * protocol.MAX_HEAD
        with contextlib.suppress(OSError):
            answer = everything(connection)
            assert not answer or status(answer) == 431


def test_headers_after_the_body_are_not_headers() -> None:
    """S13: a trailer comes after the door has looked."""
    with behind() as port, connected(port) as connection:
        connection.sendall(
            b"GET /body HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: "
            + TOKEN
            + b"\r\n\r\n"
        )
        assert status(one_answer(connection)) == 401


def test_trailers_do_not_change_the_headers_that_the_app_sees() -> None:
    seen: list[list[tuple[bytes, bytes]]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        seen.append(list(scope["headers"]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    with behind(make_door(app)) as port, connected(port) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Late: 1\r\n\r\n")
        assert status(one_answer(connection)) == 200
    assert b"x-late" not in dict(seen[0])


def test_a_body_that_goes_on_after_the_answer_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """S24"""
    monkeypatch.setattr(protocol, "LINGER", 0.05)
    with behind(max_content_length="1k") as port, connected(port) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"800\r\n" + b"x" * 2048 + b"\r\n")
        assert status(one_answer(connection)) == 413

        def closed() -> bool:
            """Though the client goes on and on."""
            try:
                connection.sendall(b"1\r\ny\r\n")
                return connection.recv(1, socket.MSG_DONTWAIT) == b""
            except BlockingIOError:
                return False
            except (BrokenPipeError, ConnectionResetError):
                return True

        until(closed)


def test_requests_that_make_no_sense_do_not_reach_the_app(port: int) -> None:
    """S14: smuggling needs two readers who disagree; there is one, and it is strict."""
    for nonsense in (
        HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        b"GET /who HTTP/1.1\r\nHost: localhost\r\nBad Header: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ):
        with connected(port) as connection:
            connection.sendall(nonsense)
            assert status(everything(connection)) == 400


def test_an_upgrade_to_a_web_socket_is_not_made(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(
            b"GET /who HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert status(one_answer(connection)) == 401


class Kept(AuditLog):
    def __init__(self) -> None:
        self.records: list[AuditRecord] = []

    def record(self, record: AuditRecord) -> None:
        self.records.append(record)


def test_nobody_chooses_their_own_address() -> None:
    """S13: with uvicorn's defaults a local caller is whoever X-Forwarded-For says."""
    kept = Kept()
    claims = {"x-forwarded-for": "6.6.6.6", "x-forwarded-proto": "https", "forwarded": "for=6.6.6.6"}
    with behind(make_door(audit=kept)) as port:
        answer = httpx.post(f"http://localhost:{port}/who", headers=claims)
    assert answer.status_code == 401
    assert "strict-transport-security" not in answer.headers
    assert [r.peer for r in kept.records] == ["127.0.0.1"]


def test_answers_say_nothing_about_the_server(port: int) -> None:
    """S35"""
    answer = httpx.get(f"http://localhost:{port}/who", headers=BEARER)
    assert answer.status_code == 200
    assert "server" not in answer.headers
    assert "date" not in answer.headers


def test_events_arrive_while_the_stream_is_open() -> None:
    """The second event is made only after the first was read at the other end."""
    first_read = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        assert await asyncio.to_thread(first_read.wait, 30)
        await send({"type": "http.response.body", "body": b"data: 2\n\n", "more_body": False})

    with behind(make_door(app)) as port, httpx.stream("GET", f"http://localhost:{port}/", headers=BEARER) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "data: 1"
        first_read.set()
        assert [line for line in lines if line] == ["data: 2"]


def test_an_exception_in_the_app_leaves_the_server_well(port: int) -> None:
    """S35"""
    with httpx.Client(base_url=f"http://localhost:{port}", headers=BEARER) as client:
        for _ in range(3):
            answer = client.get("/boom")
            assert answer.status_code == 500
            assert "canary" not in answer.text
        assert client.get("/who").status_code == 200
