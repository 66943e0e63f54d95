"""Event streams, cut anywhere."""

from __future__ import annotations

import itertools

import pytest

from firesteel.client.errors import ClusterError
from firesteel.client.events import EventParser, ServerSentEvent, job_event
from firesteel.failure import FailureKind
from firesteel.status import JobStatus

STREAM = (
    "\ufeff: keep-alive\n"
    "\n"
    "id: 1\n"
    "event: snapshot\n"
    'data: {"job_id": "a", "näme": "\u20ac"}\n'
    "\n"
    "id: 2\n"
    "event:state\n"
    "data: one\n"
    "data:  two\n"
    "data\n"
    "retry: 10\n"
    "unknown: x\n"
    "\n"
    "event: nothing\n"
    "\n"
    "data: three\n"
    "\n"
    "data: never ended\n"
)
EVENTS = [
    ServerSentEvent("snapshot", '{"job_id": "a", "näme": "\u20ac"}', "1"),
    ServerSentEvent("state", "one\n two\n", "2"),
    ServerSentEvent("message", "three", "2"),
]


def parse(*chunks: bytes) -> list[ServerSentEvent]:
    parser = EventParser()
    return list(itertools.chain.from_iterable(parser.feed(chunk) for chunk in chunks))


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
def test_stream_is_the_same_wherever_it_is_cut(ending: str) -> None:
    raw = STREAM.replace("\n", ending).encode()
    assert parse(raw) == EVENTS
    assert parse(*(bytes([byte]) for byte in raw)) == EVENTS
    for at in range(len(raw)):
        assert parse(raw[:at], raw[at:]) == EVENTS


def test_event_is_given_as_soon_as_its_blank_line_is_there() -> None:
    parser = EventParser()
    assert parser.feed(b"data: x\n") == []
    assert parser.feed(b"\n") == [ServerSentEvent("message", "x")]


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert parse(b"data: \xff\xfe\n\n")[0].data == "\ufffd\ufffd"


def test_job_event_says_where_the_job_stands() -> None:
    data = '{"job_id": "ab", "at": 5.5, "status": "FAILED", "failure": {"kind": "data error", "message": "no", "vertex": "v"}}'
    found = job_event(ServerSentEvent("state", data))
    assert (found.kind, found.job_id, found.at, found.status) == ("state", "ab", 5.5, JobStatus.FAILED)
    assert found.final
    assert found.failure is not None
    assert (found.failure.kind, found.failure.vertex) == (FailureKind.DATA, "v")


def test_only_a_state_that_is_terminal_is_final() -> None:
    assert not job_event(ServerSentEvent("snapshot", '{"job_id": "ab", "at": 1, "status": "FINISHED"}')).final
    assert not job_event(ServerSentEvent("state", '{"job_id": "ab", "at": 1, "status": "SUSPENDED"}')).final
    assert not job_event(ServerSentEvent("lost", '{"count": 3}')).final


def test_failure_of_a_kind_that_is_not_known_keeps_its_text() -> None:
    data = '{"job_id": "ab", "status": "FAILED", "failure": {"kind": "moon phase", "message": "full"}}'
    failure = job_event(ServerSentEvent("state", data)).failure
    assert failure is not None
    assert failure.message == "moon phase: full"


@pytest.mark.parametrize("data", ["", "[]", "{", "3"])
def test_something_that_is_not_an_event_is_refused(data: str) -> None:
    with pytest.raises(ClusterError, match="invalid event"):
        job_event(ServerSentEvent("state", data))
