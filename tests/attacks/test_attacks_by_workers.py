"""A worker that speaks for another, and join tokens that were stolen, used or are old: S47."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.attacks.attacked_node import AttackedNode, Caller, People, routes, until

from firesteel.rest.security.worker_credentials import join_bearer, worker_bearer
from firesteel.stores.workers import new_worker_id, new_worker_secret, secret_digest

pytestmark = pytest.mark.xdist_group("attacks")


@dataclass
class Worker:
    id: str
    name: str
    secret: str
    token: str
    """With which it joined."""
    caller: Caller

    @property
    def wish(self) -> dict[str, str]:
        return {"id": self.id, "name": self.name, "secretSha256": secret_digest(self.secret), "host": "somewhere"}


def token(people: People, **wish: object) -> str:
    made = people.root.post("/workers/tokens", wish)
    assert made.status == 201, made
    return str(made.json()["token"])


def joined(node: AttackedNode, people: People) -> Worker:
    worker = Worker(
        new_worker_id(), f"host-{secrets.token_hex(4)}", new_worker_secret(), token(people), node.caller(None)
    )
    with node.caller(worker.token) as joiner:
        answer = joiner.post("/workers/join", worker.wish)
    assert answer.status == 200, answer
    worker.caller.token = worker_bearer(worker.id, worker.secret)
    return worker


@pytest.fixture(scope="module")
def one(node: AttackedNode, people: People) -> Iterator[Worker]:
    worker = joined(node, people)
    with worker.caller:
        yield worker


@pytest.fixture(scope="module")
def two(node: AttackedNode, people: People) -> Iterator[Worker]:
    worker = joined(node, people)
    with worker.caller:
        yield worker


def test_a_workers_token_opens_no_route_but_its_own(one: Worker, two: Worker) -> None:
    """S47, S20: not one of all there are, so also not whoami, jobs, submit, shutdown, or what people say of workers."""
    for route in routes():
        path = route.filled(worker=two.id)
        if route.path in ("/healthz", "/blobs/{key}") and not route.changes:
            continue
        answer = one.caller.ask(route.method, path, {} if route.changes else None)
        assert answer.status == 403, (route, answer)
    own = one.caller.post(f"/workers/{one.id}/lost")
    assert own.status == 403, own
    # Below its own path, and for a file by its digest, it is let in: what then is not there is not there.
    assert one.caller.get(f"/workers/{one.id}/nothing").status == 404
    assert one.caller.get(f"/blobs/{'0' * 64}").status == 404


def test_a_worker_does_not_report_for_another(node: AttackedNode, one: Worker, two: Worker) -> None:
    """S47, S21"""
    for path in (
        f"/workers/{two.id}/reports",
        f"/v1/workers/{two.id}/registration",
        f"/workers/{two.name}/reports",
        f"/workers/{one.id}%2f..%2f{two.id}/reports",
        f"//workers/{one.id}/reports",
    ):
        answer = one.caller.post(path, {})
        assert answer.status in (400, 403), (path, answer)
    refused = one.caller.post(f"/workers/{two.id}/reports", {})
    assert node.audited(refused.headers["x-request-id"])["principal"] == one.id


def test_a_workers_id_with_anothers_secret_is_nobody(node: AttackedNode, one: Worker, two: Worker) -> None:
    """S47"""
    for forged in (
        worker_bearer(two.id, one.secret),
        worker_bearer(one.id, new_worker_secret()),
        worker_bearer(one.id, secret_digest(one.secret)),
        worker_bearer(new_worker_id(), one.secret),
        join_bearer(one.id.removeprefix("w"), one.secret),
        one.token.replace("fst_join.", "fst_worker.w"),
    ):
        with node.caller(forged) as attacker:
            assert attacker.post(f"/workers/{one.id}/reports", {}).status == 401
            assert attacker.get("/jobs").status == 401


def test_nobody_else_speaks_for_a_worker(people: People, one: Worker) -> None:
    """S47: not even an admin."""
    for caller in (people.alice, people.watcher, people.root, people.owner):
        for path in (f"/workers/{one.id}/registration", f"/workers/{one.id}/reports", "/workers/join"):
            assert caller.post(path, {}).status == 403, path
        assert caller.get(f"/workers/{one.id}/commands").status == 403


def test_a_used_join_token_lets_nobody_else_in(node: AttackedNode, people: People, one: Worker) -> None:
    """S47: the same join may be repeated, as its answer may have been lost; another one may not."""
    thief = new_worker_id()
    with node.caller(one.token) as joiner:
        assert joiner.post("/workers/join", one.wish).status == 200
        for wish in (
            {**one.wish, "id": thief, "name": "thief"},
            {**one.wish, "id": thief},
            {**one.wish, "secretSha256": secret_digest("mine")},
        ):
            answer = joiner.post("/workers/join", wish)
            assert answer.status == 403, answer
            assert node.audited(answer.headers["x-request-id"])["outcome"] == "refused"
    assert thief not in people.root.get("/workers").text


def test_a_fresh_join_token_makes_nobody_a_worker_that_is_there(
    node: AttackedNode, people: People, one: Worker
) -> None:
    """S47: also one that was made for its name."""
    for made in (token(people), token(people, name=one.name)):
        with node.caller(made) as joiner:
            stolen = joiner.post("/workers/join", {**one.wish, "secretSha256": secret_digest("mine")})
            assert stolen.status == 409, stolen
            named = joiner.post("/workers/join", {**one.wish, "id": new_worker_id()})
            assert named.status == 409, named
    assert one.caller.get(f"/workers/{one.id}/nothing").status == 404, "it is what it was"


def test_an_expired_join_token_is_nobodys(node: AttackedNode, people: People) -> None:
    """S47"""
    with node.caller(token(people, expires=0.2)) as joiner:
        until(lambda: joiner.post("/workers/join", {}).status == 401)


def test_a_join_token_opens_nothing_else(node: AttackedNode, people: People, two: Worker) -> None:
    """S47"""
    with node.caller(token(people)) as joiner:
        for route in routes():
            if (route.method, route.path) != ("POST", "/workers/join") and route.path != "/healthz":
                answer = joiner.ask(route.method, route.filled(worker=two.id), {} if route.changes else None)
                assert answer.status == 403, (route, answer)


def test_a_revoked_worker_is_nobody_within_seconds_and_its_token_does_not_bring_it_back(
    node: AttackedNode, people: People
) -> None:
    """S47, S1"""
    worker = joined(node, people)
    with worker.caller, node.caller(worker.token) as joiner:
        assert worker.caller.get(f"/workers/{worker.id}/nothing").status == 404
        assert people.alice.ask("DELETE", f"/workers/{worker.name}").status == 403
        assert people.root.ask("DELETE", f"/workers/{worker.name}").status == 200
        until(lambda: worker.caller.get(f"/workers/{worker.id}/nothing").status == 401, timeout=10)
        assert joiner.post("/workers/join", worker.wish).status == 403


def test_secrets_of_workers_are_in_no_file_log_or_answer(node: AttackedNode, people: People, one: Worker) -> None:
    """S27, S47"""
    kept = one.token.rpartition(".")[2]
    for file in node.directory.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert one.secret.encode() not in content, file
            assert kept.encode() not in content, file
    for path in ("/workers", f"/workers/{one.id}", "/cluster/configuration"):
        text = people.root.get(path).text
        assert one.secret not in text
        assert secret_digest(one.secret) not in text
        assert kept not in text


def test_where_workers_are_is_for_admins(people: People, one: Worker) -> None:
    """S19"""
    assert people.root.get(f"/workers/{one.id}").json()["host"] is not None
    for caller in (people.alice, people.watcher):
        seen = caller.get(f"/workers/{one.id}").json()
        assert (seen["host"], seen["address"], seen["incarnation"]) == (None, None, None)
        assert "somewhere" not in caller.get("/workers").text
