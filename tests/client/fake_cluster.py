"""A node that plays the REST API over a real socket, and fails when it is told to."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FINISHED = {"status": "FINISHED"}
TOKEN = "s3cret-token"


@dataclass(frozen=True)
class Seen:
    """A request that arrived."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Fault:
    """What happens to the next request whose path ends in `path`."""

    path: str
    what: Literal["answer", "drop", "lose answer"]
    """`drop`: it never arrived. `lose answer`: it did its work, and nobody is told."""
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b'{"errors": ["not now"]}'


@dataclass
class Stream:
    """One connection to an event stream: what it sends, and how it ends."""

    chunks: Iterable[bytes]
    end: Literal["close", "abort", "stay"] = "close"


class FakeCluster:
    """State that nodes share. A job is FINISHED as soon as it is looked at, unless a test says otherwise."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.faults: deque[Fault] = deque()
        self.jobs: dict[str, dict[str, Any]] = {}
        self.submissions: dict[str, bytes] = {}
        self.statuses: dict[str, deque[str]] = {}
        self.blobs: dict[str, bytes] = {}
        self.operations: dict[str, dict[str, Any]] = {}
        self.outcome: dict[str, Any] = {"location": "file:/savepoints/1"}
        self.polls = 0
        self.streams: deque[Stream] = deque()
        self.answers: dict[str, Any] = {}
        """By path: what a plain GET is answered with."""
        self.left = threading.Event()
        """An event stream is over."""

    def add(self, job_id: str, **fields: Any) -> str:
        self.jobs[job_id] = details(job_id, **fields)
        return job_id

    def asked(self, method: str, path: str) -> list[Seen]:
        return [s for s in self.seen if s.method == method and s.path == f"/v1{path}"]

    # -- the application --------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        body = await _body(receive)
        headers = {k.decode(): v.decode() for k, v in scope["headers"]}
        self.seen.append(Seen(scope["method"], scope["path"], scope["query_string"].decode(), headers, body))
        fault = next((f for f in self.faults if scope["path"].endswith(f.path)), None)
        if fault is not None:
            self.faults.remove(fault)
        if fault is not None and fault.what == "drop":
            await _abort(receive)
            return
        if fault is not None and fault.what == "answer":
            await Response(fault.body, fault.status, dict(fault.headers))(scope, receive, send)
            return

        async def again() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        if fault is not None:

            async def nowhere(_: Message) -> None:
                pass

            await self._app(scope, again, nowhere)
            await _abort(receive)
            return
        scope["abort"] = lambda: _abort(receive)
        await self._app(scope, _once(again, receive), send)

    @property
    def _app(self) -> Starlette:
        jobs = "/v1/jobs/{job_id}"
        return Starlette(
            routes=[
                Route("/v1/jobs", self._submit, methods=["POST"]),
                Route(jobs, self._cancel, methods=["PATCH"]),
                Route(f"{jobs}/status", self._status),
                Route(f"{jobs}/execution-graph", self._details),
                Route(f"{jobs}/events", self._events),
                Route("/v1/events", self._events),
                Route(f"{jobs}/logs/{{name}}", self._log),
                Route(f"{jobs}/attempts/{{attempt}}/logs/{{name}}", self._log),
                Route(f"{jobs}/clientHeartbeat", self._accept, methods=["PATCH"]),
                Route(f"{jobs}/savepoints", self._trigger, methods=["POST"]),
                Route(f"{jobs}/stop", self._trigger, methods=["POST"]),
                Route(f"{jobs}/checkpoints", self._trigger, methods=["POST"]),
                Route("/v1/savepoint-disposal", self._trigger, methods=["POST"]),
                Route(f"{jobs}/savepoints/{{trigger}}", self._poll),
                Route(f"{jobs}/checkpoints/{{trigger}}", self._poll),
                Route("/v1/savepoint-disposal/{trigger}", self._poll),
                Route("/v1/blobs", self._upload, methods=["POST"]),
                Route("/v1/blobs/{key}/info", self._blob),
                Route("/v1/cluster", self._accept, methods=["DELETE"]),
                Route("/{path:path}", self._canned),
            ]
        )

    async def _submit(self, request: Request) -> Response:
        body = await request.body()
        wanted = json.loads(body)
        job_id = wanted["jobId"]
        known = self.submissions.setdefault(job_id, body)
        if known != body:
            return errors(409, f"job id {job_id} belongs to another job")
        if job_id not in self.jobs:
            self.add(job_id, name=wanted["graph"].get("name", ""))
        return JSONResponse({"jobUrl": f"/jobs/{job_id}", "jobId": job_id, "status": "CREATED"}, 202)

    async def _cancel(self, request: Request) -> Response:
        job_id = request.path_params["job_id"]
        if job_id not in self.jobs:
            return unknown(job_id)
        if self.jobs[job_id]["status"] == "FINISHED":
            return errors(409, f"job {job_id} is FINISHED; it has ended for good")
        self.add(job_id, status="CANCELED")
        return JSONResponse({}, 202)

    async def _status(self, request: Request) -> Response:
        job_id = request.path_params["job_id"]
        if job_id not in self.jobs:
            return unknown(job_id)
        coming = self.statuses.get(job_id)
        status = coming.popleft() if coming else self.jobs[job_id]["status"]
        return JSONResponse({"status": status})

    async def _details(self, request: Request) -> Response:
        job_id = request.path_params["job_id"]
        return JSONResponse(self.jobs[job_id]) if job_id in self.jobs else unknown(job_id)

    async def _events(self, request: Request) -> Response:
        if not self.streams:
            return errors(500, "no stream was prepared")
        stream = self.streams.popleft()

        async def chunks() -> AsyncIterator[bytes]:
            try:
                for chunk in stream.chunks:
                    yield chunk
                    await asyncio.sleep(0)
                if stream.end == "abort":
                    await request.scope["abort"]()
                if stream.end == "stay":
                    await asyncio.Event().wait()  # until the one who listens is gone
            finally:
                self.left.set()

        return StreamingResponse(chunks(), media_type="text/event-stream")

    async def _log(self, request: Request) -> Response:
        lines = [f"{request.path_params['name']} {n}" for n in range(5)]
        tail = int(request.query_params.get("tail", 5))
        attempt = request.path_params.get("attempt", "last")
        return PlainTextResponse("".join(f"{attempt}: {line}\n" for line in lines[-tail:]))

    async def _trigger(self, request: Request) -> Response:
        wanted = await request.json()
        self.operations.setdefault(wanted["triggerId"], wanted)
        return JSONResponse({"request-id": wanted["triggerId"]}, 202)

    async def _poll(self, request: Request) -> Response:
        if request.path_params["trigger"] not in self.operations:
            return errors(404, "there is no such operation")
        self.polls += 1
        if self.polls < 3:
            return JSONResponse({"status": {"id": "IN_PROGRESS"}, "operation": None})
        return JSONResponse({"status": {"id": "COMPLETED"}, "operation": self.outcome})

    async def _upload(self, request: Request) -> Response:
        body = await request.body()
        key = hashlib.sha256(body).hexdigest()
        if request.headers.get("x-content-sha256") not in (None, key):
            return errors(400, "the content is not what its digest says")
        self.blobs[key] = body
        return JSONResponse({"key": key, "size": len(body)}, 201)

    async def _blob(self, request: Request) -> Response:
        key = request.path_params["key"]
        return JSONResponse({"key": key}) if key in self.blobs else errors(404, f"no file {key} is here")

    async def _accept(self, _: Request) -> Response:
        return JSONResponse({}, 202)

    async def _canned(self, request: Request) -> Response:
        path = request.url.path.removeprefix("/v1")
        return JSONResponse(self.answers[path]) if path in self.answers else errors(404, f"Not found: {path}")


class Switch:
    """Whichever application is set."""

    def __init__(self) -> None:
        self.app: ASGIApp = FakeCluster()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


class Node:
    """A server of a FakeCluster, or of another application, on a port of its own, in a thread."""

    def __init__(self, app: ASGIApp, *, certificate: Path | None = None, clients: Path | None = None) -> None:
        config = uvicorn.Config(
            app,
            host="127.0.0.1",
            port=0,
            lifespan="off",
            ws="none",
            log_config=None,
            timeout_graceful_shutdown=1,
            ssl_certfile=certificate,
            ssl_ca_certs=str(clients) if clients else None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if clients else ssl.CERT_NONE,
        )
        self._server = uvicorn.Server(config)
        self._sockets = [config.bind_socket()]
        self.address = f"{'https' if certificate else 'http'}://127.0.0.1:{self._sockets[0].getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 30
        while not self._server.started:  # before that, connections are refused
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_the_end())

    async def _until_the_end(self) -> None:
        await self._server.serve(sockets=self._sockets)
        self._hang_up()  # on those who came while it ended
        await asyncio.sleep(0)

    def soon(self, call: Callable[[], object]) -> None:
        """Have something done on the event loop of the server."""
        self._loop.call_soon_threadsafe(call)

    def stop(self) -> None:
        """As a process that is killed: whoever is connected notices at once."""
        self.soon(self._end)
        self._thread.join(30)
        assert not self._thread.is_alive()
        for sock in self._sockets:
            sock.close()

    def _end(self) -> None:
        self._server.should_exit = True
        for server in self._server.servers:
            server.close()
        self._hang_up()

    def _hang_up(self) -> None:
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()


@contextmanager
def serving(app: ASGIApp) -> Iterator[Node]:
    node = Node(app)
    try:
        yield node
    finally:
        node.stop()


def details(job_id: str, status: str = "FINISHED", **fields: Any) -> dict[str, Any]:
    ended = status in ("FINISHED", "FAILED", "CANCELED")
    return {
        "job_id": job_id,
        "name": "orders",
        "status": status,
        "submitted_at": 1000.0,
        "ended_at": 1002.5 if ended else None,
        "attempt": 1,
        "restarts": 0,
        "failure": None,
        "stopped": False,
        "added_in_a_later_version": True,
        **fields,
    }


def event(kind: str, **data: Any) -> bytes:
    return f"id: 1\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def snapshot(job_id: str, status: str = "RUNNING") -> bytes:
    return event("snapshot", job_id=job_id, status=status, attempt=1, progress={}, at=1.0)


def state(job_id: str, status: str, **more: Any) -> bytes:
    return event("state", job_id=job_id, status=status, at=2.0, **more)


def errors(status: int, *messages: str) -> Response:
    return JSONResponse({"errors": list(messages)}, status)


def unknown(job_id: str) -> Response:
    return errors(404, f"no job {job_id} is known here")


async def _body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return body
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body


def _once(first: Callable[[], Any], then: Receive) -> Receive:
    done = False

    async def receive() -> Message:
        nonlocal done
        if done:
            return await then()
        done = True
        message: Message = await first()
        return message

    return receive


async def _abort(receive: Receive) -> None:
    """Close the connection as a machine does that loses its power: no answer, no farewell."""
    receive.__self__.transport.abort()  # type: ignore[attr-defined]  # uvicorn's own request cycle
    while (await receive())["type"] != "http.disconnect":
        pass
