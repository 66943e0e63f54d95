"""Jobs that the cluster has forgotten and the archive has not: for reading, by those whose they were (S19, S36)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rest.desk import ADMIN, Desk
from tests.rest.native_people import ALICE, BOB, ONE, put

from firesteel.errors import JobNotFoundError
from firesteel.status import JobStatus
from firesteel.types import JobID


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Job ONE of alice is in the archive, and nowhere else."""
    desk = Desk(tmp_path)
    put(desk, ONE, status=JobStatus.FINISHED)
    owner = desk.gateway.owners[JobID(ONE)]
    desk.gateway.recallable[JobID(ONE)] = owner

    def forgotten(job_id: JobID) -> str:
        raise JobNotFoundError(f"no job {job_id} is known here")

    monkeypatch.setattr(desk.gateway, "owner_of", forgotten)
    return desk


@pytest.mark.parametrize("path", ["", "/exceptions", "/lineage", "/story", "/execution-graph"])
def test_its_owner_reads_it_and_others_do_not(desk: Desk, path: str) -> None:
    assert desk.client(ALICE).get(f"/jobs/{ONE}{path}").status_code == 200
    assert desk.client(ADMIN).get(f"/jobs/{ONE}{path}").status_code == 200
    assert desk.client(BOB).get(f"/jobs/{ONE}{path}").status_code == 404


def test_nothing_can_be_done_about_it_by_what_an_archive_says(desk: Desk) -> None:
    for client in (desk.client(ALICE), desk.client(ADMIN)):
        assert client.patch(f"/jobs/{ONE}?mode=cancel").status_code == 404
        assert client.post(f"/jobs/{ONE}/resume", json={}).status_code == 404
        assert client.post(f"/jobs/{ONE}/savepoints", json={}).status_code == 404
    assert desk.gateway.asked == []
