"""S35: headers on every answer, and an id in place of a stack. Streams pass piece by piece."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.rest_security.rig import ask, errors_of, http_scope, make_door, never, rest, tiny_app

EVERY_ANSWER = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
    "cache-control": "no-store",
}


@pytest.mark.parametrize(
    ("method", "path", "sent", "status"),
    [
        ("GET", "/who", {}, 200),
        ("GET", "/nothing", {}, 404),
        ("GET", "/who", {"authorization": "Bearer x"}, 401),
        ("GET", "/who", {"host": "evil.example"}, 421),
        ("GET", "/who", {"origin": "https://evil.example"}, 403),
        ("GET", "/who?token=x", {}, 400),
        ("POST", "/body", {"content-length": str(2**40)}, 413),
        ("GET", "/boom", {}, 500),
        ("GET", "/deliberate", {}, 500),
        ("GET", "/events", {}, 200),
        ("GET", "/healthz", {}, 200),
    ],
)
def test_every_answer_has_the_headers(method: str, path: str, sent: dict[str, str], status: int) -> None:
    """S35"""
    answer = ask(make_door(), method, path, headers=sent)
    assert answer.status_code == status
    for name, value in EVERY_ANSWER.items():
        assert answer.headers.get_list(name) == [value]
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["x-request-id"])
    assert "server" not in answer.headers
    assert "strict-transport-security" not in answer.headers


def test_hsts_is_for_tls() -> None:
    """S28"""
    answer = ask(make_door(), "GET", "/who", base_url="https://localhost:8081")
    assert answer.headers["strict-transport-security"] == "max-age=31536000"


def test_the_app_decides_about_caching_and_nothing_else() -> None:
    answer = ask(make_door(), "GET", "/styled")
    assert answer.headers.get_list("cache-control") == ["max-age=60"]
    assert answer.headers.get_list("x-frame-options") == ["DENY"]
    assert "server" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(("policy", "kept"), [("default-src 'self'", True), ("script-src 'unsafe-inline'", False)])
def test_an_app_may_not_loosen_the_policy_for_scripts(policy: str, kept: bool) -> None:
    """S15, S35"""

    async def page(request: Request) -> Response:
        return PlainTextResponse("page", headers={"content-security-policy": policy})

    answer = ask(make_door(Starlette(routes=[Route("/page", page)])), "GET", "/page")
    assert (answer.headers.get_list("content-security-policy") == [policy]) is kept
    assert len(answer.headers.get_list("content-security-policy")) == 1


def test_request_ids_are_the_nodes_own() -> None:
    ids = {ask(make_door(), "GET", "/who", headers={"x-request-id": "mine"}).headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3
    assert "mine" not in ids


def raw(scope: Scope, receive: Receive, send: Send) -> Any:
    raise RuntimeError("canary-in-the-stack")


async def half_way(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 500, "headers": []})
    await send({"type": "http.response.body", "body": b"canary-in-the-stack", "more_body": True})
    raise RuntimeError("canary-in-the-stack")


def debugging() -> Starlette:
    app = tiny_app()
    app.debug = True
    return app


def fastapi() -> FastAPI:
    app = FastAPI()

    @app.get("/boom")
    def boom() -> None:
        raise RuntimeError("canary-in-the-stack")

    return app


@pytest.mark.parametrize(
    "app", [raw, half_way, tiny_app(), debugging(), fastapi()], ids=["raw", "half", "app", "debug", "fastapi"]
)
def test_an_exception_becomes_an_id(app: ASGIApp, caplog: pytest.LogCaptureFixture) -> None:
    """S35: what frameworks send of their own, debug pages too, never gets out."""
    answer = ask(make_door(app), "GET", "/boom", headers={"accept": "text/html"})
    assert answer.status_code == 500
    error_id = answer.headers["x-request-id"]
    assert errors_of(answer) == [f"Internal server error. Error id: {error_id}"]
    assert "canary" not in answer.text
    logged = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(logged) == 1
    assert error_id in logged[0].getMessage()
    assert logged[0].exc_info
    assert "canary-in-the-stack" in str(logged[0].exc_info[1])


def test_an_error_that_the_app_has_answered_in_the_contracts_form_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Such an app has logged it too, under an id of its own."""

    async def boom(request: Request) -> Response:
        raise RuntimeError("canary")

    async def handler(request: Request, error: Exception) -> Response:
        return JSONResponse({"errors": ["Internal server error.", "id 7"]}, 500)

    app = Starlette(routes=[Route("/boom", boom)], exception_handlers={Exception: handler})
    answer = ask(make_door(app), "GET", "/boom")
    assert answer.status_code == 500
    assert answer.json() == {"errors": ["Internal server error.", "id 7"]}
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_deliberate_500_passes(caplog: pytest.LogCaptureFixture) -> None:
    answer = ask(make_door(), "GET", "/deliberate")
    assert answer.status_code == 500
    assert errors_of_any(answer) == ["unknown job"]
    assert not caplog.records


def errors_of_any(answer: Any) -> list[str]:
    return [str(e) for e in answer.json()["errors"]]


def test_a_large_500_is_not_held_for_ever() -> None:
    out: list[bytes] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        for _ in range(100):
            await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
        assert len(out) == 100
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Message) -> None:
        if message.get("body"):
            out.append(message["body"])

    asyncio.run(make_door(app)(http_scope(), never, send))
    assert len(out) == 100


def test_what_breaks_off_in_the_middle_is_logged_once_and_not_finished(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError("canary")

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(make_door(app)(http_scope(), never, send))
    assert [m.get("body") for m in sent] == [None, b"half"]  # the server sees that it is not complete, and closes
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


def test_a_path_cannot_write_lines_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def send(message: Message) -> None:
        pass

    asyncio.run(make_door(raw)(http_scope("/x\nERROR all is lost"), never, send))
    assert "\n" not in caplog.records[0].getMessage()


def test_events_pass_as_they_are_sent() -> None:
    """No buffering: each piece is out before the next one is made."""
    out: list[bytes] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for number in range(5):
            assert out == [str(n).encode() for n in range(number)]
            await send({"type": "http.response.body", "body": str(number).encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send(message: Message) -> None:
        if message.get("body"):
            out.append(message["body"])

    asyncio.run(make_door(app)(http_scope(), never, send))
    assert len(out) == 5


def test_a_stream_may_go_on_longer_than_a_request_may_take() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.request"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(0.05)
        await send({"type": "http.response.body", "body": b"late", "more_body": False})

    answer = ask(make_door(app, rest=rest(request_timeout=0.01)), "GET", "/")
    assert answer.text == "late"


def test_a_request_that_is_cancelled_stays_cancelled() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        async def send(message: Message) -> None:
            raise AssertionError("nobody listens")

        task = asyncio.create_task(make_door(app)(http_scope(), never, send))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
