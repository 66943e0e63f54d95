"""The workers, for people: who sees and changes what; how a host joins."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.rest.desk import ADMIN, Desk
from tests.rest.fake_fleet import ONE, THREE, TWO, FakeFleet, view
from tests.rest.native_people import ALICE, EYE

from firesteel.config.sections import Role
from firesteel.fleet.view import Standing, WorkerView
from firesteel.rest.security.principals import Principal
from firesteel.rest.security.worker_credentials import worker_principal
from firesteel.stores.workers import secret_digest

SECRET = "ab" * 32


def at(tmp_path: Path, *workers: WorkerView) -> tuple[Desk, FakeFleet]:
    desk, fleet = Desk(tmp_path), FakeFleet(*workers)
    desk.gateway.fleet = fleet
    return desk, fleet


def test_admins_see_all_and_others_no_addresses(tmp_path: Path) -> None:
    desk, _ = at(tmp_path, view(TWO, "beta", standing=Standing.SILENT, gone_at=1061.0), view())
    one, two = desk.client(ADMIN).get("/v1/workers").json()["workers"]
    assert one == {
        "id": ONE,
        "name": "alpha",
        "standing": "CONNECTED",
        "draining": False,
        "revoked": False,
        "embedded": False,
        "cores": 8,
        "memory": "16g",
        "labels": {"zone": "a"},
        "sandbox": "landlock",
        "policy": "stop",
        "max_engines": 2,
        "engines": 1,
        "attempts": 3,
        "since": 1000500,
        "last_heard": 1001000,
        "gone_at": None,
        "host": "alpha.internal",
        "address": "10.0.0.7",
        "incarnation": "beef",
    }
    assert (two["standing"], two["gone_at"]) == ("SILENT", 1061000)
    for who in (ALICE, EYE):
        seen = desk.client(who).get("/workers").json()["workers"][0]
        assert seen == {**one, "host": None, "address": None, "incarnation": None}
        assert desk.client(who).get("/workers/alpha").json() == seen


def test_a_worker_is_found_by_id_and_by_the_name_of_one_that_is_there(tmp_path: Path) -> None:
    desk, _ = at(
        tmp_path,
        view(ONE, "alpha", revoked=True),
        view(TWO, "alpha"),
        view(THREE, "gamma", standing=Standing.LOST),
    )
    client = desk.client()
    assert client.get("/workers/alpha").json()["id"] == TWO
    assert client.get(f"/workers/{ONE}").json()["id"] == ONE
    assert client.get("/workers/gamma").json()["id"] == THREE
    missing = client.get("/workers/delta")
    assert (missing.status_code, "delta" in missing.text) == (404, True)
    desk, _ = at(tmp_path, view(ONE, "alpha"), view(TWO, "alpha"))
    both = desk.client().get("/workers/alpha")
    assert (both.status_code, ONE in both.text, TWO in both.text) == (409, True, True)


def test_admins_drain_lose_and_revoke(tmp_path: Path) -> None:
    desk, fleet = at(tmp_path, view(), view(TWO, "beta", standing=Standing.SILENT))
    client = desk.client()
    assert client.post("/workers/alpha/drain").json()["draining"] is True
    assert client.post(f"/v1/workers/{ONE}/undrain").json()["draining"] is False
    refused = client.post("/workers/alpha/lost")
    assert (refused.status_code, "connected" in refused.text) == (409, True)
    assert client.post("/workers/beta/lost").json()["standing"] == "LOST"
    assert client.delete("/workers/beta").json() == {}
    assert fleet.asked == [("drain", ONE), ("undrain", ONE), ("lost", TWO, "root"), ("revoke", TWO)]
    for method, path in (("POST", "/workers/x/drain"), ("POST", "/workers/x/lost"), ("DELETE", "/workers/x")):
        assert client.request(method, path).status_code == 404


MACHINES = [worker_principal(ONE), Principal("join-x", Role.JOINER, "x")]


@pytest.mark.parametrize("who", [ALICE, EYE, *MACHINES], ids=lambda p: p.name)
def test_nobody_else_changes_anything(tmp_path: Path, who: Principal) -> None:
    """S20, S47: also behind a door that has forgotten it."""
    desk, fleet = at(tmp_path, view(standing=Standing.SILENT))
    client = desk.client(who)
    for verb in ("drain", "undrain", "lost"):
        assert client.post(f"/workers/{ONE}/{verb}").status_code == 403
    assert client.delete(f"/workers/{ONE}").status_code == 403
    assert client.post("/workers/tokens", json={}).status_code == 403
    assert fleet.asked == []
    if who in MACHINES:
        assert client.get("/workers").status_code == 403
        assert client.get(f"/workers/{ONE}").status_code == 403


# -- joining ------------------------------------------------------------------------------------------------------------


def token(desk: Desk, **wish: Any) -> tuple[str, Principal]:
    made = desk.client().post("/workers/tokens", json=wish)
    assert made.status_code == 201
    token_id = made.json()["id"]
    return made.json()["token"], Principal(f"join-{token_id}", Role.JOINER, f"join-{token_id}")


def wish(worker: str = ONE, name: str = "alpha", secret: str = SECRET) -> dict[str, str]:
    return {"id": worker, "name": name, "secretSha256": secret_digest(secret), "host": "alpha.internal"}


def test_a_host_joins_once_with_a_token_and_is_expected(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    text, joiner = token(desk)
    assert text.startswith(f"fst_join.{joiner.name.removeprefix('join-')}.")
    for _ in range(2):  # the answer may have been lost
        assert desk.client(joiner).post("/v1/workers/join", json=wish()).json() == {"id": ONE, "name": "alpha"}
    [shown] = desk.client().get("/workers").json()["workers"]
    assert (shown["id"], shown["standing"], shown["host"]) == (ONE, "EXPECTED", "alpha.internal")
    another = desk.client(joiner).post("/workers/join", json=wish(TWO, "beta"))
    assert (another.status_code, "used" in another.text) == (403, True)
    _, second = token(desk)
    taken = desk.client(second).post("/workers/join", json=wish(TWO, "alpha"))
    assert (taken.status_code, "another name" in taken.text) == (409, True)


@pytest.mark.parametrize("who", [ADMIN, ALICE, worker_principal(ONE)], ids=lambda p: p.name)
def test_only_one_who_has_a_join_token_joins(tmp_path: Path, who: Principal) -> None:
    """S47: also behind a door that has forgotten it."""
    desk = Desk(tmp_path)
    assert desk.client(who).post("/workers/join", json=wish()).status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        {},
        {**wish(), "id": "w1"},
        {**wish(), "id": "../../x"},
        {**wish(), "name": ""},
        {**wish(), "name": "a b"},
        {**wish(), "name": ONE},
        {**wish(), "name": "x" * 129},
        {**wish(), "secretSha256": "ab"},
        {**wish(), "secretSha256": None},
        {**wish(), "host": 7},
        [],
        "x",
    ],
)
def test_nonsense_joins_nobody_and_uses_no_token_up(tmp_path: Path, body: Any) -> None:
    desk = Desk(tmp_path)
    _, joiner = token(desk)
    assert desk.client(joiner).post("/workers/join", json=body).status_code == 400
    assert desk.client(joiner).post("/workers/join", json=wish()).status_code == 200


@pytest.mark.parametrize(
    "body", [{"expires": 0}, {"expires": -1}, {"expires": 1e9}, {"expires": "x"}, {"name": "a b"}, []]
)
def test_tokens_that_cannot_be_are_refused(tmp_path: Path, body: Any) -> None:
    assert Desk(tmp_path).client().post("/workers/tokens", json=body).status_code == 400


def test_a_token_for_a_name(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    _, joiner = token(desk, name="beta", expires=60)
    assert desk.client(joiner).post("/workers/join", json=wish()).status_code == 403
    assert desk.client(joiner).post("/workers/join", json=wish(name="beta")).status_code == 200


def test_what_is_said_of_a_worker_is_durable(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    _, joiner = token(desk)
    desk.client(joiner).post("/workers/join", json=wish())
    client = desk.client()
    assert client.post("/workers/alpha/drain").json()["draining"] is True
    assert client.post("/workers/alpha/lost").json()["standing"] == "LOST"
    assert client.delete("/workers/alpha").status_code == 200

    [record] = asyncio.run(desk.gateway.workers.list()).values()
    assert (record.draining, record.revoked, record.lost is not None) == (True, True, True)
    assert record.lost is not None
    assert record.lost.by == "root"
