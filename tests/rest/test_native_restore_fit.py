"""A graph that starts from a savepoint is accepted when the state fits it (I31)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.rest.desk import ADMIN, Client, Desk
from tests.rest.native_people import ALICE, BOB, ONE
from tests.savepoint.saved_counts import OTHER, counts, savepoint

from firesteel.sandbox.owners import below
from firesteel.savepoint.manifest import MANIFEST


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "desk")


@pytest.fixture
def alice(desk: Desk) -> Client:
    client = desk.client(ALICE)
    assert client.post("/jobs", json={"jobId": ONE, "graph": counts()}).status_code == 202
    return client


@pytest.fixture
def path(desk: Desk) -> str:
    return savepoint(Path(below(desk.context.configuration.state.savepoints_dir, "alice")) / "savepoint-1", ONE)


def test_graph_that_fits_is_accepted(alice: Client, path: str) -> None:
    assert alice.post("/jobs", json={"graph": counts(path=path)}).status_code == 202


def test_changed_grouping_key_is_refused_in_one_sentence_that_names_vertex_and_fix(
    desk: Desk, alice: Client, path: str
) -> None:
    for client in (alice, desk.client(ADMIN)):
        answer = client.post("/jobs", json={"graph": counts(OTHER, path=path)})
        assert answer.status_code == 400
        [error] = answer.json()["errors"]
        assert "vertex 'counts'" in error
        assert "it goes by window(ts, '1 minute'), user" in error
        assert "allow_incompatible_state" in error
    assert len(desk.gateway.submitted) == 1


def test_state_that_does_not_fit_is_taken_when_the_graph_says_so_and_that_is_written_down(
    alice: Client, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        graph = counts(OTHER, path=path, allow_incompatible_state=True)
        assert alice.post("/jobs", json={"graph": graph}).status_code == 202
    assert "without a check that the state fits" in caplog.text


def test_what_the_state_is_by_is_not_told_to_others(desk: Desk, alice: Client, path: str) -> None:
    answer = desk.client(BOB).post("/jobs", json={"graph": counts(OTHER, path=path)})
    assert answer.status_code == 400
    assert "goes by" not in answer.text


@pytest.mark.parametrize("allow", [False, True])
@pytest.mark.parametrize("made", ["nothing", "an empty directory", "other files", "half of a savepoint"])
def test_path_without_a_savepoint_is_refused_before_there_is_a_job(
    desk: Desk, tmp_path: Path, made: str, allow: bool
) -> None:
    place = tmp_path / "nowhere"
    if made != "nothing":
        place.mkdir()
    if made == "other files":
        (place / "part-0.json").write_text("{}")
    if made == "half of a savepoint":
        savepoint(place, ONE)
        (place / MANIFEST).unlink()
    graph = counts(OTHER, path=str(place), allow_incompatible_state=allow)
    answer = desk.client(ADMIN).post("/jobs", json={"graph": graph})
    assert answer.status_code == 400
    [error] = answer.json()["errors"]
    assert f"savepoint at {place}" in error or f"savepoint {place} is not complete" in error
    assert "give the directory of a savepoint" in error
    assert desk.gateway.submitted == []


def test_what_cannot_be_read_here_is_left_to_the_driver(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "odd" / MANIFEST).mkdir(parents=True)  # no file, so it cannot be read
    answer = desk.client(ADMIN).post("/jobs", json={"graph": counts(OTHER, path=str(tmp_path / "odd"))})
    assert answer.status_code == 202
