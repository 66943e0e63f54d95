"""Event streams over a real server: what is told, to whom, in which order, and when a stream ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.rest.desk import ADMIN, Desk
from tests.rest.native_people import ALICE, BOB, ONE, THREE, TWO, attempt_events, attempt_file, put

from firesteel.attempts.events import ProgressTail
from firesteel.errors import RateLimitedError
from firesteel.failure import Failure, FailureKind
from firesteel.jobmaster.events import MAX_BEHIND, JobEvents, state_event
from firesteel.rest.app import TidyPaths
from firesteel.rest.native.event_source import END, EventSource, Listener
from firesteel.rest.security.principals import Principal
from firesteel.rest.server import serving
from firesteel.status import JobStatus
from firesteel.types import JobID

DEADLINE = 20.0
Event = tuple[str, Any]
"""Kind and data; a comment has the kind "" and its text."""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.context.events = EventSource(interval=0.02, slowest=0.02)
    return desk


@contextlib.asynccontextmanager
async def server(desk: Desk) -> AsyncIterator[Callable[[Principal], httpx.AsyncClient]]:
    """The application on a port of its own; the header says who asks."""
    people = {p.name: p for p in (ADMIN, ALICE, BOB)}
    app = TidyPaths(desk.app)

    async def door(scope: Any, receive: Any, send: Any) -> None:
        name = dict(scope["headers"])[b"x-who"].decode()
        await app({**scope, "firesteel.principal": people[name]}, receive, send)

    clients: list[httpx.AsyncClient] = []
    async with serving(door, host="127.0.0.1", port=0) as port:

        def client(who: Principal) -> httpx.AsyncClient:
            base = f"http://127.0.0.1:{port}"
            clients.append(httpx.AsyncClient(base_url=base, headers={"x-who": who.name}, timeout=DEADLINE))
            return clients[-1]

        try:
            yield client
        finally:
            for one in clients:
                await one.aclose()
            await desk.context.events.close()


async def events_of(answer: httpx.Response) -> AsyncIterator[Event]:
    expected = 1
    lines: list[str] = []
    async for line in answer.aiter_lines():
        if line:
            lines.append(line)
            continue
        if lines and lines[0].startswith(":"):
            yield "", lines[0]
        elif lines:
            number, kind, data = lines
            assert number == f"id: {expected}"
            expected += 1
            yield kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))
        lines = []


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(3 * DEADLINE):
            await test()

    asyncio.run(bounded())


def tell(desk: Desk, job_id: str, status: JobStatus, **more: Any) -> None:
    desk.gateway.hub.publish(state_event(JobID(job_id), status, 1234.5, **more))


# -- one job ------------------------------------------------------------------------------------------------------------


def test_a_stream_begins_with_a_snapshot_and_ends_with_the_final_state(desk: Desk) -> None:
    put(desk, ONE, status=JobStatus.CREATED, progress={"phase": "connecting"})

    async def test() -> None:
        async with server(desk) as client, client(ALICE).stream("GET", f"/v1/jobs/{ONE}/events") as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-accel-buffering"] == "no"
            stream = events_of(answer)
            kind, data = await anext(stream)
            assert kind == "snapshot"
            assert isinstance(data.pop("at"), float)
            assert data == {"job_id": ONE, "status": "CREATED", "attempt": 1, "progress": {"phase": "connecting"}}
            tell(desk, ONE, JobStatus.RUNNING, attempt=1)
            assert await anext(stream) == ("state", {"job_id": ONE, "status": "RUNNING", "at": 1234.5, "attempt": 1})
            failure = Failure(FailureKind.DATA, "login failed: password=hunter2")
            tell(desk, ONE, JobStatus.FAILED, failure=failure)
            kind, data = await anext(stream)
            assert (kind, data["status"], data["failure"]["kind"]) == ("state", "FAILED", "data error")
            assert "hunter2" not in json.dumps(data)
            assert [e async for e in stream] == []
            await until(lambda: desk.gateway.hub.listeners == 0)
            assert desk.context.events.watched == 0

    run(test)


def test_a_job_that_has_ended_is_told_at_once(desk: Desk) -> None:
    put(desk, ONE, status=JobStatus.FINISHED)

    async def test() -> None:
        async with server(desk) as client, client(ALICE).stream("GET", f"/jobs/{ONE}/events") as answer:
            told = [e async for e in events_of(answer)]
            assert [kind for kind, _ in told] == ["snapshot", "state"]
            result = told[1][1].pop("result")
            assert told[1][1] == {"job_id": ONE, "status": "FINISHED", "at": 2000.0, "attempt": 1}
            assert (result["submitted_at"], result["ended_at"], result["stopped"]) == (1000.0, 2000.0, False)

    run(test)


def test_progress_is_told_when_it_changes(desk: Desk) -> None:
    log = attempt_events(desk, ONE, {"t": 1.0, "type": "phase", "phase": "connecting"})
    put(desk, ONE, progress=ProgressTail(log).look())

    async def test() -> None:
        async with server(desk) as client, client(ALICE).stream("GET", f"/jobs/{ONE}/events") as answer:
            stream = events_of(answer)
            assert (await anext(stream))[0] == "snapshot"
            await until(lambda: desk.context.events.watched == 1)
            with log.open("a") as f:
                f.write('{"t": 2.0, "type": "phase", "phase": "running"}\n')
            kind, data = await anext(stream)
            assert (kind, data["job_id"], data["progress"]["phase"]) == ("progress", ONE, "running")
            # The next attempt has files of its own.
            attempt_events(desk, ONE, {"t": 3.0, "type": "phase", "phase": "compiling"}, attempt=2)
            kind, data = await anext(stream)
            assert (kind, data["progress"]["phase"]) == ("progress", "compiling")
            # One who comes now, with a snapshot that is older than that, is told too.
            async with client(ALICE).stream("GET", f"/jobs/{ONE}/events") as later:
                told = events_of(later)
                assert (await anext(told))[1]["progress"]["phase"] == "connecting"
                assert (await anext(told))[1]["progress"]["phase"] == "compiling"

    run(test)


@pytest.mark.parametrize("line", ["[1]", "{}", '{"type": "batch"}', "null", "[" * 50_000, '{"type": [], "t": {}}'])
def test_whatever_a_program_writes_into_its_event_log_does_not_end_the_stream(desk: Desk, line: str) -> None:
    put(desk, ONE)
    log = attempt_events(desk, ONE)

    async def test() -> None:
        async with server(desk) as client, client(ALICE).stream("GET", f"/jobs/{ONE}/events") as answer:
            stream = events_of(answer)
            assert (await anext(stream))[0] == "snapshot"
            log.write_text(f"{line}\n")
            tell(desk, ONE, JobStatus.FINISHED)
            assert [kind async for kind, _ in stream][-1] == "state"

    run(test)


def test_log_lines_come_on_request_with_the_last_ones_first(desk: Desk) -> None:
    put(desk, ONE)
    out = attempt_file(desk, ONE, "stdout.log", "first\nsecond\nhalf a li")
    attempt_file(desk, ONE, "stderr.log", "a warning\n")

    async def test() -> None:
        async with (
            server(desk) as client,
            client(ALICE).stream("GET", f"/jobs/{ONE}/events?logs=true") as answer,
            client(ALICE).stream("GET", f"/jobs/{ONE}/events") as quiet,
        ):
            stream = events_of(answer)
            assert (await anext(stream))[0] == "snapshot"
            kind, data = await anext(stream)
            assert isinstance(data.pop("at"), float)
            assert (kind, data) == (
                "log",
                {"job_id": ONE, "attempt": 1, "stream": "stdout", "lines": ["first", "second"]},
            )
            assert (await anext(stream))[1]["lines"] == ["a warning"]
            with out.open("a") as f:
                f.write("ne\ntoken=abcdefgh123\n")
            assert (await anext(stream))[1]["lines"] == ["half a line", "token=******"]
            # What was written last, and was not seen yet, comes before the end.
            with out.open("a") as f:
                f.write("the end, without a new line")
            tell(desk, ONE, JobStatus.FINISHED)
            rest = [e async for e in stream]
            assert [kind for kind, _ in rest] == ["log", "state"]
            assert rest[0][1]["lines"] == ["the end, without a new line"]
            others = [kind async for kind, _ in events_of(quiet)]
            assert others == ["snapshot", "state"]

    run(test)


def test_keep_alives_find_out_what_nobody_told(desk: Desk) -> None:
    """An end that was told before anybody listened, or by another leader."""
    put(desk, ONE)
    desk.context.events.keep_alive = 0.05

    async def test() -> None:
        async with server(desk) as client, client(ALICE).stream("GET", f"/jobs/{ONE}/events") as answer:
            stream = events_of(answer)
            assert (await anext(stream))[0] == "snapshot"
            assert await anext(stream) == ("", ": keep-alive")
            put(desk, ONE, status=JobStatus.CANCELED)
            rest = [e async for e in stream if e[0]]
            assert [(kind, data["status"]) for kind, data in rest] == [("state", "CANCELED")]

    run(test)


def test_streams_end_when_the_node_stops_leading(desk: Desk) -> None:
    put(desk, ONE)
    desk.context.events.keep_alive = 0.05

    async def test() -> None:
        async with (
            server(desk) as client,
            client(ALICE).stream("GET", f"/jobs/{ONE}/events") as one,
            client(ALICE).stream("GET", "/events") as every,
        ):
            desk.node.leads = False
            assert {kind async for kind, _ in events_of(one)} <= {"snapshot", ""}
            assert {kind async for kind, _ in events_of(every)} == {""}
            await until(lambda: desk.gateway.hub.listeners == 0)

    run(test)


def test_closing_the_source_ends_all_streams(desk: Desk) -> None:
    put(desk, ONE)

    async def test() -> None:
        async with (
            server(desk) as client,
            client(ALICE).stream("GET", f"/jobs/{ONE}/events") as one,
            client(ALICE).stream("GET", "/events") as every,
        ):
            first, second = events_of(one), events_of(every)
            assert (await anext(first))[0] == "snapshot"
            await anext(second)
            await desk.context.events.close()
            assert [e async for e in first] == []
            assert [e async for e in second] == []
            assert (await client(ALICE).get("/events")).status_code == 429

    run(test)


# -- all jobs -----------------------------------------------------------------------------------------------------------


def test_the_stream_of_all_jobs_tells_each_caller_of_its_own(desk: Desk) -> None:
    put(desk, ONE, owner="alice")
    put(desk, TWO, owner="bob")

    async def test() -> None:
        async with (
            server(desk) as client,
            client(ALICE).stream("GET", "/events") as mine,
            client(ADMIN).stream("GET", "/events") as all_,
        ):
            await until(lambda: desk.gateway.hub.listeners == 2)
            tell(desk, TWO, JobStatus.RUNNING)
            tell(desk, THREE, JobStatus.RUNNING)  # of which nobody knows
            tell(desk, ONE, JobStatus.FINISHED)
            tell(desk, ONE, JobStatus.FINISHED)
            alice, admin = events_of(mine), events_of(all_)
            assert [d["job_id"] for k, d in [await anext(alice) for _ in range(3)] if k] == [ONE, ONE]
            assert [d["job_id"] for k, d in [await anext(admin) for _ in range(4)] if k] == [TWO, ONE, ONE]

    run(test)


def test_a_slow_listener_is_told_how_much_it_lost(desk: Desk) -> None:
    put(desk, ONE)

    async def test() -> None:
        async with server(desk) as client, client(ALICE).stream("GET", "/events") as answer:
            await until(lambda: desk.gateway.hub.listeners == 1)
            for _ in range(MAX_BEHIND + 5):  # without a pause, so nobody can read meanwhile
                tell(desk, ONE, JobStatus.RUNNING)
            stream = events_of(answer)
            assert [await anext(stream) for _ in range(2)][1] == ("lost", {"count": 5})

    run(test)


def test_somebody_elses_job_has_no_events(desk: Desk) -> None:
    put(desk, ONE, owner="bob")

    async def test() -> None:
        async with server(desk) as client:
            for job_id in (ONE, TWO):
                answer = await client(ALICE).get(f"/jobs/{job_id}/events")
                assert answer.status_code == 404
            assert (await client(ALICE).get("/jobs/nonsense/events")).status_code == 400
            assert desk.gateway.hub.listeners == 0

    run(test)


# -- many ---------------------------------------------------------------------------------------------------------------


def test_a_client_that_goes_away_is_let_go(desk: Desk) -> None:
    put(desk, ONE)

    async def test() -> None:
        async with server(desk) as client:
            async with client(ALICE).stream("GET", f"/jobs/{ONE}/events?logs=true") as answer:
                stream = events_of(answer)
                await anext(stream)
                await until(lambda: desk.context.events.watched == 1)
            await until(lambda: desk.gateway.hub.listeners == 0 and desk.context.events.listeners == 0)
            assert desk.context.events.watched == 0

    run(test)


def test_no_more_streams_than_allowed_are_served(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {"rest.max-event-listeners": "1"})
    put(desk, ONE)

    async def test() -> None:
        async with server(desk) as client:
            async with client(ALICE).stream("GET", "/events") as answer:
                stream = events_of(answer)
                await anext(stream)
                refused = await client(ALICE).get(f"/jobs/{ONE}/events")
                assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
                assert re.search("max-event-listeners", refused.text)
            await until(lambda: desk.context.events.listeners == 0)
            async with client(ALICE).stream("GET", f"/jobs/{ONE}/events") as answer:
                assert (await anext(events_of(answer)))[0] == "snapshot"

    run(test)


def test_one_caller_has_a_share_of_all_streams_and_admins_have_a_reserve() -> None:
    """S43"""
    source = EventSource()

    def opened(caller: str, *, privileged: bool = False) -> int:
        count = 0
        with contextlib.suppress(RateLimitedError):
            while True:
                source.admit(40, caller, privileged=privileged)
                count += 1
        return count

    assert opened("a") == 10
    assert opened("b") == 10
    assert [opened(c) for c in ("c", "d", "e")] == [10, 6, 0]
    assert opened("root", privileged=True) == 4
    source.leave("a")
    assert opened("b") == 0
    assert opened("e") == 0
    assert opened("root", privileged=True) == 1
    for caller, count in (("a", 9), ("b", 10), ("c", 10), ("d", 6), ("root", 5)):
        for _ in range(count):
            source.leave(caller)
    assert source.listeners == 0
    assert not source._admitted


def test_many_listeners_of_a_job_share_one_look_at_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    put(desk, ONE)
    log = attempt_file(desk, ONE, "stdout.log", "")
    source = desk.context.events

    async def test() -> None:
        hub = JobEvents()
        async with contextlib.AsyncExitStack() as opened:
            listeners = [Listener(hub.subscribe(JobID(ONE)), logs=True) for _ in range(50)]
            watches = {
                await opened.enter_async_context(source.following(JobID(ONE), desk.context.logs, one))
                for one in listeners
            }
            assert len(watches) == 1
            log.write_text("a line\n")
            for one in listeners:
                event = await one.next(DEADLINE)
                assert event is not None
                assert event.data["lines"] == ["a line"]
        assert source.watched == 0
        await source.close()

    run(test)


def test_one_who_joins_later_gets_each_line_once(desk: Desk) -> None:
    put(desk, ONE)
    log = attempt_file(desk, ONE, "stdout.log", "")
    source = desk.context.events

    async def lines(listener: Listener, count: int) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            event = await listener.next(DEADLINE)
            assert event is not None
            found += event.data["lines"]
        return found

    async def test() -> None:
        hub = JobEvents()
        first, second = (Listener(hub.subscribe(JobID(ONE)), logs=True) for _ in range(2))
        numbers = [str(n) for n in range(1, 601)]
        async with source.following(JobID(ONE), desk.context.logs, first):
            log.write_text("".join(f"{n}\n" for n in numbers[:300]))
            assert await lines(first, 300) == numbers[:300]
            async with source.following(JobID(ONE), desk.context.logs, second):
                with log.open("a") as f:
                    f.write("".join(f"{n}\n" for n in numbers[300:]))
                assert await lines(first, 300) == numbers[300:]
                assert await lines(second, 600) == numbers
        await source.close()

    run(test)


def test_log_lines_of_a_listener_that_does_not_listen_are_bounded() -> None:
    async def test() -> None:
        from firesteel.jobmaster.events import JobEvent

        listener = Listener(JobEvents().subscribe(JobID(ONE)), logs=True)
        event = JobEvent("log", JobID(ONE), 0.0, {"lines": ["x" * 999] * 100})
        for _ in range(20):
            listener.offer(event)
        assert listener.lost == 10
        lost = await listener.next(DEADLINE)
        assert lost is not None
        assert (lost.kind, lost.data) == ("lost", {"count": 10})
        for _ in range(10):
            assert await listener.next(DEADLINE) is event
        listener.offer(event)
        listener.end()
        assert await listener.next(DEADLINE) is event
        end = await listener.next(DEADLINE)
        assert end is not None
        assert end.kind == END

    run(test)
