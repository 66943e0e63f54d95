"""Where a stream may keep its progress when it was not an admin who submitted it (S36)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.rest.desk import ADMIN, Client, Desk
from tests.rest.native_people import ALICE, BOB, ONE, plain

from firesteel.sandbox.owners import owner_directory

NO_JOB = "f" * 32


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def state(desk: Desk) -> dict[str, str]:
    """The directories of the cluster; and ONE, a stream of alice's."""
    assert desk.client(ALICE).post("/jobs", json={"jobId": ONE, "graph": stream()}).status_code == 202
    configuration = desk.context.configuration
    return {
        "checkpoints": configuration.state.checkpoints_dir,
        "savepoints": configuration.state.savepoints_dir,
        "data": str(configuration.data.dir),
        "one": ONE,
        "alice": owner_directory("alice"),
        "none": NO_JOB,
    }


def stream(**options: str) -> dict[str, Any]:
    graph = plain(mode="streaming")
    graph["vertices"][0]["schema"] = "amount INT"
    graph["vertices"][2]["options"] = options
    return graph


def errors(client: Client, place: str, option: str = "checkpointLocation") -> list[str]:
    answer = client.post("/jobs", json={"graph": stream(**{option: place})})
    assert answer.status_code in (202, 400), answer.text
    return answer.json()["errors"] if answer.status_code == 400 else []


@pytest.mark.parametrize("option", ["checkpointLocation", "CHECKPOINTLOCATION"])
@pytest.mark.parametrize("place", ["progress", "./progress", "file:progress"])
def test_relative_checkpoint_is_refused_and_the_field_is_named(desk: Desk, option: str, place: str) -> None:
    for client in (desk.client(ALICE), desk.client(ADMIN)):
        [error] = errors(client, place, option)
        assert "vertex 'out', field 'options." in error


@pytest.mark.parametrize(
    "place",
    [
        "{checkpoints}/{alice}/{one}/out",
        "{checkpoints}/{alice}/{one}",
        "file:{checkpoints}/{alice}/{one}/out",
        "file://{checkpoints}/{alice}/{one}/out",
        "FILE:{checkpoints}/{alice}/{one}/out",
        "//{checkpoints}//{one}/out",
        "{checkpoints}/../checkpoints/{one}/out",
        "/proc/self/root{checkpoints}/{alice}/{one}/out",
        "{checkpoints}/{none}/out",
        "{checkpoints}/{one}/out",
        "{checkpoints}/{alice}/{none}/out",
        "{checkpoints}/{alice}",
        "{checkpoints}/mine",
        "{checkpoints}",
        "{savepoints}/x",
        "{data}/clusters/default/jobs/{one}",
        "{data}",
        "/",
    ],
)
def test_checkpoint_among_the_files_of_the_cluster_is_refused(desk: Desk, state: dict[str, str], place: str) -> None:
    [error] = errors(desk.client(BOB), place.format(**state))
    assert "vertex 'out', field 'options.checkpointLocation'" in error
    assert ONE not in error


def test_link_to_the_checkpoint_of_somebody_else_is_refused(desk: Desk, state: dict[str, str], tmp_path: Path) -> None:
    Path(state["checkpoints"], state["alice"], ONE).mkdir(parents=True)
    (tmp_path / "mine").symlink_to(Path(state["checkpoints"], state["alice"], ONE))
    assert errors(desk.client(BOB), f"{tmp_path}/mine/out")


def test_checkpoint_of_a_job_of_ones_own_is_taken(desk: Desk, state: dict[str, str]) -> None:
    assert errors(desk.client(ALICE), f"{state['checkpoints']}/{state['alice']}/{ONE}/out") == []


def test_a_job_of_ones_own_does_not_open_the_directory_of_somebody_else(desk: Desk, state: dict[str, str]) -> None:
    assert errors(desk.client(ALICE), f"{state['checkpoints']}/{owner_directory('bob')}/{ONE}/out")
    assert errors(desk.client(ALICE), f"{state['checkpoints']}/{ONE}/out")


@pytest.mark.parametrize("place", ["/elsewhere/progress", "s3a://bucket/progress", "file:/elsewhere/progress"])
def test_checkpoint_in_a_place_of_ones_own_is_taken(desk: Desk, state: dict[str, str], place: str) -> None:
    assert errors(desk.client(BOB), place) == []


def test_admin_may_name_any_checkpoint(desk: Desk, state: dict[str, str]) -> None:
    assert errors(desk.client(ADMIN), f"{state['checkpoints']}/{state['alice']}/{ONE}/out") == []
