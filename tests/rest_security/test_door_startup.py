"""S1, S3: a node does not start with a door that is open, or that looks locked and is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.rest_security.rig import rest, security

from firesteel.config.sections import Authentication, Role
from firesteel.errors import InvalidConfigError
from firesteel.rest.security.startup import check_door

TOKEN, OIDC, MTLS, NONE = Authentication
TLS: dict[str, Any] = {"ssl_enabled": True, "ssl_certificate": Path("cert.pem"), "ssl_key": Path("key.pem")}
ISSUER: dict[str, Any] = {"oidc_issuer": "https://issuer.example", "oidc_audience": "firesteel"}
CLIENTS: dict[str, Any] = {"ssl_ca": Path("ca.pem"), "mtls_roles": ("node=admin:*",)}


def problems(bind: str = "127.0.0.1", address: str | None = None, **options: Any) -> list[str]:
    try:
        check_door(rest(bind_address=bind, address=address), security(**options))
    except InvalidConfigError as error:
        if not all(p.fix and p.field for p in error.problems):
            pytest.fail(f"a problem has no fix, or says nothing of where it is: {error}")
        return [f"{p.field}: {p.message}" for p in error.problems]
    return []


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.8.9.10", "::1", "localhost", "LOCALHOST", "::ffff:127.0.0.1"])
def test_the_defaults_are_fine_on_loopback(bind: str) -> None:
    assert problems(bind) == []
    assert problems(bind, authentication=(NONE,)) == []
    assert problems(bind, authentication=(NONE,), anonymous_role=Role.ADMIN) == []


@pytest.mark.parametrize(
    "bind", ["0.0.0.0", "::", "", "10.0.0.1", "192.168.1.5", "spark.example", "localhost.evil", "0x7f.1"]
)
def test_other_addresses_need_authentication_and_tls(bind: str) -> None:
    """S1: CVE-2023-48022, CVE-2018-11770, CVE-2018-17190 were nodes that listened to all, and asked nobody."""
    open_to_all = problems(bind, authentication=(NONE,))
    assert [p.partition(":")[0] for p in open_to_all] == ["security.rest.authentication", "security.ssl.rest.enabled"]
    assert [p.partition(":")[0] for p in problems(bind)] == ["security.ssl.rest.enabled"]
    assert [p.partition(":")[0] for p in problems(bind, authentication=(NONE,), **TLS)] == [
        "security.rest.authentication"
    ]
    assert problems(bind, **TLS) == []
    assert problems(bind, authentication=(TOKEN, OIDC, MTLS), **TLS, **ISSUER, **CLIENTS) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"authentication": ()}, ["security.rest.authentication: is empty"]),
        ({"authentication": (TOKEN, NONE)}, ["security.rest.authentication: has none together with token"]),
        ({"authentication": (NONE, OIDC), **ISSUER}, ["security.rest.authentication: has none together with oidc"]),
        (
            {"authentication": (OIDC,)},
            ["security.oidc.issuer: is not set", "security.oidc.audience: is not set"],
        ),
        (
            {"authentication": (OIDC,), **ISSUER, "oidc_issuer": "http://issuer.example"},
            ["security.oidc.issuer: 'http"],
        ),
        (
            {"authentication": (OIDC,), **ISSUER, "oidc_jwks_url": "http://issuer.example/k"},
            ["security.oidc.jwks-url: 'http"],
        ),
        (
            {"authentication": (OIDC,), **ISSUER, "oidc_jwks_url": "file:///etc/passwd"},
            ["security.oidc.jwks-url: 'file"],
        ),
        ({"authentication": (OIDC,), **ISSUER, "oidc_issuer": "https://user:pw@issuer"}, ["security.oidc.issuer: "]),
        ({"authentication": (OIDC,), **ISSUER, "oidc_role_claim": " "}, ["security.oidc.role-claim: is empty"]),
        ({"authentication": (OIDC,), **ISSUER, "oidc_owner_claim": ""}, ["security.oidc.owner-claim: is empty"]),
        ({**ISSUER}, ["security.oidc.issuer: is set, but", "security.oidc.audience: is set, but"]),
        ({"oidc_jwks_url": "https://issuer.example/keys"}, ["security.oidc.jwks-url: is set, but"]),
        ({"mtls_roles": ("a=admin:*",)}, ["security.mtls.roles: is set, but"]),
        ({"authentication": (MTLS,), **CLIENTS}, ["security.rest.authentication: has mtls, but"]),
        (
            {"authentication": (MTLS,), **TLS},
            ["security.ssl.rest.ca: is not set", "security.mtls.roles: is empty"],
        ),
        ({"ssl_enabled": True}, ["security.ssl.rest.certificate: is not set", "security.ssl.rest.key: is not set"]),
        ({**TLS, "ssl_key": None}, ["security.ssl.rest.key: is not set"]),
        (
            {**TLS, "ssl_enabled": False},
            ["security.ssl.rest.certificate: is set, but", "security.ssl.rest.key: is set, but"],
        ),
        ({"spark_settings": ("*",)}, ["security.spark-settings.allowed: '*'"]),
        ({"spark_settings": ("spark.*", "hive.x", "spark.a*b")}, ["security.spark-settings.allowed: "] * 3),
    ],
)
def test_what_contradicts_itself_is_told_with_its_field(options: dict[str, Any], said: list[str]) -> None:
    """S3"""
    found = problems(**options)
    assert len(found) == len(said)
    for problem, begins in zip(found, said, strict=True):
        assert problem.startswith(begins)


@pytest.mark.parametrize(
    "word", ["", "a", "a=admin", "a=r:x", "=admin:*", "a=operator:*", "a=admin:", "a=Admin:x", "a=viewer:b=c"]
)
def test_mtls_words_that_say_nothing(word: str) -> None:
    found = problems(authentication=(MTLS,), **TLS, **{**CLIENTS, "mtls_roles": (word, "good=viewer:alice")})
    assert len(found) == 1
    assert found[0].startswith("security.mtls.roles: ")


def test_a_certificate_belongs_to_one() -> None:
    (found,) = problems(authentication=(MTLS,), **TLS, **{**CLIENTS, "mtls_roles": ("a=admin:*", "a=viewer:b")})
    assert "twice" in found


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "null",
        "",
        "example.com",
        "https://",
        "https://a/",
        "https://a/path",
        "https://a?b",
        "https://*.a",
        "ftp://a",
        "https://u@a",
    ],
)
def test_origins_that_are_none(origin: str) -> None:
    (found,) = problems(allowed_origins=("https://good.example:8443", origin))
    assert found.startswith("security.rest.allowed-origins: ")


@pytest.mark.parametrize("host", ["*", "*.example", "", "http://a", "a:80", "a/b", "a b", "[::1]:80", "a,b"])
def test_hosts_that_are_none(host: str) -> None:
    (found,) = problems(allowed_hosts=("good.example", "::1", "[::1]", "10.0.0.1", host))
    assert found.startswith("security.rest.allowed-hosts: ")


@pytest.mark.parametrize("address", ["http://a", "a:8081", "0.0.0.0", "::", "*"])
def test_addresses_that_nobody_can_reach_this_node_under(address: str) -> None:
    (found,) = problems(address=address)
    assert found.startswith("rest.address: ")
    assert problems(address="node-1.internal") == []


def test_everything_that_is_wrong_is_told_at_once() -> None:
    found = problems(
        "0.0.0.0",
        authentication=(NONE, OIDC, MTLS),
        ssl_certificate=Path("cert.pem"),
        mtls_roles=("x",),
        allowed_origins=("*",),
        allowed_hosts=("*",),
    )
    fields = [p.partition(":")[0] for p in found]
    assert len(found) == 11
    assert fields.count("security.rest.authentication") == 3
    assert {"security.oidc.issuer", "security.oidc.audience", "security.mtls.roles", "security.ssl.rest.ca"} <= set(
        fields
    )
