"""Who gets through the door, and as whom: S1, S13, S14, S28, S34."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote

import pytest
from starlette.types import Message, Receive, Scope, Send
from tests.rest_security.rig import (
    BEARER,
    JOB,
    OneToken,
    ask,
    errors_of,
    http_scope,
    make_door,
    never,
    open_door,
    rest,
    security,
)

from firesteel.config.sections import Authentication, Role
from firesteel.errors import ForbiddenError
from firesteel.rest.security.door import Door
from firesteel.rest.security.identities import Identities
from firesteel.rest.security.mtls import PEER_CERTIFICATE
from firesteel.rest.security.principals import AuthenticationUnavailableError, Principal

ALICE = {"name": "alice's laptop", "role": "operator", "owner": "alice"}


class Untouched:
    """An app that must not be reached."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("the app was reached")


PATHS = [
    "/",
    "/jobs",
    f"/jobs/{JOB}",
    "/v1/jobs",
    "/config",
    "/no/such/path",
    "/healthz/",
    "/healthz/x",
    "//healthz",
    "/who",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_nothing_answers_without_a_credential(method: str, path: str) -> None:
    """S1: every route, whether it is there or not."""
    answer = ask(make_door(Untouched()), method, path, anonymous=True)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    if method != "HEAD":
        assert "firesteel cluster token create" in errors_of(answer)[0]


@pytest.mark.parametrize(
    "credential",
    [
        "Bearer fst_0123456789abcdef_wrong",
        f"Bearer {OneToken.GOOD}x",
        "Bearer",
        "Bearer ",
        "Bearer a b",
        f"Basic {OneToken.GOOD}",
        f"Token {OneToken.GOOD}",
        OneToken.GOOD,
        f'Bearer "{OneToken.GOOD}"',
        "Bearer eyJhbGciOiJub25lIn0.e30.",
        "",
        "Bearer \u00e9",
    ],
)
def test_a_wrong_credential_is_as_good_as_none(credential: str) -> None:
    """S1"""

    async def scenario() -> list[Message]:
        scope = http_scope()
        scope["headers"] = [(b"host", b"localhost"), (b"authorization", credential.encode("latin-1"))]
        sent: list[Message] = []
        await make_door(Untouched())(scope, never, _append_to(sent))
        return sent

    start = asyncio.run(scenario())[0]
    assert start["status"] == 401
    assert dict(start["headers"])[b"www-authenticate"].startswith(b"Bearer")


def _append_to(sent: list[Message]) -> Send:
    async def send(message: Message) -> None:
        sent.append(message)

    return send


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", " Bearer  "])
def test_a_good_token_is_its_principal(scheme: str) -> None:
    answer = ask(make_door(), "GET", "/who", headers={"authorization": f"{scheme} {OneToken.GOOD}"})
    assert answer.status_code == 200
    assert answer.json() == ALICE


def test_two_credentials_in_one_request_are_refused() -> None:
    scope = http_scope()
    scope["headers"].append((b"authorization", b"Bearer fst_0123456789abcdef_other"))
    sent: list[Message] = []
    asyncio.run(make_door(Untouched())(scope, never, _append_to(sent)))
    assert sent[0]["status"] == 400


@pytest.mark.parametrize(
    "claim",
    [
        {"x-forwarded-user": "root"},
        {"x-remote-user": "root"},
        {"remote-user": "root"},
        {"x-auth-request-user": "root"},
        {"x-forwarded-for": "127.0.0.1"},
        {"x-real-ip": "127.0.0.1"},
        {"forwarded": "for=127.0.0.1"},
        {"x-ssl-client-s-dn": "CN=root"},
        {"ssl-client-cert": "-----BEGIN CERTIFICATE-----"},
        {"x-firesteel-principal": "root"},
        {"firesteel.principal": "root"},
        {"cookie": f"token={OneToken.GOOD}; session=root"},
        {"proxy-authorization": f"Bearer {OneToken.GOOD}"},
        {"x-authorization": f"Bearer {OneToken.GOOD}"},
        {"x-api-key": OneToken.GOOD},
        {"user-agent": "firesteel-internal"},
    ],
    ids=lambda c: next(iter(c)),
)
def test_no_other_header_says_who_asks(claim: dict[str, str]) -> None:
    """S13"""
    assert ask(make_door(Untouched()), "GET", "/who", headers=claim, anonymous=True).status_code == 401
    assert ask(make_door(), "GET", "/who", headers=claim).json() == ALICE


@pytest.mark.parametrize(
    "query", ["doAs=root", "user.name=root", "user=root", "proxyUser=root", "owner=bob", "role=admin"]
)
def test_no_parameter_says_who_asks(query: str) -> None:
    """S13: CVE-2022-33891 took the user from doAs."""
    assert ask(make_door(Untouched()), "GET", f"/who?{query}", anonymous=True).status_code == 401
    assert ask(make_door(), "GET", f"/who?{query}").json() == ALICE


def test_a_principal_in_the_scope_of_the_server_is_not_believed() -> None:
    """S13"""
    scope = {**http_scope("/healthz"), "firesteel.principal": Principal("root", Role.ADMIN, "*")}
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    asyncio.run(make_door(app)(scope, never, _append_to([])))
    assert "firesteel.principal" not in seen[0]


@pytest.mark.parametrize(
    "query",
    [
        "token=x",
        "access_token=x",
        "authorization=x",
        "id_token=x",
        "Token=x",
        "a=1&ACCESS_TOKEN=x",
        "token",
        "access%5Ftoken=x",
        "%74oken=x",
        f"x={OneToken.GOOD}",
        f"{OneToken.GOOD}=1",
        "x=fst%5F0123456789abcdef%5Fgood",
        "x=fst_local.abcdef",
        "x=fst_node.abcdef.0123",
        "jwt=eyJhbGciOiJSUzI1NiJ9.eyJhIjoxfQ.c2ln",
    ],
)
def test_a_token_in_the_address_is_refused(query: str) -> None:
    """S28: even together with a good one in the header, so that nobody gets used to it."""
    answer = ask(make_door(Untouched()), "GET", f"/who?{query}")
    assert answer.status_code == 400
    assert "Authorization: Bearer" in errors_of(answer)[0]
    assert OneToken.GOOD not in answer.text


@pytest.mark.parametrize("query", ["get=a,b", "tokens=3", "mode=cancel", "x=token", "broken=%zz&=&&", "q=eyJ"])
def test_other_parameters_are_let_through(query: str) -> None:
    assert ask(make_door(), "GET", f"/who?{query}").status_code == 200


def test_public_paths_need_no_credential_and_have_no_principal() -> None:
    for path in ("/healthz", "/web/app.js"):
        answer = ask(make_door(), "GET", path, anonymous=True)
        assert answer.status_code == 200
        assert answer.json() == {"name": None}
    assert ask(make_door(), "GET", "/healthz").json() == {"name": None}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/healthz"),
        ("DELETE", "/healthz"),
        ("POST", "/web/x"),
        ("GET", "/web"),
        ("GET", "/healthz.json"),
        ("GET", "/HEALTHZ"),
        ("GET", "/web/../jobs"),
        ("GET", "/web/%2e%2e/jobs"),
        ("GET", "/web//jobs"),
        ("GET", "/web/..%5cjobs"),
        ("GET", "/web/%252e%252e/jobs"),
        ("GET", "/web/*/../../jobs"),
    ],
)
def test_what_only_looks_public_is_not(method: str, path: str) -> None:
    """S1, S6"""

    async def scenario() -> int:
        from urllib.parse import unquote

        scope = http_scope(unquote(path), method)
        scope["headers"] = [(b"host", b"localhost")]
        sent: list[Message] = []
        await make_door(Untouched())(scope, never, _append_to(sent))
        return int(sent[0]["status"])

    assert asyncio.run(scenario()) == 401


def test_anonymous_callers_are_viewers_of_their_own() -> None:
    """S34: without authentication there is no admin, and nobody sees what belongs to somebody."""
    configured = security(authentication=(Authentication.NONE,))
    door = make_door(security=configured, identities=Identities.of(configured))
    assert ask(door, "GET", "/who", anonymous=True).json() == {
        "name": "anonymous",
        "role": "viewer",
        "owner": "anonymous",
    }


def test_by_default_loopback_is_no_credential() -> None:
    """S1, S34: the default configuration, a local caller."""
    configured = security()
    door = make_door(Untouched(), security=configured, identities=Identities.of(configured))
    assert ask(door, "GET", "/who", anonymous=True).status_code == 401
    assert ask(door, "GET", "/who").status_code == 401


def certificate(*names: str) -> dict[str, Any]:
    return {"subject": tuple((("commonName", name),) for name in names)}


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        (certificate("node-7"), 200),
        (certificate("node-8"), 401),
        (certificate(), 401),
        (certificate("node-7", "node-8"), 401),
        (certificate("NODE-7"), 401),
        ({}, 401),
        (None, 401),
    ],
)
def test_a_certificate_is_known_by_its_one_common_name(shown: dict[str, Any] | None, status: int) -> None:
    scope = http_scope()
    scope["headers"] = [(b"host", b"localhost")]
    scope["extensions"] = {PEER_CERTIFICATE: shown}
    sent: list[Message] = []
    people = {"node-7": Principal("node-7", Role.ADMIN, "*")}
    asyncio.run(make_door(identities=Identities(certificates=people))(scope, never, _append_to(sent)))
    assert sent[0]["status"] == status


@pytest.mark.parametrize("credential", ["Bearer fst_0123456789abcdef_wrong", "Basic cm9vdDo=", "Bearer", ""])
def test_a_wrong_credential_is_not_made_good_by_a_certificate(credential: str) -> None:
    scope = http_scope(headers={"authorization": credential})
    scope["extensions"] = {PEER_CERTIFICATE: certificate("node-7")}
    sent: list[Message] = []
    people = {"node-7": Principal("node-7", Role.ADMIN, "*")}
    asyncio.run(
        make_door(Untouched(), identities=Identities(tokens=OneToken(), certificates=people))(
            scope, never, _append_to(sent)
        )
    )
    assert sent[0]["status"] == 401


class Raising:
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def authenticate(self, token: str) -> Principal | None:
        raise self.error


def test_when_nobody_can_be_authenticated_nobody_gets_in() -> None:
    broken = AuthenticationUnavailableError("the tokens file /secret/place cannot be used")
    answer = ask(make_door(Untouched(), identities=Identities(tokens=Raising(broken))), "GET", "/who")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert "/secret/place" not in answer.text


def test_one_who_is_known_and_has_no_role_is_told_so() -> None:
    refusing = Raising(ForbiddenError("the token of bob has no role"))
    answer = ask(make_door(Untouched(), identities=Identities(tokens=refusing)), "GET", "/who")
    assert answer.status_code == 403
    assert errors_of(answer) == ["the token of bob has no role"]


def test_an_authenticator_that_fails_lets_nobody_in() -> None:
    answer = ask(make_door(Untouched(), identities=Identities(tokens=Raising(RuntimeError("oops")))), "GET", "/who")
    assert answer.status_code == 500
    assert "oops" not in answer.text


def test_a_configured_way_that_was_not_built_lets_nobody_in() -> None:
    door = make_door(Untouched(), identities=Identities())
    assert ask(door, "GET", "/who").status_code == 401
    assert ask(door, "GET", "/who", headers={"authorization": "Bearer eyJhbGciOiJub25lIn0.e30."}).status_code == 401


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8081",
        "localhost.",
        "127.0.0.1:1",
        "[::1]",
        "[::1]:8081",
        "[0:0:0:0:0:0:0:1]",
        "spark.example",
        "node-1.internal:443",
        "10.1.2.3",
    ],
)
def test_hosts_that_the_node_answers_for(host: str) -> None:
    door = make_door(
        rest=rest(bind_address="10.1.2.3", address="spark.example"),
        security=security(allowed_hosts=("Node-1.internal",)),
    )
    assert ask(door, "GET", "/who", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("evil.example:8081", 421),
        ("localhost.evil.example", 421),
        ("evil-localhost", 421),
        ("127.0.0.1.nip.io", 421),
        ("127.0.0.2", 421),
        ("0.0.0.0", 421),
        ("2130706433", 421),
        ("0x7f.1", 421),
        ("10.9.9.9", 421),
        ("", 400),
        ("localhost@evil.example", 400),
        ("localhost/evil.example", 400),
        ("localhost:8081:80", 400),
        ("localhost evil.example", 400),
        ("localhost, evil.example", 400),
        ("localhost#x", 400),
        ("[::1", 400),
        ("[evil]", 400),
        ("localhost:port", 400),
        ("\u212aocalhost".encode().decode("latin-1"), 400),
    ],
)
def test_other_hosts_are_refused_before_anything_else(host: str, status: int) -> None:
    """S14: DNS rebinding. The page of the attacker resolves its own name to this node, and sends that name."""
    token = OneToken()
    scope = http_scope()
    scope["headers"] = [(b"host", host.encode("latin-1")), (b"authorization", BEARER["authorization"].encode())]
    sent: list[Message] = []
    door = make_door(Untouched(), identities=Identities(tokens=token))
    asyncio.run(door(scope, never, _append_to(sent)))
    assert sent[0]["status"] == status
    assert token.asked == 0


def test_a_request_has_one_host() -> None:
    """S14"""
    for hosts in ([], [b"localhost", b"evil.example"], [b"localhost", b"localhost"]):
        scope = http_scope()
        scope["headers"] = [(b"host", host) for host in hosts]
        sent: list[Message] = []
        asyncio.run(make_door(Untouched())(scope, never, _append_to(sent)))
        assert sent[0]["status"] == 400


def test_the_address_that_was_connected_to_is_a_host_of_a_node_that_listens_everywhere() -> None:
    """An address cannot be rebound, so it needs no configuration."""
    door = make_door(rest=rest(bind_address="0.0.0.0"))
    for server, host, status in (("10.1.2.3", "10.1.2.3:8081", 200), ("10.1.2.3", "10.1.2.4", 421), ("h", "h", 421)):
        scope = {**http_scope(headers={"host": host}), "server": (server, 8081)}
        sent: list[Message] = []
        asyncio.run(door(scope, never, _append_to(sent)))
        assert sent[0]["status"] == status


def from_page(origin: str, **more: str) -> dict[str, str]:
    return {"origin": origin, **more}


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://localhost:3000",
        "https://localhost:8081",
        "http://127.0.0.1:8081",
        "http://localhost:8081.evil.example",
        "http://evil.example#http://localhost:8081",
        "http://localhost:8081@evil.example",
        "http://localhost:8081/",
        "file://",
        "chrome-extension://abc",
        "http://dashboards.example",
        "https://dashboards.example.evil.example",
    ],
)
def test_pages_of_other_origins_are_refused(method: str, origin: str) -> None:
    """S14: also with the credential of their visitor."""
    door = open_door(
        app=Untouched(),
        security=security(
            authentication=(Authentication.NONE,), allowed_origins=("https://dashboards.example", "http://grafana:3000")
        ),
    )
    answer = ask(door, method, "/who", headers=from_page(origin))
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origin", ["http://localhost:8081", "HTTP://LOCALHOST:8081"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_nodes_own_pages_are_let_in(method: str, origin: str) -> None:
    sent = from_page(origin, **{"sec-fetch-site": "same-origin", "content-type": "application/json"})
    answer = ask(open_door(), method, "/who", headers=sent)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


def test_default_ports_go_without_saying() -> None:
    assert ask(
        open_door(), "GET", "/who", headers=from_page("http://localhost:80"), base_url="http://localhost"
    ).is_success
    assert ask(
        open_door(), "GET", "/who", headers=from_page("http://localhost"), base_url="http://localhost:80"
    ).is_success
    answer = ask(open_door(), "GET", "/who", headers=from_page("http://localhost:443"), base_url="https://localhost")
    assert answer.status_code == 403


def test_two_origins_are_none() -> None:
    scope = http_scope()
    scope["headers"] += [(b"origin", b"https://evil.example"), (b"origin", b"http://localhost:8081")]
    sent: list[Message] = []
    asyncio.run(make_door(Untouched())(scope, never, _append_to(sent)))
    assert sent[0]["status"] == 403


ALLOWED = security(allowed_origins=("https://Dashboards.example:443", "http://grafana:3000"))


def test_a_named_origin_may_ask_and_see_the_answer() -> None:
    answer = ask(
        make_door(security=ALLOWED),
        "POST",
        "/who",
        headers=from_page("https://dashboards.example", **{"sec-fetch-site": "cross-site"}),
    )
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://dashboards.example"
    assert "access-control-allow-credentials" not in answer.headers
    assert answer.headers["vary"] == "Origin"


def test_a_named_origin_sees_that_it_was_refused() -> None:
    """Else its page could not tell a missing token from a broken network."""
    answer = ask(make_door(security=ALLOWED), "GET", "/who", headers=from_page("http://grafana:3000"), anonymous=True)
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == "http://grafana:3000"


def test_a_preflight_of_a_named_origin_is_answered_by_the_door() -> None:
    asked = {"access-control-request-method": "PATCH", "access-control-request-headers": "authorization"}
    door = make_door(Untouched(), security=ALLOWED)
    answer = ask(door, "OPTIONS", "/jobs", headers=from_page("http://grafana:3000", **asked), anonymous=True)
    assert answer.status_code == 204
    assert answer.content == b""
    assert answer.headers["access-control-allow-origin"] == "http://grafana:3000"
    assert "authorization" in answer.headers["access-control-allow-headers"]
    assert "PATCH" in answer.headers["access-control-allow-methods"]
    refused = ask(door, "OPTIONS", "/jobs", headers=from_page("https://evil.example", **asked), anonymous=True)
    assert refused.status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "site", "mode", "status"),
    [
        ("POST", "/who", "cross-site", "no-cors", 403),
        ("POST", "/who", "cross-site", "navigate", 403),
        ("POST", "/who", "same-site", "navigate", 403),
        ("DELETE", "/who", "cross-site", "cors", 403),
        ("GET", f"/jobs/{JOB}/yarn-cancel", "cross-site", "navigate", 403),
        ("GET", f"/jobs/{JOB}/yarn-cancel/", "cross-site", "navigate", 403),
        ("GET", f"/v1/jobs/{JOB}/yarn-stop", "cross-site", "navigate", 403),
        ("GET", "/who", "cross-site", "no-cors", 403),
        ("GET", "/who", "same-site", "cors", 403),
        ("GET", "/who", "cross-site", "navigate", 200),
        ("GET", "/who", "same-origin", "cors", 200),
        ("GET", "/who", "none", "navigate", 200),
        ("POST", "/who", "same-origin", "cors", 200),
        ("GET", f"/jobs/{JOB}/yarn-cancel", "same-origin", "cors", 200),
    ],
)
def test_what_browsers_say_about_the_page_is_heard(method: str, path: str, site: str, mode: str, status: int) -> None:
    """S14: forged requests of pages that send no Origin: images, links, forms. Flink cancels jobs by GET."""
    sent = {"sec-fetch-site": site, "sec-fetch-mode": mode, "content-type": "application/json"}
    assert ask(open_door(), method, path, headers=sent).status_code == status


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "text/plain; charset=utf-8",
        "application/x-www-form-urlencoded",
        "TEXT/PLAIN",
        "multipart/form-data; boundary=x",
        "",
    ],
)
def test_a_change_that_any_page_could_send_needs_a_credential_of_its_own(kind: str) -> None:
    """S14: JSON content type, where the browser itself would prove who asks."""
    refused = ask(open_door(app=Untouched()), "POST", "/who", headers={"content-type": kind}, content=b"{}")
    assert refused.status_code == 415
    assert ask(make_door(), "POST", "/who", headers={"content-type": kind}, content=b"{}").status_code == 200
    assert (
        ask(open_door(), "POST", "/who", headers={"content-type": "application/json"}, content=b"{}").status_code == 200
    )


def test_a_program_is_uploaded_as_a_form_also_by_those_whom_a_certificate_proves() -> None:
    form = {"content-type": "multipart/form-data; boundary=x"}
    assert ask(open_door(), "POST", "/upload", headers=form, content=b"{}").status_code == 202


@pytest.mark.parametrize("path", ["/jobs/../who", "/./who", "/who/.", "/%2e%2e/who", "/who/%2E"])
def test_a_path_that_may_be_read_as_another_one_is_refused(path: str) -> None:
    scope = {**http_scope(), "path": unquote(path), "raw_path": path.encode()}
    said: list[Message] = []

    async def send(message: Message) -> None:
        said.append(message)

    asyncio.run(make_door(app=Untouched())(scope, never, send))
    assert said[0]["status"] == 400


def test_an_event_stream_ends_when_its_caller_is_let_in_no_more() -> None:
    """S1: also one that is open."""
    tokens = OneToken()
    chunks = 0

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal chunks
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        while True:
            chunks += 1
            await send({"type": "http.response.body", "body": b": x\n\n", "more_body": True})
            if chunks == 5:
                tokens.GOOD = "fst_another"  # revoked
            await asyncio.sleep(0)

    said: list[Message] = []

    async def send(message: Message) -> None:
        said.append(message)

    door = make_door(app=endless, identities=Identities(tokens=tokens))
    door.recheck_seconds = 0.0
    asyncio.run(asyncio.wait_for(door(http_scope(), never, send), 20))
    assert chunks == 6
    assert said[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_the_client_of_flink_is_let_in() -> None:
    """HTTP/1.1, JSON, a body even on GET and PATCH, no User-Agent, no Accept; the token from an environment variable."""
    for method in ("GET", "PATCH", "POST"):
        scope = http_scope("/body", method, {"content-type": "application/json; charset=UTF-8", "content-length": "2"})
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        asyncio.run(make_door()(scope, receive, _append_to(sent)))
        assert sent[0]["status"] == 202
        assert sent[1]["body"] == b'{"received":2}'


def test_web_sockets_are_refused_and_the_lifespan_passes() -> None:
    passed: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append(scope["type"])

    door: Door = make_door(app)
    sent: list[Message] = []
    for kind in ("websocket", "lifespan", "something-new"):
        asyncio.run(door({**http_scope(), "type": kind}, never, _append_to(sent)))
    assert passed == ["lifespan"]
    assert [m["type"] for m in sent] == ["websocket.close"]
