"""Workers at the door: each speaks for itself and for nothing else, until it is revoked (S47)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send
from tests.rest_security.rig import OneToken, ask, errors_of, http_scope, make_door, never, rest, security

from firesteel.config.sections import GRANTED_ROLES, Authentication, Role
from firesteel.errors import InvalidConfigError, StoreUnavailableError
from firesteel.ha.protocols import Epoch
from firesteel.rest.node_identity import MachineBearers, NodeIdentity
from firesteel.rest.security.audit import AuditLog
from firesteel.rest.security.door import PRINCIPAL, Door
from firesteel.rest.security.identities import Identities
from firesteel.rest.security.mtls import certificate_principals
from firesteel.rest.security.principals import (
    AuthenticationUnavailableError,
    Principal,
    at_least,
    may_read,
    may_scrape,
    may_write,
)
from firesteel.rest.security.reach import out_of_reach
from firesteel.rest.security.tokens import TokenFile
from firesteel.rest.security.worker_credentials import (
    WorkerCredentials,
    join_bearer,
    joining_token,
    worker_bearer,
    worker_principal,
)
from firesteel.stores.workers import JoinToken, WorkerRecord, secret_digest

SECRET, OTHER_SECRET = "ab" * 32, "cd" * 32
ONE, TWO, EMBEDDED = "w0000000000000001", "w0000000000000002", "w0000000000000003"
TOKEN = "1234567890abcdef"
NOW = 1_700_000_000.0
BLOB = f"/blobs/{'0' * 64}"


class Records:
    """A store of workers that counts how often it is read."""

    def __init__(self) -> None:
        self.workers = {
            ONE: WorkerRecord(ONE, "one", secret_digest(SECRET)),
            TWO: WorkerRecord(TWO, "two", secret_digest(OTHER_SECRET)),
            EMBEDDED: WorkerRecord(EMBEDDED, "three"),
        }
        self.tokens = {TOKEN: JoinToken(TOKEN, secret_digest(SECRET), NOW + 60)}
        self.read = 0
        self.away = False

    async def list(self) -> dict[str, WorkerRecord]:
        self._reading()
        return dict(self.workers)

    async def token(self, token_id: str) -> JoinToken | None:
        self._reading()
        return self.tokens.get(token_id)

    def revoke(self, worker: str) -> None:
        self.workers[worker] = dataclasses.replace(self.workers[worker], revoked=True)

    def _reading(self) -> None:
        self.read += 1
        if self.away:
            raise StoreUnavailableError("the store is away")


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


class Keys:
    def own(self, epoch: Epoch) -> Sequence[bytes]:
        return [b"k" * 32] if epoch == Epoch(1) else []

    async def of(self, epoch: Epoch) -> bytes | None:
        return b"k" * 32

    def forget(self, epoch: Epoch) -> None:
        pass


class Cluster:
    """What a door of it knows."""

    def __init__(self, **identities: Any) -> None:
        self.records = Records()
        self.clock = Clock()
        self.nodes = NodeIdentity(Keys())
        self.credentials = WorkerCredentials(self.records, now=lambda: NOW, clock=self.clock)
        self.identities = Identities(
            **{"tokens": OneToken(), "workers": MachineBearers(self.nodes, self.credentials), **identities}
        )

    def door(self, app: Any = None, **given: Any) -> Door:
        return make_door(app or served(), identities=self.identities, **given)

    def claim(self, principal: Principal, target: str) -> str:
        token = asyncio.run(self.nodes.token(principal, Epoch(1), target))
        assert token is not None
        return token


async def _who(request: Request) -> Response:
    principal: Principal = request.scope[PRINCIPAL]
    return JSONResponse([principal.name, principal.role.value])


def served() -> Starlette:
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return Starlette(routes=[Route("/{path:path}", _who, methods=methods)])


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}", "content-type": "application/json"}


def status(door: Door, method: str, path: str, token: str) -> int:
    return ask(door, method, path, headers=bearer(token)).status_code


MINE = worker_bearer(ONE, SECRET)
JOINING = join_bearer(TOKEN, SECRET)


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"/workers/{ONE}/registration"),
        ("GET", f"/workers/{ONE}/commands"),
        ("POST", f"/workers/{ONE}/reports"),
        ("GET", BLOB),
    ],
)
def test_a_worker_speaks_for_itself(method: str, path: str, prefix: str) -> None:
    answer = ask(Cluster().door(), method, prefix + path, headers=bearer(MINE))
    assert answer.json() == [ONE, "worker"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"/workers/{TWO}/registration"),
        ("GET", f"/workers/{TWO}/commands"),
        ("POST", f"/workers/{TWO}/reports"),
        ("POST", "/workers/one/reports"),
        ("POST", f"/workers/{ONE}/drain"),
        ("POST", f"/workers/{ONE}/undrain"),
        ("POST", f"/workers/{ONE}/lost"),
        ("POST", f"/v1/workers/{ONE}/lost/"),
        ("POST", f"/workers/{TWO}/lost"),
        ("DELETE", f"/workers/{ONE}"),
        ("GET", f"/workers/{ONE}"),
        ("GET", f"/workers/{ONE}/"),
        ("GET", "/workers"),
        ("POST", "/workers/tokens"),
        ("POST", "/workers/join"),
        ("GET", "/whoami"),
        ("GET", "/jobs"),
        ("GET", "/v1/jobs/overview"),
        ("POST", "/jobs"),
        ("GET", "/blobs"),
        ("GET", f"{BLOB}/info"),
        ("DELETE", BLOB),
        ("POST", "/blobs"),
        ("DELETE", "/cluster"),
        ("GET", "/metrics"),
        ("GET", "/"),
        ("GET", f"//workers/{ONE}/commands"),
        ("GET", f"/v1/v1/workers/{ONE}/commands"),
        ("GET", f"/flink/workers/{ONE}/commands"),
        ("GET", f"/jobs/workers/{ONE}/commands"),
    ],
)
def test_and_for_nothing_else(method: str, path: str) -> None:
    """S47, S20"""
    assert status(Cluster().door(), method, path, MINE) == 403


def test_dots_lead_nowhere_else() -> None:
    door = Cluster().door()
    for path in (f"/workers/{ONE}/../{TWO}/commands", f"/workers/{ONE}/%2e%2e/{TWO}/commands"):
        assert status(door, "GET", path, MINE) in (400, 403)


@pytest.mark.parametrize("role", [*GRANTED_ROLES])
def test_nobody_else_speaks_for_a_worker(role: Role) -> None:
    """S47: not even an admin, whose token may be anywhere."""
    principal = Principal("ann", role, "ann")
    door = Cluster(tokens=OneToken(principal)).door()
    for method, path in (
        ("POST", f"/workers/{ONE}/registration"),
        ("GET", f"/workers/{ONE}/commands"),
        ("POST", f"/v1/workers/{ONE}/reports/"),
        ("POST", f"/workers/{ONE}/whatever/comes/next"),
        ("POST", "/workers/join"),
    ):
        assert ask(door, method, path).status_code == 403, path
    for method, path in (("GET", "/workers"), ("POST", "/workers/one/drain"), ("POST", "/workers/tokens")):
        assert ask(door, method, path).status_code == (403 if role is Role.SCRAPER else 200), path


@pytest.mark.parametrize(
    "token",
    [
        worker_bearer(ONE, OTHER_SECRET),
        worker_bearer(TWO, SECRET),
        worker_bearer("w00000000000000ff", SECRET),
        worker_bearer(EMBEDDED, SECRET),
        worker_bearer(ONE, ""),
        worker_bearer(ONE, secret_digest(SECRET)),
        worker_bearer(ONE, SECRET.upper()),
        f"{MINE}.x",
        join_bearer(TOKEN, OTHER_SECRET),
        join_bearer("0" * 16, SECRET),
        worker_bearer(TOKEN, SECRET),
        "fst_worker.",
        "fst_join.",
    ],
)
def test_a_credential_that_is_not_right_is_nobodys(token: str) -> None:
    """S47, S21"""
    for door in (Cluster().door(), Cluster(anonymous=Principal("anonymous", Role.ADMIN, "anonymous")).door()):
        answer = ask(door, "POST", f"/workers/{ONE}/reports", headers=bearer(token))
        assert answer.status_code == 401
        assert "firesteel worker token" in errors_of(answer)[0]


def test_a_join_token_is_for_joining() -> None:
    """S47"""
    door = Cluster().door()
    answer = ask(door, "POST", "/v1/workers/join", headers=bearer(JOINING))
    assert answer.json() == [f"join-{TOKEN}", "joiner"]
    assert joining_token(Principal(f"join-{TOKEN}", Role.JOINER, "x")) == TOKEN
    for method, path in (
        ("GET", "/workers/join"),
        ("POST", "/workers/tokens"),
        ("GET", "/workers"),
        ("GET", "/whoami"),
        ("GET", "/jobs"),
        ("POST", "/jobs"),
        ("GET", BLOB),
        ("DELETE", "/cluster"),
        ("POST", f"/workers/{ONE}/reports"),
        ("POST", f"/workers/join-{TOKEN}/reports"),
    ):
        assert status(door, method, path, JOINING) == 403, path


def test_an_expired_join_token_is_nobodys() -> None:
    """S47"""
    cluster = Cluster()
    cluster.records.tokens[TOKEN] = dataclasses.replace(cluster.records.tokens[TOKEN], expires_at=NOW)
    assert status(cluster.door(), "POST", "/workers/join", JOINING) == 401


def test_without_authentication_workers_are_known_all_the_same() -> None:
    cluster = Cluster(tokens=None, anonymous=Principal("anonymous", Role.VIEWER, "anonymous"))
    door = cluster.door(security=security(authentication=(Authentication.NONE,)))
    assert ask(door, "POST", f"/workers/{ONE}/reports", headers=bearer(MINE)).json() == [ONE, "worker"]
    assert status(door, "GET", "/jobs", MINE) == 403
    assert ask(door, "GET", "/jobs", anonymous=True).json() == ["anonymous", "viewer"]


# -- nodes that speak for their own worker -------------------------------------------------------------------------------


def test_a_node_vouches_for_a_worker_and_the_door_keeps_it_to_itself() -> None:
    cluster = Cluster(tokens=None)
    door = cluster.door()
    path = f"/workers/{EMBEDDED}/reports"
    claim = cluster.claim(worker_principal(EMBEDDED), f"POST {path}")
    assert ask(door, "POST", path, headers=bearer(claim)).json() == [EMBEDDED, "worker"]
    assert status(door, "POST", f"/workers/{ONE}/reports", claim) == 403
    assert status(door, "GET", "/jobs", claim) == 403
    assert status(door, "POST", path, f"{claim}x") == 401


def test_a_node_vouches_in_vain_for_a_worker_that_was_revoked() -> None:
    """S47"""
    cluster = Cluster(anonymous=Principal("anonymous", Role.VIEWER, "anonymous"))
    cluster.records.revoke(EMBEDDED)
    path = f"/workers/{EMBEDDED}/reports"
    claim = cluster.claim(worker_principal(EMBEDDED), f"POST {path}")
    assert status(cluster.door(), "POST", path, claim) == 403


def test_claims_about_people_are_read_as_before() -> None:
    principal = Principal("ann", Role.OPERATOR, "ann")
    cluster = Cluster()

    class Claims:
        async def authenticate(self, token: str) -> Principal | None:
            claim = await cluster.nodes.read(token)
            return claim.principal if claim else None

    cluster.identities = dataclasses.replace(cluster.identities, tokens=Claims())
    claim = cluster.claim(principal, "GET /jobs")
    assert ask(cluster.door(), "GET", "/jobs", headers=bearer(claim)).json() == ["ann", "operator"]


# -- revoking ------------------------------------------------------------------------------------------------------------


def test_a_revoked_credential_is_nobodys_within_a_second_and_until_then_the_store_is_left_alone() -> None:
    """S47, I29"""
    cluster = Cluster()
    door = cluster.door()
    for _ in range(20):
        assert status(door, "POST", f"/workers/{ONE}/reports", MINE) == 200
    assert cluster.records.read == 1
    cluster.records.revoke(ONE)
    cluster.clock.at += 1.0
    assert status(door, "POST", f"/workers/{ONE}/reports", MINE) == 401
    assert status(door, "POST", f"/workers/{TWO}/reports", worker_bearer(TWO, OTHER_SECRET)) == 200


def test_one_that_has_just_joined_is_known_and_made_up_ids_do_not_flood_the_store() -> None:
    cluster = Cluster()
    door = cluster.door()
    new = "w00000000000000aa"
    assert status(door, "POST", f"/workers/{ONE}/reports", MINE) == 200
    cluster.clock.at += 0.2
    cluster.records.workers[new] = WorkerRecord(new, "new", secret_digest(SECRET))
    assert status(door, "POST", f"/workers/{new}/reports", worker_bearer(new, SECRET)) == 200
    before = cluster.records.read
    for number in range(200):
        asyncio.run(cluster.credentials.authenticate(worker_bearer(f"w{number + 100:016x}", SECRET)))
    assert cluster.records.read == before
    for number in range(1000):
        token = join_bearer(f"{number:016x}", SECRET)
        with contextlib.suppress(AuthenticationUnavailableError):  # too many are being tried
            assert asyncio.run(cluster.credentials.authenticate(token)) is None
    assert cluster.records.read < before + 500


def test_while_the_store_is_away_nobody_is_turned_away_for_good() -> None:
    cluster = Cluster()
    cluster.records.away = True
    door = cluster.door()
    for method, path, token in (("POST", f"/workers/{ONE}/reports", MINE), ("POST", "/workers/join", JOINING)):
        answer = ask(door, method, path, headers=bearer(token))
        assert answer.status_code == 503
        assert answer.headers["retry-after"]


@pytest.mark.parametrize("content_type", [b"application/x-ndjson", b"text/event-stream"])
def test_a_stream_of_commands_ends_when_its_worker_is_revoked(content_type: bytes) -> None:
    """S47: what comes next is not delivered any more."""
    cluster = Cluster()
    lines = 0

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal lines
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", content_type)]})
        while True:
            lines += 1
            await send({"type": "http.response.body", "body": b"{}\n", "more_body": True})
            if lines == 5:
                cluster.records.revoke(ONE)
                cluster.clock.at += 1.0
            await asyncio.sleep(0)

    said: list[Message] = []

    async def send(message: Message) -> None:
        said.append(message)

    door = cluster.door(endless)
    assert door.recheck_worker_seconds <= 2.0
    door.recheck_worker_seconds = 0.0
    scope = http_scope(f"/workers/{ONE}/commands", headers={"authorization": f"Bearer {MINE}"})
    asyncio.run(asyncio.wait_for(door(scope, never, send), 20))
    assert lines == 6
    assert len([m for m in said if m.get("body")]) == 5
    assert said[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


# -- around it -----------------------------------------------------------------------------------------------------------


def test_reports_are_not_counted_like_requests_of_people_but_have_a_bound() -> None:
    """S26"""
    door = Cluster().door(rest=rest(rate_limit=1, rate_burst=2))
    assert [status(door, "POST", f"/workers/{ONE}/reports", MINE) for _ in range(20)] == [200] * 20
    assert [status(door, "POST", "/workers/join", JOINING) for _ in range(3)] == [200, 200, 429]


def test_the_audit_log_has_registrations_joins_and_refusals_and_no_heartbeats(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with AuditLog(path) as log:
        door = Cluster().door(audit=log)
        for method, target, token in (
            ("POST", f"/workers/{ONE}/reports", MINE),
            ("POST", f"/workers/{ONE}/registration", MINE),
            ("POST", f"/workers/{TWO}/reports", MINE),
            ("POST", "/workers/join", JOINING),
            ("GET", "/jobs", JOINING),
            ("POST", f"/workers/{TWO}/reports", worker_bearer(TWO, SECRET)),
        ):
            ask(door, method, target, headers=bearer(token))
    text = path.read_text()
    written = [json.loads(line) for line in text.splitlines()]
    assert [(r["path"], r["outcome"], r.get("principal"), r.get("role")) for r in written] == [
        (f"/workers/{ONE}/registration", "done", ONE, "worker"),
        (f"/workers/{TWO}/reports", "refused", ONE, "worker"),
        ("/workers/join", "done", f"join-{TOKEN}", "joiner"),
        ("/jobs", "refused", f"join-{TOKEN}", "joiner"),
        (f"/workers/{TWO}/reports", "refused", None, None),
    ]
    assert SECRET not in text


def test_behind_the_door_machines_are_less_than_viewers() -> None:
    for role in (Role.WORKER, Role.JOINER):
        for principal in (Principal("w", role, "alice"), Principal("w", role, "*")):
            assert not at_least(principal, Role.VIEWER)
            assert not may_read(principal, "alice")
            assert not may_write(principal, "alice")
        assert not may_scrape(Principal("w", role, "alice"))


def test_no_person_is_given_the_role_of_a_machine(tmp_path: Path) -> None:
    """S34, S47: by no token, certificate or claim of an issuer."""
    tokens = TokenFile(tmp_path / "tokens.json")
    for role in (Role.WORKER, Role.JOINER):
        with pytest.raises(ValueError, match=role.value):
            tokens.create(ONE, role, ONE)
        with pytest.raises(InvalidConfigError):
            certificate_principals([f"{ONE}={role.value}:{ONE}"])
    assert tokens.list() == ()


def test_the_reach_of_people_is_for_routes_to_say() -> None:
    ann = Principal("ann", Role.VIEWER, "ann")
    for path in ("/", "/workers", "/workers/tokens", "/workers/one", "/workers/one/lost", "/jobs/x/y"):
        assert out_of_reach(ann, "POST", path) is None, path
