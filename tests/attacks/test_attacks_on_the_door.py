"""Nobody gets in who should not, on a real node: S1, S3, S13, S14, S15, S28, S33, S34, S35."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.attacks.attacked_node import (
    NO_JOB,
    UNLIMITED,
    AttackedNode,
    People,
    Route,
    routes,
    status_of,
    tcp_listeners,
    until,
)

from firesteel.config.sections import Role
from firesteel.rest.security.tokens import TokenFile

pytestmark = pytest.mark.xdist_group("attacks")

PUBLIC = {Route("GET", "/healthz"), Route("HEAD", "/healthz")}
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
FORGED = (
    "fst_0123456789abcdef_" + "0" * 48,
    "fst_local." + "0" * 64,
    "fst_node.eyJuYW1lIjoicm9vdCIsInJvbGUiOiJhZG1pbiIsIm93bmVyIjoiKiJ9." + "0" * 64,
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290IiwiZmlyZXN0ZWVsX3JvbGUiOiJhZG1pbiJ9.",
)


def test_all_routes_are_known_here(people: People) -> None:
    """What follows asks each of them, so none may be missing."""
    document = people.root.get("/openapi.json").json()
    shown = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    known = {(r.method, r.path) for r in routes()}
    assert len(shown) > 100
    assert shown <= known
    of_workers = {f"/workers/{{worker}}/{what}" for what in ("registration", "commands", "reports")}
    assert {path for _, path in known - shown} == {"/openapi.json", "/docs", "/healthz", *of_workers}


def test_no_route_answers_without_a_credential_or_with_a_forged_one(node: AttackedNode, people: People) -> None:
    """S1: CVE-2023-48022, CVE-2018-11770. Each route, reading or writing, bare, under /v1 and with a slash behind it."""
    before = {job["id"] for job in people.root.get("/jobs").json()["jobs"]}
    for route in routes():
        if route in PUBLIC:
            continue
        for target in (route.filled(), f"/v1{route.filled()}", f"{route.filled()}/"):
            answer = people.nobody.ask(route.method, target)
            assert answer.status == 401, (route, answer)
            assert answer.headers["www-authenticate"] == "Bearer"
    for token in FORGED:
        with node.caller(token) as forger:
            for route in routes():
                if route not in PUBLIC:
                    assert forger.ask(route.method, route.filled()).status == 401, (route, token)
    assert {job["id"] for job in people.root.get("/jobs").json()["jobs"]} == before
    assert people.nobody.get("/healthz").json() == {"status": "ok"}


@pytest.mark.parametrize(
    "path",
    [
        "/healthz/",
        "//healthz",
        "/./healthz",
        "/v1/healthz",
        "/HEALTHZ",
        "/healthz%00",
        "/healthz%20",
        "/healthz;/jobs",
        "/healthz/../jobs",
        "/healthz%2f..%2fjobs",
        "/healthz?/../jobs",
    ],
)
def test_what_only_looks_public_is_not(people: People, path: str) -> None:
    """S1, S6: one spelling is public; whatever else is answered without a credential is that page too."""
    answer = people.nobody.get(path)
    assert answer.status == 401 or answer.json() == {"status": "ok"}
    assert people.nobody.post("/healthz", {}).status == 401


def test_a_token_that_was_revoked_is_nobodys(node: AttackedNode) -> None:
    """S1"""
    token = node.new_token("for a moment", Role.ADMIN, "*")
    with node.caller(token) as caller:
        assert caller.get("/jobs").status == 200
        assert TokenFile(node.configuration.security.tokens_file).revoke(token.split("_")[1])
        until(lambda: caller.get("/jobs").status == 401)


def test_the_node_listens_to_this_machine_only(node: AttackedNode) -> None:
    """S1, S2: one door, on loopback."""
    port = int(node.address.rpartition(":")[2])
    until(lambda: port in tcp_listeners(node.pid))
    assert tcp_listeners(node.pid) == {port: "0100007F"}


# -- settings that contradict each other -------------------------------------------------------------------------------

CONTRADICTIONS = {
    "open to all": {"rest.bind-address": "0.0.0.0", "security.rest.authentication": "none"},
    "unencrypted": {"rest.bind-address": "0.0.0.0"},
    "a lock that is not built in": {"security.oidc.issuer": "https://issuer.example"},
}


@pytest.mark.slow
def test_a_node_does_not_start_with_a_door_that_is_open(tmp_path: Path) -> None:
    """S3: CVE-2018-11770, SPARK-57451. The whole process: it ends, says why, and never listened."""

    def start(number: int, options: dict[str, str]) -> subprocess.CompletedProcess[str]:
        settings = {"data.dir": str(tmp_path / str(number)), "rest.port": "0", **options}
        return subprocess.run(
            [sys.executable, "-m", "firesteel.entrypoint", *(f"-D{k}={v}" for k, v in settings.items())],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")},
        )

    with ThreadPoolExecutor(3) as pool:
        ended = list(pool.map(start, range(len(CONTRADICTIONS)), CONTRADICTIONS.values()))
    for (what, options), process in zip(CONTRADICTIONS.items(), ended, strict=True):
        assert process.returncode == 4, (what, process)
        assert any(key in process.stderr for key in options), (what, process.stderr)
        assert "Started server" not in process.stderr
        assert "Traceback" not in process.stderr
    assert not list(tmp_path.rglob("rest.json"))


# -- who asks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claim",
    [
        {"x-forwarded-user": "root"},
        {"x-remote-user": "root", "remote-user": "root"},
        {"x-forwarded-for": "127.0.0.1", "x-real-ip": "127.0.0.1", "forwarded": "for=127.0.0.1"},
        {"cookie": "hadoop.auth=u=root&p=root&t=simple"},
        {"x-firesteel-principal": '{"name":"root","role":"admin","owner":"*"}'},
        {"x-ssl-client-cn": "root", "x-client-cert": "root"},
        {"user-agent": "Flink/2.3.0"},
    ],
)
def test_identity_comes_from_the_credential_alone(people: People, claim: dict[str, str]) -> None:
    """S13: CVE-2022-33891"""
    assert people.nobody.get("/whoami", claim).status == 401
    assert people.bob.get("/whoami", claim).json()["owner"] == "bob"
    for query in ("doAs=root", "user.name=root", "proxyUser=root", "owner=alice"):
        assert people.bob.get(f"/whoami?{query}", claim).json()["owner"] == "bob"


def test_a_body_does_not_say_whose_job_it_is(people: People) -> None:
    """S13, S20"""
    graph = {
        "name": "x",
        "vertices": [{"kind": "source", "name": "a", "format": "csv", "path": "/x", "schema": "i INT"}],
    }
    for field in ("owner", "principal", "proxyUser", "user"):
        refused = people.bob.post("/jobs", {"graph": graph, field: "alice"})
        assert refused.status == 400
        assert field in refused.errors[0]
        assert people.bob.post("/jobs", {"graph": {**graph, field: "alice"}}).status == 400


def test_pages_and_rebound_names_are_refused_even_with_a_credential(node: AttackedNode, people: People) -> None:
    """S14: CVE-2025-62593"""
    port = node.address.rpartition(":")[2]
    for host, status in (("evil.example", 421), (f"evil.example:{port}", 421), ("localhost.evil.example", 421)):
        assert people.root.get("/jobs", {"host": host}).status == status
    assert people.root.get("/jobs", {"host": f"localhost:{port}"}).status == 200
    for origin in ("https://evil.example", "null", "http://localhost:1", "http://127.0.0.1.evil.example"):
        assert people.root.get("/jobs", {"origin": origin}).status == 403
        assert people.root.post("/jobs", {}, {"origin": origin, "user-agent": "curl/8"}).status == 403
    for site in ("cross-site", "same-site"):
        sent = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}
        assert people.root.get(f"/jobs/{NO_JOB}/yarn-cancel", sent).status == 403
    preflight = {"origin": "https://evil.example", "access-control-request-method": "DELETE"}
    answer = people.nobody.ask("OPTIONS", "/jobs", headers=preflight)
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_token_in_an_address_is_refused_and_not_written_down(node: AttackedNode, people: People) -> None:
    """S28"""
    token = str(people.root.token)
    for query in (f"token={token}", f"access_token={token}", f"x={token}", f"{token}", f"x={node.token}"):
        assert people.nobody.get(f"/jobs?{query}").status in (400, 401)
        refused = people.root.get(f"/jobs?{query}")
        assert refused.status == 400
        assert token not in refused.text
        assert node.token not in refused.text
    assert token not in node.log_text()
    assert node.token not in node.log_text()


# -- answers -----------------------------------------------------------------------------------------------------------


def test_every_answer_has_the_headers(people: People) -> None:
    """S35: LIVY-785, LIVY-974; and S15: no policy lets a script run that stands in a page."""
    for caller in (people.root, people.nobody):
        for route in routes():
            if route.streams or route.path == "/cluster" or (route.changes and caller is people.root):
                continue
            answer = caller.ask(route.method, route.filled())
            for name, value in HEADERS.items():
                assert answer.headers.get(name) == value, (route, name)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert "server" not in answer.headers
            assert answer.headers["x-request-id"]


def test_what_is_no_request_is_refused_in_the_same_form_and_not_worth_a_line_each(node: AttackedNode) -> None:
    """S24, S35: strangers could fill the disk with a log."""
    before = node.log.stat().st_size
    for nonsense in (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 100, b"GET\r\n\r\n"):
        raw = node.raw(nonsense)
        assert status_of(raw) == 400
        assert b"application/json" in raw
        assert b"x-content-type-options: nosniff" in raw
        assert raw.endswith(b'{"errors":["This is not an HTTP request."]}')
    assert node.log.stat().st_size == before


def test_errors_tell_no_stack_and_no_place_on_this_machine(node: AttackedNode, people: People) -> None:
    """S35"""
    home = Path(sys.prefix).parent
    for route in routes():
        if route.streams or route.path == "/cluster":
            continue
        answer = people.bob.ask(route.method, route.filled(), b"\xff{" if route.changes else None)
        if answer.status >= 400:
            assert answer.errors
            for text in ("Traceback", 'File "', str(home), str(node.directory), "pydantic", "orjson", "starlette"):
                assert text not in answer.text, (route, answer)


def test_debug_surfaces_are_off_and_for_admins(people: People) -> None:
    """S33: CVE-2020-1960, CVE-2023-6019"""
    for path in ("/jobmanager/thread-dump", "/taskmanagers/engine/thread-dump"):
        for caller in (people.alice, people.watcher):
            assert caller.get(path).errors[0].startswith("alice")
        assert "security.rest.debug-endpoints" in people.root.get(path).errors[0]
    for path in ("/jobmanager/profiler", "/debug", "/debug/pprof", "/jolokia", "/actuator", "/console"):
        assert people.root.get(path).status == 404
    for caller in (people.alice, people.bob):  # there is something of every owner in it (S19)
        assert caller.get("/metrics").status == 403


# -- authentication: none ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_authentication_there_is_no_role(tmp_path: Path) -> None:
    """S34: whoever comes is a viewer of nothing; S14: and a page of elsewhere is refused all the same."""
    overrides = {"security.rest.authentication": "none", "engine.master": "sc://localhost:9", **UNLIMITED}
    with AttackedNode(tmp_path / "state", overrides) as node, node.caller(None) as anybody:
        told = {"name": "anonymous", "role": "viewer", "owner": "anonymous", "serves": "cluster"}
        assert anybody.get("/whoami").json() == told
        body = b'{"graph": {"name": "x", "vertices": []}}'
        for route in routes():
            if route.changes:
                answer = anybody.ask(route.method, route.filled(), body, {"content-type": "application/json"})
                assert answer.status >= 300, (route, answer)
                assert answer.errors
        for path in ("/jobmanager/log", "/jobmanager/logs", "/jobmanager/thread-dump"):
            assert anybody.get(path).status == 403
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            assert anybody.post("/jobs", body, {"content-type": kind}).status == 415
        assert anybody.post("/jobs", body, {"origin": "https://evil.example"}).status == 403
        assert "Traceback" not in node.log_text()
