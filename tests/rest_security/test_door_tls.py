"""TLS and client certificates, with a real server on loopback: S28, S30, and S13 (a certificate is one, a header is none)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.rest_security.certificates import Authority, Pair
from tests.rest_security.rig import BEARER, OneToken, make_door, rest, security, served

from firesteel.config.sections import Authentication, Role, SecurityOptions
from firesteel.errors import InvalidConfigError
from firesteel.rest.security.identities import Identities
from firesteel.rest.security.mtls import certificate_principals, common_name, ssl_context
from firesteel.rest.security.principals import Principal

TOKEN, OIDC, MTLS, NONE = Authentication


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def node(authority: Authority) -> Pair:
    return authority.issue("localhost", file="node", server=True)


def options(node: Pair, **more: Any) -> SecurityOptions:
    return security(**{"ssl_enabled": True, "ssl_certificate": node.certificate, "ssl_key": node.key, **more})


def trusting(authority: Authority, client: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    return context


@pytest.fixture(scope="module")
def tls_port(authority: Authority, node: Pair) -> Iterator[int]:
    configured = options(node)
    with served(make_door(security=configured), rest(), configured) as port:
        yield port


@pytest.fixture(scope="module")
def either_port(authority: Authority, node: Pair) -> Iterator[int]:
    """Tokens or certificates."""
    configured = options(
        node, authentication=(TOKEN, MTLS), ssl_ca=authority.file, mtls_roles=("node-7=admin:*", "bob=viewer:bob")
    )
    people = Identities(tokens=OneToken(), certificates=certificate_principals(configured.mtls_roles))
    with served(make_door(security=configured, identities=people), rest(), configured) as port:
        yield port


@pytest.fixture(scope="module")
def mtls_port(authority: Authority, node: Pair) -> Iterator[int]:
    """Certificates only."""
    configured = options(node, authentication=(MTLS,), ssl_ca=authority.file, mtls_roles=("node-7=admin:*",))
    with served(make_door(security=configured, identities=Identities.of(configured)), rest(), configured) as port:
        yield port


def get(
    port: int, context: ssl.SSLContext, path: str = "/who", headers: dict[str, str] | None = None
) -> httpx.Response:
    with httpx.Client(verify=context, base_url=f"https://localhost:{port}") as client:
        return client.get(path, headers=headers)


def test_https_works_and_says_that_it_is_the_only_way(authority: Authority, tls_port: int) -> None:
    """S28"""
    answer = get(tls_port, trusting(authority), headers=BEARER)
    assert answer.status_code == 200
    assert answer.json()["owner"] == "alice"
    assert answer.headers["strict-transport-security"] == "max-age=31536000"
    assert "server" not in answer.headers
    assert get(tls_port, trusting(authority)).status_code == 401


def test_plain_http_is_not_answered(tls_port: int) -> None:
    """S28"""
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://localhost:{tls_port}/who", headers=BEARER)


def test_old_tls_is_not_spoken(authority: Authority, tls_port: int, recwarn: pytest.WarningsRecorder) -> None:
    """S30"""
    context = trusting(authority)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1_1  # deprecated, which is the point
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    recwarn.clear()
    with pytest.raises(httpx.ConnectError, match=r"(?i)ssl|tls|protocol"):
        get(tls_port, context, headers=BEARER)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_newer_tls_is(authority: Authority, tls_port: int, version: ssl.TLSVersion) -> None:
    context = trusting(authority)
    context.minimum_version = context.maximum_version = version
    assert get(tls_port, context, headers=BEARER).status_code == 200


@pytest.mark.parametrize("cipher", ["ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA"])
def test_ciphers_with_cbc_are_not_spoken(authority: Authority, tls_port: int, cipher: str) -> None:
    """S30"""
    context = trusting(authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(cipher)
    with pytest.raises(httpx.ConnectError):
        get(tls_port, context, headers=BEARER)


def test_a_client_that_does_not_know_the_authority_goes_away(tls_port: int) -> None:
    """S30: the certificate is really checked."""
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        get(tls_port, ssl.create_default_context(), headers=BEARER)


def test_a_client_is_known_by_its_certificate(authority: Authority, either_port: int, mtls_port: int) -> None:
    client = trusting(authority, authority.issue("node-7"))
    for port in (either_port, mtls_port):
        answer = get(port, client)
        assert answer.status_code == 200
        assert answer.json() == {"name": "node-7", "role": "admin", "owner": "*"}
    assert get(either_port, trusting(authority, authority.issue("bob"))).json()["role"] == "viewer"


def test_the_certificate_counts_for_each_request_on_a_connection(authority: Authority, either_port: int) -> None:
    context = trusting(authority, authority.issue("node-7"))
    with httpx.Client(verify=context, base_url=f"https://localhost:{either_port}") as client:
        assert [client.get("/who").status_code for _ in range(3)] == [200, 200, 200]


def test_without_a_certificate_a_token_will_do_where_both_are_allowed(authority: Authority, either_port: int) -> None:
    assert get(either_port, trusting(authority), headers=BEARER).json()["owner"] == "alice"
    assert get(either_port, trusting(authority)).status_code == 401


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_is_resumed_without_the_certificate(
    authority: Authority, either_port: int, version: ssl.TLSVersion
) -> None:
    """S13: who comes again shows a certificate that is good by then."""
    context = trusting(authority, authority.issue("node-7"))
    context.minimum_version = context.maximum_version = version
    session = None
    for _ in range(2):
        with socket.create_connection(("localhost", either_port), 10) as plain:
            try:
                secured = context.wrap_socket(plain, server_hostname="localhost", session=session)
            except ssl.SSLError:
                assert version is ssl.TLSVersion.TLSv1_2
                return
            with secured:
                secured.sendall(b"GET /who HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert secured.recv(1 << 16).startswith(b"HTTP/1.1 200")
                assert not secured.session_reused
                session = secured.session


def test_certificates_that_belong_to_nobody(authority: Authority, either_port: int) -> None:
    for names in (("mallory",), ("NODE-7",), ("node-7", "mallory"), ("node-7 ",), ()):
        assert get(either_port, trusting(authority, authority.issue(*names))).status_code == 401, names


def test_a_header_is_no_certificate(authority: Authority, either_port: int) -> None:
    """S13"""
    claims = {
        "x-ssl-client-cn": "node-7",
        "x-client-cert": "CN=node-7",
        "x-forwarded-client-cert": 'Subject="CN=node-7"',
    }
    assert get(either_port, trusting(authority), headers=claims).status_code == 401


@pytest.mark.parametrize("bad", ["other authority", "expired", "for servers"])
def test_certificates_that_are_not_good_do_not_even_connect(
    bad: str, authority: Authority, either_port: int, mtls_port: int, tmp_path: Path
) -> None:
    pair = {
        "other authority": lambda: Authority(tmp_path, "test authority").issue("node-7"),
        "expired": lambda: authority.issue("node-7", file="expired", expired=True),
        "for servers": lambda: authority.issue("node-7", file="as-server", server=True),
    }[bad]()
    for port in (either_port, mtls_port):
        with pytest.raises(httpx.TransportError):
            get(port, trusting(authority, pair))


def test_where_only_certificates_are_allowed_none_is_no_connection(authority: Authority, mtls_port: int) -> None:
    for headers in ({}, BEARER):
        with pytest.raises(httpx.TransportError):
            get(mtls_port, trusting(authority), headers=headers)


@pytest.mark.parametrize(
    ("methods", "mode"),
    [((TOKEN,), ssl.CERT_NONE), ((TOKEN, MTLS), ssl.CERT_OPTIONAL), ((MTLS,), ssl.CERT_REQUIRED)],
)
def test_who_has_to_show_a_certificate(
    methods: tuple[Authentication, ...], mode: ssl.VerifyMode, authority: Authority, node: Pair
) -> None:
    context = ssl_context(options(node, authentication=methods, ssl_ca=authority.file))
    assert context.verify_mode is mode
    mtls = Authentication.MTLS in methods
    assert context.minimum_version is (ssl.TLSVersion.TLSv1_3 if mtls else ssl.TLSVersion.TLSv1_2)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o610])
def test_a_key_that_others_can_read_is_refused(mode: int, authority: Authority) -> None:
    pair = authority.issue("localhost", file=f"open-{mode:o}", server=True)
    pair.key.chmod(mode)
    with pytest.raises(InvalidConfigError) as caught:
        ssl_context(options(pair))
    (problem,) = caught.value.problems
    assert problem.field == "security.ssl.rest.key"
    assert problem.fix == f"run chmod 600 {pair.key}"


def test_files_that_are_not_there_are_all_told(node: Pair, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(InvalidConfigError) as caught:
        ssl_context(options(node, ssl_certificate=missing, ssl_key=missing, authentication=(MTLS,)))
    assert [p.field for p in caught.value.problems] == [
        "security.ssl.rest.certificate",
        "security.ssl.rest.key",
        "security.ssl.rest.ca",
    ]
    with pytest.raises(InvalidConfigError) as caught:
        ssl_context(security(ssl_enabled=True))
    assert len(caught.value.problems) == 2


def test_files_that_do_not_fit_are_told(authority: Authority, node: Pair, tmp_path: Path) -> None:
    other = authority.issue("localhost", file="other", server=True)
    locked = authority.issue("localhost", file="locked", server=True, password=b"secret")
    noise = tmp_path / "noise.pem"
    noise.write_text("noise")
    noise.chmod(0o600)
    for certificate, key in (
        (node.certificate, other.key),
        (locked.certificate, locked.key),
        (noise, node.key),
        (node.key, noise),
    ):
        with pytest.raises(InvalidConfigError, match="cannot be used"):
            ssl_context(options(node, ssl_certificate=certificate, ssl_key=key))
    with pytest.raises(InvalidConfigError, match=r"security\.ssl\.rest\.ca.*cannot be used"):
        ssl_context(options(node, authentication=(MTLS,), ssl_ca=noise))


def test_words_say_whose_a_certificate_is() -> None:
    assert certificate_principals(("a=admin:*", "b c=operator:team-b", "x=y=viewer:z", "svc:1=viewer:*")) == {
        "a": Principal("a", Role.ADMIN, "*"),
        "b c": Principal("b c", Role.OPERATOR, "team-b"),
        "x=y": Principal("x=y", Role.VIEWER, "z"),
        "svc:1": Principal("svc:1", Role.VIEWER, "*"),
    }


def test_the_common_name_of_a_certificate() -> None:
    organisation = (("organizationName", "o"),)
    assert common_name({"subject": (organisation, (("commonName", "a"),))}) == "a"
    assert common_name({"subject": ((("commonName", "a"), ("commonName", "b")),)}) is None
    assert common_name({"subject": (organisation,)}) is None
    assert common_name({}) is None
