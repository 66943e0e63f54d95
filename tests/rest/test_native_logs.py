"""Logs of jobs: by name, by range, from the end, by vertex; and nothing that is not a log (S4)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.rest.desk import Client, Desk
from tests.rest.native_people import ALICE, BOB, ONE, TWO, asked_raw, attempt_events, attempt_file, put

from firesteel.rest.native.log_tail import FAR_BEHIND, LONGEST_LINE, READ, JobTail, Lines, LogTail
from firesteel.rest.native.ranges import Part, part_of
from firesteel.rest.native.vertex_log import line_of
from firesteel.types import JobID, vertex_id

TEXT = "".join(f"line {n}\n" for n in range(1, 11))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    put(desk, ONE)
    attempt_file(desk, ONE, "stdout.log", "of the first\n", attempt=1)
    attempt_file(desk, ONE, "stdout.log", TEXT, attempt=2)
    attempt_file(desk, ONE, "stderr.log", "a warning <script>alert(1)</script>\n", attempt=2)
    attempt_file(desk, ONE, "jvm.log", "a JVM\n", attempt=2)
    attempt_file(desk, ONE, "spec.json", '{"token": "secret"}', attempt=2)
    return desk


@pytest.fixture
def alice(desk: Desk) -> Client:
    return desk.client(ALICE)


def test_attempts_are_listed_with_their_logs(desk: Desk, alice: Client) -> None:
    os.utime(desk.context.logs.directory(JobID(ONE), 1) / "output" / "stdout.log", (5.0, 5.0))
    answer = alice.get(f"/v1/jobs/{ONE}/attempts").json()
    assert [a["attempt"] for a in answer["attempts"]] == [1, 2]
    assert answer["attempts"][0]["logs"] == [{"name": "stdout", "size": 13, "modified": 5000}]
    assert [f["name"] for f in answer["attempts"][1]["logs"]] == ["stdout", "stderr", "jvm"]
    put(desk, TWO)
    assert alice.get(f"/jobs/{TWO}/attempts").json() == {"attempts": []}


def test_a_log_is_plain_text_of_the_attempt_or_of_the_last_one(alice: Client) -> None:
    answer = alice.get(f"/jobs/{ONE}/logs/stdout")
    assert (answer.status_code, answer.text) == (200, TEXT)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-length"] == str(len(TEXT))
    assert alice.get(f"/jobs/{ONE}/attempts/1/logs/stdout").text == "of the first\n"
    markup = alice.get(f"/jobs/{ONE}/logs/stderr")
    assert "<script>" in markup.text
    assert markup.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    ("tail", "shown"),
    [(0, ""), (1, "line 10\n"), (3, "line 8\nline 9\nline 10\n"), (10, TEXT), (1000, TEXT)],
)
def test_the_last_lines(alice: Client, tail: int, shown: str) -> None:
    answer = alice.get(f"/jobs/{ONE}/logs/stdout?tail={tail}", headers={"range": "bytes=0-3"})
    assert (answer.status_code, answer.text) == (200, shown)


@pytest.mark.parametrize(
    ("asked", "status", "shown", "said"),
    [
        ("bytes=0-3", 206, TEXT[:4], "0-3/71"),
        ("bytes=5-", 206, TEXT[5:], "5-70/71"),
        ("bytes=-8", 206, TEXT[-8:], "63-70/71"),
        ("bytes=0-", 206, TEXT, "0-70/71"),
        ("bytes=60-999", 206, TEXT[60:], "60-70/71"),
        ("bytes=-999", 206, TEXT, "0-70/71"),
        ("bytes=71-", 416, None, "*/71"),
        ("bytes=-0", 416, None, "*/71"),
        ("bytes=0-1,3-4", 200, TEXT, None),
        ("bytes=5-1", 200, TEXT, None),
        ("lines=1-2", 200, TEXT, None),
        ("bytes=-", 200, TEXT, None),
        ("bytes=" + "9" * 30 + "-", 200, TEXT, None),
    ],
)
def test_ranges(alice: Client, asked: str, status: int, shown: str | None, said: str | None) -> None:
    answer = alice.get(f"/jobs/{ONE}/logs/stdout", headers={"range": asked})
    assert answer.status_code == status
    assert shown is None or answer.text == shown
    assert answer.headers.get("content-range") == (f"bytes {said}" if said else None)


def test_ranges_of_an_empty_file() -> None:
    assert part_of("bytes=0-", 0) is None
    assert part_of(None, 0) == Part(0, 0, 0)


NO_LOGS = (
    "spec",
    "spec.json",
    "stdout.log",
    "..",
    ".",
    "...",
    "%2e%2e",
    "%252e%252e%252fspec.json",
    "..%2fspec.json",
    "..%2f..%2f..%2f..%2fetc%2fpasswd",
    "%2fetc%2fpasswd",
    "..%5cspec.json",
    "stdout%00",
    "stdout%00.json",
    "STDOUT",
    "stdout%20",
    "events.1.jsonl",
)


@pytest.mark.parametrize("place", ["logs", "attempts/2/logs"])
def test_names_that_are_no_logs_are_not_found(desk: Desk, place: str) -> None:
    for name in NO_LOGS:
        status, body = asked_raw(desk, ALICE, f"/jobs/{ONE}/{place}/{name}")
        assert status == 404, name
        assert b"secret" not in body
        assert b"root:" not in body


def test_attempts_are_numbers(desk: Desk) -> None:
    for attempt in ("0", "-1", "x", "..", "%2e%2e", "99999999999999999999", "1e1"):
        assert asked_raw(desk, ALICE, f"/jobs/{ONE}/attempts/{attempt}/logs/stdout")[0] in (400, 404), attempt


def test_a_link_or_a_pipe_in_the_place_of_a_log_is_none(desk: Desk, alice: Client, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("a secret")
    directory = desk.context.logs.directory(JobID(ONE), 2)
    for name in ("output/stdout.log", "output/stderr.log", "jvm.log"):
        (directory / name).unlink()
    (directory / "output" / "stdout.log").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(directory / "output" / "stderr.log")
    (directory / "jvm.log").mkdir()
    for name in ("stdout", "stderr", "jvm"):
        assert alice.get(f"/jobs/{ONE}/logs/{name}").status_code == 404
    assert alice.get(f"/jobs/{ONE}/attempts").json()["attempts"][1]["logs"] == []
    assert JobTail(desk.context.logs, JobID(ONE)).news() == [Lines(1, "stdout", ["of the first"])]


def test_what_is_not_there_is_not_found(desk: Desk, alice: Client) -> None:
    put(desk, TWO)
    for path in (f"/jobs/{TWO}/logs/stdout", f"/jobs/{ONE}/attempts/3/logs/stdout", f"/jobs/{ONE}/logs/events"):
        assert alice.get(path).status_code == 404


def test_logs_of_others_are_not_found(desk: Desk) -> None:
    put(desk, TWO, owner="nobody")
    for path in ("attempts", "logs/stdout", "attempts/2/logs/stdout", "vertices/out/log"):
        mine, none = (desk.client(BOB).get(f"/jobs/{job}/{path}") for job in (ONE, "e" * 32))
        assert mine.status_code == none.status_code == 404
        assert mine.text.replace(ONE, "") == none.text.replace("e" * 32, "")


# -- one vertex ---------------------------------------------------------------------------------------------------------


def test_the_log_of_a_vertex_has_what_concerns_it(desk: Desk, alice: Client) -> None:
    attempt_file(
        desk,
        ONE,
        "events.1.jsonl",
        json.dumps({"t": 0.5, "type": "sink", "vertex": "out", "state": "written"}) + "\n",
        attempt=2,
    )
    log = attempt_events(
        desk,
        ONE,
        {"t": 1.0, "type": "phase", "phase": "running"},
        {"t": 1.5, "type": "progress", "vertex": "out", "tasks": 4, "completed": 1},
        {"t": 2.0, "type": "progress", "vertex": "other", "tasks": 9},
        {"t": 2.5, "type": "batch", "vertex": "out", "batch": 3, "rows": 7, "vertices": {"orders": 7, "big": 5}},
        {
            "t": 3.0,
            "type": "result",
            "state": "FAILED",
            "failure": {"vertex": "out", "kind": "data error", "message": "a\nb"},
        },
        attempt=2,
    )
    with log.open("ab") as f:
        f.write(b'{"torn\n[1]\n' + b"[" * 100_000 + b"\n\xff\n")
    answer = alice.get(f"/jobs/{ONE}/vertices/out/log")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text.splitlines() == [
        "1970-01-01T00:00:00.500+00:00 sink state=written",
        "1970-01-01T00:00:01.500+00:00 progress tasks=4 completed=1",
        "1970-01-01T00:00:02.500+00:00 batch batch=3 rows=7",
        '1970-01-01T00:00:03.000+00:00 result kind="data error" message="a\\nb"',
    ]
    assert alice.get(f"/jobs/{ONE}/vertices/{vertex_id('out')}/log").text == answer.text
    rows = alice.get(f"/jobs/{ONE}/vertices/orders/log").text
    assert rows == "1970-01-01T00:00:02.500+00:00 batch sink=out batch=3 rows=7\n"


@pytest.mark.parametrize(("vertex", "status"), [("nothing", 404), ("e" * 32, 404), ("a-b", 400), ("a" * 129, 400)])
def test_a_vertex_that_the_job_has_not(alice: Client, vertex: str, status: int) -> None:
    assert alice.get(f"/jobs/{ONE}/vertices/{vertex}/log").status_code == status


def test_an_event_becomes_one_line_whatever_it_holds() -> None:
    line = line_of({"t": "x", "type": "note", "vertex": "v", "text": "a\r\nb", "password": "hunter2", "n": [1]}, "v")
    assert line == '- note text="a\\r\\nb" password=****** n=[1]'


# -- as it grows --------------------------------------------------------------------------------------------------------


def test_a_tail_gives_whole_lines_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = LogTail(log)
    assert tail.new() == []
    log.write_bytes(b"one\ntwo\nthr")
    assert tail.new() == ["one", "two"]
    assert tail.new() == []
    with log.open("ab") as f:
        f.write(b"ee\n\xff\n\n")
    assert tail.new() == ["three", "\ufffd", ""]
    log.write_bytes(b"cut\n")
    assert tail.new() == ["cut"]
    with log.open("ab") as f:
        f.write(b"rest")
    assert tail.new() == []
    assert tail.new(over=True) == ["rest"]
    assert tail.new(over=True) == []


def test_a_tail_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * (READ + 10) + b"\n")
    tail = LogTail(log)
    [endless] = tail.new()
    assert len(endless) == LONGEST_LINE + 3
    assert tail.new() == ["x" * 10]
    with log.open("ab") as f:
        f.write(b"y" * 99 + b"\n")
        f.write((b"z" * 99 + b"\n") * (2 * FAR_BEHIND // 100))
    note, *lines = tail.new()
    assert "bytes are omitted" in note
    assert "y" not in "".join(lines)
    assert tail.new() == []


def test_one_who_begins_late_gets_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"{n}\n" for n in range(5000)) + "half")
    tail = LogTail.at_end(log)
    recent = tail.recent()
    assert (len(recent), recent[0], recent[-1]) == (1000, "4000", "4999")
    with log.open("a") as f:
        f.write(" a line\n")
    assert tail.new() == ["half a line"]
    assert LogTail.at_end(tmp_path / "nothing").recent() == []
