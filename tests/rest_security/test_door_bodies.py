"""S24: bodies that are too large or too slow. No sleeping: the clock is the test's, or time runs out at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.rest_security.rig import UPLOAD_LIMIT, ask, errors_of, http_scope, make_door, never, rest, tiny_app

from firesteel.rest.security.bodies import SLOWEST_UPLOAD, LimitedBody
from firesteel.rest.security.refusal import RequestRefused

LIMIT = 1024
SMALL = rest(max_content_length="1k")


def chunked(chunks: Iterable[bytes]) -> Receive:
    """A client that sends without saying how much."""
    left = list(chunks)

    async def receive() -> Message:
        if not left:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return receive


def answer_to(app: ASGIApp | None, path: str, receive: Receive, method: str = "POST", **options: Any) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    headers = {"transfer-encoding": "chunked", "content-type": "application/json"}
    asyncio.run(make_door(app, **{"rest": SMALL, **options})(http_scope(path, method, headers), receive, send))
    return sent


def test_a_body_that_says_it_is_too_large_is_refused_at_once() -> None:
    """S24: a hundred gigabytes are not even begun with, and nobody is authenticated for them."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("the app was reached")

    for length in (LIMIT + 1, 100 * 2**30, "9" * 400):
        answer = ask(
            make_door(app, rest=SMALL), "POST", "/body", headers={"content-length": str(length)}, anonymous=True
        )
        assert answer.status_code == 413
        assert str(LIMIT) in errors_of(answer)[0]


def test_a_body_within_the_limit_passes() -> None:
    assert ask(make_door(rest=SMALL), "POST", "/body", content=b"x" * LIMIT).json() == {"received": LIMIT}
    sent = answer_to(None, "/body", chunked([b"x" * 1000, b"y" * 24]))
    assert sent[1]["body"] == b'{"received":1024}'


@pytest.mark.parametrize("length", ["-1", "1e3", "0x10", "ten", "", "1 ", "\u0661"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = http_scope("/body", "POST")
    scope["headers"].append((b"content-length", length.encode()))
    asyncio.run(make_door()(scope, never, send))
    assert sent[0]["status"] == 400


def frameworks() -> Iterable[tuple[str, ASGIApp]]:
    """Apps that treat an error while reading in different ways."""

    async def careless(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"all is well"})

    async def catching(scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        while message["type"] != "http.disconnect":
            message = await receive()
        raise RuntimeError("the client has gone")

    api = FastAPI()

    @api.post("/body")
    async def body(request: Request) -> int:
        return len(await request.body())

    yield "starlette", tiny_app()
    yield "careless", careless
    yield "catching", catching
    yield "fastapi", api


FRAMEWORKS = dict(frameworks())


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_body_that_grows_too_large_is_stopped_whatever_the_app_makes_of_it(
    framework: str, caplog: pytest.LogCaptureFixture
) -> None:
    """S24: chunked, so nobody says how large it will be."""
    read = 0

    async def endless() -> Message:
        nonlocal read
        read += 500
        return {"type": "http.request", "body": b"x" * 500, "more_body": True}

    sent = answer_to(FRAMEWORKS[framework], "/body", endless)
    assert [m["type"] for m in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 413
    assert b'{"errors":["The body' in sent[1]["body"]
    assert read == 1500
    assert not caplog.records


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_body_that_does_not_come_is_not_waited_for(framework: str, caplog: pytest.LogCaptureFixture) -> None:
    """S24: slow body."""
    options = rest(max_content_length="1k", request_timeout=0.01)
    for receive in (never, after([b"x"], never)):
        sent = answer_to(FRAMEWORKS[framework], "/body", receive, rest=options)
        assert sent[0]["status"] == 408
        assert not caplog.records


def after(chunks: list[bytes], then: Receive) -> Receive:
    left = list(chunks)

    async def receive() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(0), "more_body": True}
        return await then()

    return receive


def test_an_answer_that_has_begun_is_cut_off_when_the_body_does_not_keep_the_rules() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"so far", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.body", "body": b"never said"})

    sent = answer_to(app, "/body", chunked([b"x" * 2000, b"y"]))
    assert [m.get("body") for m in sent] == [None, b"so far"]


def test_uploads_have_a_limit_of_their_own() -> None:
    door = make_door(rest=SMALL)
    assert ask(door, "POST", "/upload", content=b"x" * UPLOAD_LIMIT).json() == {"received": UPLOAD_LIMIT}
    assert ask(door, "POST", "/upload", content=b"x" * (UPLOAD_LIMIT + 1)).status_code == 413
    assert answer_to(None, "/upload", chunked([b"x" * 60_000, b"x" * 60_000]))[0]["status"] == 413


class SlowClient:
    """Sends pieces, each of which takes its time by the test's clock; real time stands still."""

    def __init__(self, pieces: list[tuple[float, bytes]]) -> None:
        self.now = 0.0
        self.pieces = pieces

    def clock(self) -> float:
        return self.now

    async def receive(self) -> Message:
        seconds, body = self.pieces.pop(0)
        self.now += seconds
        return {"type": "http.request", "body": body, "more_body": bool(self.pieces)}


def read_all(client: SlowClient, *, upload: bool, app_takes: float = 0.0) -> tuple[int, list[int]]:
    """(bytes that the app read, statuses with which the door refused)."""
    refusals: list[int] = []

    async def refuse(refused: RequestRefused) -> None:
        refusals.append(refused.status)

    async def read() -> int:
        body = LimitedBody(client.receive, refuse, limit=10**9, timeout=30, upload=upload, clock=client.clock)
        count = 0
        while (message := await body())["type"] == "http.request":
            count += len(message["body"])
            client.now += app_takes
            if not message["more_body"]:
                break
        return count

    return asyncio.run(read()), refusals


def pieces(number: int, seconds: float, size: int) -> Callable[[], SlowClient]:
    return lambda: SlowClient([(seconds, b"x" * size)] * number)


def test_all_of_a_body_has_to_be_there_in_time() -> None:
    """S24: a byte every second keeps no connection for ever."""
    count, refusals = read_all(pieces(100, 1.0, 1)(), upload=False)
    assert refusals == [408]
    assert count == 30
    assert read_all(pieces(29, 1.0, 1)(), upload=False) == (29, [])


def test_an_upload_may_take_long_as_long_as_it_moves() -> None:
    assert read_all(pieces(100, 1.0, SLOWEST_UPLOAD)(), upload=True) == (100 * SLOWEST_UPLOAD, [])
    assert read_all(pieces(100, 1.0, SLOWEST_UPLOAD)(), upload=False)[1] == [408]
    count, refusals = read_all(pieces(100, 1.0, SLOWEST_UPLOAD // 2)(), upload=True)
    assert refusals == [408]
    assert count == 60 * SLOWEST_UPLOAD // 2


def test_the_time_that_the_app_takes_is_not_the_clients_fault() -> None:
    assert read_all(pieces(20, 1.0, 1)(), upload=False, app_takes=60.0) == (20, [])


def test_after_the_body_the_app_can_wait_for_the_client_to_go() -> None:
    """An event stream is open for hours."""
    gone = asyncio.Event()

    async def client() -> Message:
        if not gone.is_set():
            gone.set()
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.sleep(0.05)  # longer than the time for a body
        return {"type": "http.disconnect"}

    async def scenario() -> Message:
        async def refuse(refused: RequestRefused) -> None:
            raise AssertionError(refused)

        body = LimitedBody(client, refuse, limit=10, timeout=0.01, upload=False)
        await body()
        return await body()

    assert asyncio.run(scenario()) == {"type": "http.disconnect"}
