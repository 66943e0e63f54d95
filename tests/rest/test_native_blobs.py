"""Uploads: streamed, checked, bounded, and seen by their owner only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rest.desk import ADMIN, Client, Desk
from tests.rest.native_people import ALICE, BOB, EYE, ONE, put

from firesteel.config.sections import Role
from firesteel.jobgraph.model import JobGraph
from firesteel.rest.security.principals import Principal
from firesteel.status import JobStatus

DATA = b"PK\x03\x04 not really a zip " * 100
KEY = hashlib.sha256(DATA).hexdigest()
OTHER = "e" * 64
ALL_EYES = Principal("all eyes", Role.VIEWER, "*")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, {"blob.max-size": "1m"})


@pytest.fixture
def alice(desk: Desk) -> Client:
    return desk.client(ALICE)


def test_a_file_is_stored_under_its_digest_and_read_back(alice: Client) -> None:
    answer = alice.post("/v1/blobs", content=DATA, headers={"x-content-sha256": KEY.upper()})
    assert (answer.status_code, answer.json()) == (201, {"key": KEY, "size": len(DATA)})
    assert answer.headers["location"] == f"/blobs/{KEY}"
    read = alice.get(f"/blobs/{KEY}")
    assert (read.status_code, read.content) == (200, DATA)
    assert read.headers["content-type"] == "application/octet-stream"
    assert read.headers["etag"] == f'"{KEY}"'
    assert read.headers["content-disposition"] == f'attachment; filename="{KEY}"'
    assert read.headers["x-content-type-options"] == "nosniff"
    info = alice.get(f"/blobs/{KEY.upper()}/info").json()
    assert (info["key"], info["size"]) == (KEY, len(DATA))
    assert alice.get("/blobs").json() == {"blobs": [info]}


def test_only_those_who_may_submit_jobs_keep_a_file_from_growing_old(
    desk: Desk, alice: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice.post("/blobs", content=DATA)
    touched: list[object] = []
    keep = desk.context.blobs.touch

    async def touch(keys: Any, *, owner: str | None = None) -> None:
        touched.append(keys)
        await keep(keys, owner=owner)

    monkeypatch.setattr(desk.context.blobs, "touch", touch)
    viewer = desk.client(Principal("screen", Role.VIEWER, ALICE.owner))
    assert viewer.get(f"/blobs/{KEY}/info").json()["size"] == len(DATA)
    assert touched == []
    assert alice.get(f"/blobs/{KEY}/info").status_code == 200
    assert touched == [[KEY]]


def test_a_body_comes_in_pieces_and_may_be_empty(alice: Client) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(1000):
            yield b"x" * 100

    assert alice.post("/blobs", content=pieces()).json()["size"] == 100_000
    empty = alice.post("/blobs", content=b"")
    assert empty.json() == {"key": hashlib.sha256(b"").hexdigest(), "size": 0}
    assert alice.get(f"/blobs/{empty.json()['key']}").content == b""


@pytest.mark.parametrize(
    ("asked", "status", "shown"),
    [
        ("bytes=2-5", 206, DATA[2:6]),
        ("bytes=-7", 206, DATA[-7:]),
        ("bytes=100-", 206, DATA[100:]),
        ("bytes=0-99999999", 206, DATA),
        (f"bytes={len(DATA)}-", 416, None),
        ("bytes=x-y", 200, DATA),
    ],
)
def test_ranges_of_a_file(alice: Client, asked: str, status: int, shown: bytes | None) -> None:
    alice.post("/blobs", content=DATA)
    answer = alice.get(f"/blobs/{KEY}", headers={"range": asked})
    assert answer.status_code == status
    assert shown is None or answer.content == shown


def test_bytes_that_are_not_what_was_announced_are_refused(alice: Client) -> None:
    answer = alice.post("/blobs", content=DATA, headers={"x-content-sha256": OTHER})
    assert answer.status_code == 400
    assert KEY in answer.text
    assert alice.get(f"/blobs/{KEY}").status_code == 404
    assert alice.post("/blobs", content=DATA, headers={"x-content-sha256": "abc"}).status_code == 400


def test_what_is_too_large_is_refused_before_it_is_sent_or_while_it_is(desk: Desk, alice: Client) -> None:
    read: list[int] = []

    def endless() -> Iterator[bytes]:
        for n in range(10_000):
            read.append(n)
            yield b"x" * 65536

    declared = alice.post("/blobs", content=b"", headers={"content-length": str(2 << 20)})
    assert declared.status_code == 413
    assert "blob.max-size" in declared.text
    assert alice.post("/blobs", content=b"x", headers={"content-length": "9" * 40}).status_code == 413
    assert alice.post("/blobs", content=endless()).status_code == 413
    assert alice.get("/blobs").json() == {"blobs": []}
    assert not list((desk.context.directory / "blobs" / "uploads").iterdir())


def test_an_owner_has_a_quota(alice: Client) -> None:
    for n in range(4):
        assert alice.post("/blobs", content=bytes([n]) * (1 << 20)).status_code == 201
    answer = alice.post("/blobs", content=b"z" * (1 << 20))
    assert answer.status_code == 413
    assert "one owner" in answer.text


def test_files_of_others_are_absent(desk: Desk, alice: Client) -> None:
    alice.post("/blobs", content=DATA)
    bob = desk.client(BOB)
    assert bob.get("/blobs").json() == {"blobs": []}
    for path in (f"/blobs/{KEY}", f"/blobs/{KEY}/info"):
        assert bob.get(path).status_code == 404
        assert bob.get(path).text == bob.get(path.replace(KEY, OTHER)).text.replace(OTHER, KEY)
    assert bob.delete(f"/blobs/{KEY}").status_code == 404
    assert alice.get(f"/blobs/{KEY}").content == DATA
    for everybody in (ADMIN, ALL_EYES):
        assert desk.client(everybody).get(f"/blobs/{KEY}").content == DATA
        assert len(desk.client(everybody).get("/blobs").json()["blobs"]) == 1


def test_viewers_read_and_change_nothing(desk: Desk, alice: Client) -> None:
    alice.post("/blobs", content=DATA)
    eye = desk.client(EYE)
    assert eye.get(f"/blobs/{KEY}").content == DATA
    assert eye.post("/blobs", content=DATA).status_code == 403
    assert eye.delete(f"/blobs/{KEY}").status_code == 403


def test_a_file_can_be_removed_when_no_job_needs_it(desk: Desk, alice: Client) -> None:
    alice.post("/blobs", content=DATA)
    script = {"kind": "script", "name": "main", "file": f"blob:{KEY}/main.py"}
    job = JobGraph.model_validate({"name": "s", "vertices": [script]})
    put(desk, ONE, job=job)
    refused = alice.delete(f"/blobs/{KEY}")
    assert refused.status_code == 409
    assert ONE in refused.text
    put(desk, ONE, job=job, status=JobStatus.FINISHED)
    assert (alice.delete(f"/blobs/{KEY}").status_code, alice.delete(f"/blobs/{KEY}").status_code) == (200, 404)
    assert alice.get(f"/blobs/{KEY}").status_code == 404


def test_a_file_that_another_uploaded_too_stays_with_them(desk: Desk, alice: Client) -> None:
    for client in (alice, desk.client(BOB)):
        client.post("/blobs", content=DATA)
    script = {"kind": "script", "name": "main", "file": f"blob:{KEY}/main.py"}
    put(desk, ONE, owner="bob", job=JobGraph.model_validate({"name": "s", "vertices": [script]}))
    assert alice.delete(f"/blobs/{KEY}").status_code == 200  # bob's job is none of hers, and has bob's file
    assert desk.client(BOB).get(f"/blobs/{KEY}").content == DATA
    assert desk.client(ADMIN).delete(f"/blobs/{KEY}").status_code == 409


def test_keys_are_digests_and_nothing_else(alice: Client) -> None:
    for key in ("abc", "%2e%2e", "..%2f..%2fetc%2fpasswd", "g" * 64, f"{KEY}0", f"{KEY}%00", "uploads"):
        for path in (f"/blobs/{key}", f"/blobs/{key}/info"):
            assert alice.get(path).status_code in (400, 404), path
        assert alice.delete(f"/blobs/{key}").status_code in (400, 404), key


def test_bytes_that_the_disk_changed_are_not_given_out(desk: Desk, alice: Client) -> None:
    alice.post("/blobs", content=DATA)
    stored = desk.context.directory / "blobs" / KEY[:2] / KEY
    stored.chmod(0o600)
    stored.write_bytes(DATA[:-1] + b"!")
    assert alice.get(f"/blobs/{KEY}", headers={"range": "bytes=0-3"}).status_code == 404
