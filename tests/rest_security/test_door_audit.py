"""The audit log: what is in it, what is never in it (S27), and a disk that fails."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.rest_security.rig import JOB, OneToken, ask, make_door, rest, until

from firesteel.rest.security.audit import AuditLog, AuditRecord


def record(number: int = 0, **given: Any) -> AuditRecord:
    return AuditRecord(
        **{
            "request_id": f"r{number}",
            "peer": "127.0.0.1",
            "method": "POST",
            "path": "/jobs",
            "status": 202,
            "outcome": "done",
            **given,
        }
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cluster" / "audit.log"


def audited(path: Path, *requests: tuple[str, str], **options: Any) -> list[dict[str, Any]]:
    """What is written about requests, given as (method, path)."""
    asked = options.pop("asked", {})
    with AuditLog(path) as log:
        door = make_door(audit=log, **options)
        for method, target in requests:
            ask(door, method, target, **asked)
    return lines(path) if path.exists() else []


def test_each_change_is_written_with_who_asked_for_it(path: Path) -> None:
    one, two, three, four = audited(
        path,
        ("POST", "/jobs"),
        ("PATCH", f"/jobs/{JOB.upper()}"),
        ("DELETE", "/nothing"),
        ("GET", f"/jobs/{JOB}/yarn-cancel"),
    )
    assert one.pop("time").endswith("+00:00")
    assert len(one.pop("request_id")) == 32
    assert one == {
        "peer": "127.0.0.1",
        "method": "POST",
        "path": "/jobs",
        "status": 202,
        "outcome": "done",
        "principal": "alice's laptop",
        "role": "operator",
        "owner": "alice",
        "job_id": JOB,  # said by the app
    }
    assert two["job_id"] == JOB  # read from the path
    assert (three["status"], three["outcome"]) == (404, "failed")
    assert (four["method"], four["outcome"]) == ("GET", "done")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_id_is_the_one_in_the_answer(path: Path) -> None:
    with AuditLog(path) as log:
        answer = ask(make_door(audit=log), "POST", "/boom")
    (written,) = lines(path)
    assert written["request_id"] == answer.headers["x-request-id"]
    assert (written["status"], written["outcome"]) == (500, "failed")


def test_reading_leaves_no_trace(path: Path) -> None:
    assert audited(path, ("GET", "/who"), ("GET", "/events"), ("HEAD", "/who"), ("GET", "/nothing")) == []


def test_who_was_turned_away_is_written_even_when_they_only_read(path: Path) -> None:
    one, two, three = (
        audited(path, ("GET", "/forbidden"), ("GET", "/who?token=x"), ("POST", "/who?token=x"), ("GET", "/boom"))[:2]
        + audited(path, ("GET", "/who"), asked={"anonymous": True})[-1:]
    )
    assert (one["status"], one["outcome"], one["principal"]) == (403, "refused", "alice's laptop")
    assert (two["status"], two["method"]) == (400, "POST")
    assert (three["status"], three["outcome"]) == (401, "refused")
    assert "principal" not in three


def test_no_secret_is_ever_in_it(path: Path) -> None:
    """S27: canaries in every part of a request."""
    canary = "canary-7f3a"
    with AuditLog(path) as log:
        door = make_door(audit=log)
        ask(door, "POST", f"/who?x={canary}", headers={"x-secret": canary, "cookie": canary}, content=canary.encode())
        ask(door, "POST", f"/who?token={canary}")
        ask(door, "POST", "/who", headers={"authorization": f"Bearer {canary}"})
        ask(door, "POST", f"/jobs/{OneToken.GOOD}{canary.replace('-', '')}")
        ask(door, "POST", f"/x/password={canary}")
    written = path.read_text()
    assert len(written.splitlines()) == 5
    assert canary not in written
    assert canary.replace("-", "") not in written
    assert OneToken.GOOD not in written


def test_a_record_is_one_line_whatever_the_path_is(path: Path) -> None:
    with AuditLog(path) as log:
        log.record(record(path='/x\n{"forged": true}\r\u2028'))
        log.record(record(path="/" + "y" * 10_000))
    one, two = lines(path)
    assert one["path"].startswith("/x\n")
    assert len(two["path"]) < 600


def test_a_flood_of_refusals_does_not_fill_it(path: Path) -> None:
    flood = [("POST", "/who")] * 300
    written = audited(path, *flood, rest=rest(rate_limit=1000, rate_burst=1000), asked={"anonymous": True})
    assert 0 < len(written) < 250
    with AuditLog(path) as log:
        door = make_door(audit=log)
        door._suppressed[None] = 7
        ask(door, "GET", "/who", anonymous=True)
    assert lines(path)[-1]["suppressed"] == 7


def test_refusals_of_those_who_are_known_are_written_during_a_flood(path: Path) -> None:
    """S46"""
    with AuditLog(path) as log:
        door = make_door(audit=log, rest=rest(rate_limit=1000, rate_burst=1000))
        for _ in range(300):
            ask(door, "GET", "/who", anonymous=True)
        for _ in range(20):
            ask(door, "GET", "/forbidden")
    known = [line for line in lines(path) if line.get("principal")]
    assert len(known) == 20


def test_a_flood_by_somebody_who_is_known_hides_no_refusal(path: Path) -> None:
    """S46: neither their own ones nor those of others."""
    with AuditLog(path) as log:
        door = make_door(audit=log, rest=rest(rate_limit=1, rate_burst=30))
        for _ in range(300):
            ask(door, "POST", "/who")
        ask(door, "GET", "/who", anonymous=True)
    written = lines(path)
    assert sum(line["status"] == 429 for line in written) < 200
    assert all(line["principal"] for line in written if line["status"] == 429)
    assert written[-1]["status"] == 401


def test_changes_are_written_during_a_flood_of_refusals(path: Path) -> None:
    with AuditLog(path) as log:
        door = make_door(audit=log, rest=rest(rate_limit=1000, rate_burst=1000))
        for _ in range(300):
            ask(door, "GET", "/who", anonymous=True)
        ask(door, "POST", "/jobs")
    assert lines(path)[-1]["outcome"] == "done"


def test_it_is_appended_to(path: Path) -> None:
    for number in range(3):
        with AuditLog(path) as log:
            log.record(record(number))
    assert [r["request_id"] for r in lines(path)] == ["r0", "r1", "r2"]


def test_it_turns_over_and_keeps_so_many(path: Path) -> None:
    size = len(record(100).line(datetime.now(UTC)))
    for number in range(100, 120):
        with AuditLog(path, max_bytes=3 * size, keep=2) as log:
            log.record(record(number))
    files = sorted(p for p in path.parent.iterdir() if not p.name.endswith(".lock"))
    assert [p.name for p in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    kept = [r["request_id"] for p in reversed(files) for r in lines(p)]
    assert kept == [f"r{n}" for n in range(120 - len(kept), 120)]
    assert all(p.stat().st_size <= 3 * size for p in files)
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in files)


def test_two_writers_lose_nothing(path: Path) -> None:
    with AuditLog(path, max_bytes=2000, keep=100) as one, AuditLog(path, max_bytes=2000, keep=100) as two:
        for number in range(200):
            one.record(record(number))
            two.record(record(1000 + number))
    written = [r["request_id"] for p in path.parent.glob("audit.log*") if p.suffix != ".lock" for r in lines(p)]
    assert sorted(written) == sorted(f"r{n}" for n in [*range(200), *range(1000, 1200)])


def test_no_other_process_writes_while_it_turns_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else both would, and the records of a whole file would be gone."""
    rotate = AuditLog._rotate
    alone: list[bool] = []

    def watched(self: AuditLog) -> None:
        with path.with_name("audit.log.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone.append(False)
            except BlockingIOError:
                alone.append(True)
        rotate(self)

    monkeypatch.setattr(AuditLog, "_rotate", watched)
    with AuditLog(path, max_bytes=1) as log:
        log.record(record())
    assert alone == [True]


def test_a_disk_that_fails_is_told_and_the_door_goes_on(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    with AuditLog(path, keep=0) as log:
        door = make_door(audit=log)
        for _ in range(3):
            assert ask(door, "POST", "/jobs").status_code == 202
        until(lambda: log._lost == 3)
        path.unlink()
        assert ask(door, "POST", "/jobs").status_code == 202
    complaints = [r for r in caplog.records if "audit log" in r.getMessage()]
    assert len(complaints) == 1
    assert complaints[0].levelno == logging.ERROR
    gap, written = lines(path)
    assert gap["lost_records"] == 3
    assert written["job_id"] == JOB


def test_a_writer_that_hangs_blocks_no_request(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, let_go = threading.Event(), threading.Event()
    append = AuditLog._append

    def slow(self: AuditLog, data: bytes) -> None:
        stuck.set()
        assert let_go.wait(30)
        append(self, data)

    monkeypatch.setattr(AuditLog, "_append", slow)
    monkeypatch.setattr("firesteel.rest.security.audit._QUEUE", 10)
    with AuditLog(path) as log:
        log.record(record())
        assert stuck.wait(30)
        for number in range(1, 50):  # more than fit
            log.record(record(number))
        let_go.set()
    written = lines(path)
    assert sum(r.get("lost_records", 0) for r in written) + len([r for r in written if "path" in r]) == 50
    assert sum("path" in r for r in written) == 11


def test_a_line_that_was_torn_does_not_spoil_the_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    calls = 0

    def once_short(fd: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            return write(fd, bytes(data)[:20])
        if calls == 2:
            raise OSError(28, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr("firesteel.rest.security.audit.os.write", once_short)
    with AuditLog(path) as log:
        log.record(record(1))
        until(lambda: log._lost == 1)
        log.record(record(2))
    torn, gap, whole = path.read_text().splitlines()
    assert len(torn) == 20
    assert json.loads(gap)["lost_records"] == 1
    assert json.loads(whole)["request_id"] == "r2"
