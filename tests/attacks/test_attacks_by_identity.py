"""A node behind TLS that takes the tokens of an issuer: S13, S28, S29, S33, S34."""

from __future__ import annotations

import http.server
import json
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest
from tests.attacks.attacked_node import UNLIMITED, AttackedNode, People, everything, routes
from tests.rest_security.certificates import Authority
from tests.rest_security.issuer import AUDIENCE, EC, ED, ISSUER, OTHER_RSA, RSA, jwk, sign
from tests.rest_security.test_door_oidc import ATTACKS

pytestmark = pytest.mark.xdist_group("attacks")


class LocalIssuer:
    """Serves its keys on loopback, and notes what it was asked for."""

    def __init__(self) -> None:
        keys = json.dumps({"keys": [jwk(RSA, "rsa"), jwk(EC, "ec", use="sig", alg="ES256"), jwk(ED, "ed")]}).encode()
        asked = self.asked = list[str]()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(keys)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="issuer", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def issuer() -> Iterator[LocalIssuer]:
    made = LocalIssuer()
    yield made
    made.close()


@pytest.fixture(scope="module")
def guarded(issuer: LocalIssuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    root = tmp_path_factory.mktemp("guarded")
    authority = Authority(root / "authority")
    pair = authority.issue("localhost", file="node", server=True)
    overrides = {
        "engine.master": "sc://localhost:9",
        "security.rest.authentication": "token oidc",
        "security.oidc.issuer": ISSUER,
        "security.oidc.audience": AUDIENCE,
        "security.oidc.jwks-url": f"{issuer.url}/keys",
        "security.ssl.rest.enabled": "true",
        "security.ssl.rest.certificate": str(pair.certificate),
        "security.ssl.rest.key": str(pair.key),
        "security.ssl.rest.ca": str(authority.file),
        "security.rest.debug-endpoints": "true",
        **UNLIMITED,
    }
    node = AttackedNode(root / "state", overrides)
    node.tls = ssl.create_default_context(cafile=str(authority.file))
    with node:
        yield node
    assert "Traceback" not in node.log_text()


@pytest.fixture(scope="module")
def people_behind_tls(guarded: AttackedNode) -> Iterator[People]:
    with guarded.people() as people:
        yield people


def test_a_token_of_the_issuer_is_its_holder_and_nobody_more(guarded: AttackedNode) -> None:
    """S29, S34: with good keys, and the role that the issuer gave."""
    for role, owner in (("viewer", "carol"), ("operator", "carol"), ("admin", "carol")):
        with guarded.caller(sign(sub=owner, firesteel_role=role)) as caller:
            told = {"name": owner, "role": role, "owner": owner, "serves": "cluster"}
            assert caller.get("/whoami").json() == told
    for claims in (
        {"firesteel_role": None},
        {"firesteel_role": "superuser"},
        {"sub": "*", "firesteel_role": "operator"},
    ):
        with guarded.caller(sign(**claims)) as caller:
            assert caller.get("/whoami").status in (401, 403)
            assert caller.ask("DELETE", "/cluster").status in (401, 403)


OVER_HTTP = [name for name, token in ATTACKS.items() if token == token.strip() and len(token) < 50_000]
"""White space around a token is none of it, and one that is too long does not even fit into a head."""


@pytest.mark.parametrize("attack", OVER_HTTP, ids=str)
def test_a_forged_token_opens_nothing(guarded: AttackedNode, attack: str) -> None:
    """S29: alg none, key confusion, other issuer, other audience, expired, unknown keys: over the network, to the end."""
    with guarded.caller(ATTACKS[attack]) as caller:
        for path in ("/jobs", "/whoami"):
            assert caller.get(path).status in (400, 401)


def test_keys_come_from_the_issuer_alone(guarded: AttackedNode, issuer: LocalIssuer) -> None:
    """S29: what a token says about where its key is, is not looked at; and the issuer is not asked for each forgery."""
    before = len(issuer.asked)
    for header in ({"jku": f"{issuer.url}/evil"}, {"x5u": f"{issuer.url}/evil"}, {"jwk": jwk(OTHER_RSA, "rsa")}):
        for kid in ("rsa", "other"):
            with guarded.caller(sign(OTHER_RSA, kid=kid, headers=header)) as caller:
                assert caller.get("/whoami").status == 401
    assert "/evil" not in issuer.asked
    assert set(issuer.asked) == {"/keys"}
    assert len(issuer.asked) <= before + 1


def test_plain_http_is_not_spoken_and_tls_says_so(guarded: AttackedNode, people_behind_tls: People) -> None:
    """S28: a token that is sent without TLS gets no answer; over TLS, browsers are told to use nothing else."""
    head = f"GET /jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {people_behind_tls.root.token}\r\n\r\n"
    with guarded.connected() as connection:
        connection.sendall(head.encode())
        assert b"HTTP/1.1" not in everything(connection)
    assert guarded.address.startswith("https://")
    for route in routes()[:20]:
        if not route.streams:
            answer = people_behind_tls.nobody.ask(route.method, route.filled())
            assert answer.headers["strict-transport-security"].startswith("max-age=")
    untrusting = ssl.create_default_context()
    with guarded.connected() as raw, pytest.raises(ssl.SSLCertVerificationError):
        untrusting.wrap_socket(raw, server_hostname="localhost")


def test_a_certificate_that_nobody_asked_for_is_no_identity(guarded: AttackedNode) -> None:
    """S13: neither one in a header."""
    for claim in ({"x-client-cert": "root"}, {"x-forwarded-client-cert": "By=root"}, {"ssl-client-verify": "SUCCESS"}):
        with guarded.caller(None) as nobody:
            assert nobody.get("/whoami", claim).status == 401


def test_thread_dumps_are_for_admins_also_where_they_are_on(people_behind_tls: People) -> None:
    """S33: names of functions, and no value of any variable."""
    for caller in (people_behind_tls.alice, people_behind_tls.watcher, people_behind_tls.nobody):
        assert caller.get("/jobmanager/thread-dump").status in (401, 403)
    dump = people_behind_tls.root.get("/jobmanager/thread-dump")
    assert dump.status == 200
    assert "MainThread" in dump.text
    assert str(people_behind_tls.root.token) not in dump.text


def test_a_stolen_connection_proves_nothing(guarded: AttackedNode, people_behind_tls: People) -> None:
    """S13: each request on a connection is asked for its own credential."""
    assert guarded.tls is not None
    with guarded.connected() as raw, guarded.tls.wrap_socket(raw, server_hostname="localhost") as connection:
        with_token = (
            f"GET /whoami HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {people_behind_tls.root.token}\r\n\r\n"
        )
        connection.sendall(with_token.encode())
        assert b'"role":"admin"' in _answer(connection)
        connection.sendall(b"GET /whoami HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert _answer(connection).startswith(b"HTTP/1.1 401")


def _answer(connection: socket.socket) -> bytes:
    text = b""
    while b"\r\n\r\n" not in text or not text.endswith(b"}"):
        text += connection.recv(65536)
    return text
