"""Options that a node refuses to start with: a REST API that is open, or only seems to be protected (S1, S3)."""

from __future__ import annotations

from collections.abc import Iterator

from firesteel.config.sections import Authentication, RestOptions, SecurityOptions
from firesteel.errors import InvalidConfigError, Problem
from firesteel.ip_addresses import ip_of, is_loopback
from firesteel.rest.security.addresses import host_of, is_trustworthy, is_wildcard, origin_of
from firesteel.rest.security.mtls import certificate_principals

_AUTHENTICATION = "security.rest.authentication"
_TLS = "security.ssl.rest.enabled"


def check_door(rest: RestOptions, security: SecurityOptions) -> None:
    """Refuse options that leave the REST API open, or that contradict each other.

    Raises:
        InvalidConfigError: with all problems.
    """
    problems = [
        *_authentication_problems(rest, security),
        *_tls_problems(rest, security),
        *_oidc_problems(security),
        *_mtls_problems(security),
        *_name_problems(rest, security),
        *_spark_settings_problems(security),
    ]
    if problems:
        raise InvalidConfigError(problems)


def _authentication_problems(rest: RestOptions, security: SecurityOptions) -> Iterator[Problem]:
    methods = security.authentication
    if not methods:
        yield Problem("is empty", "write token, oidc or mtls", field=_AUTHENTICATION)
    if Authentication.NONE not in methods:
        return
    if len(methods) > 1:
        others = ", ".join(m.value for m in methods if m is not Authentication.NONE)
        yield Problem(
            f"has none together with {others}, which makes them useless", "remove none", field=_AUTHENTICATION
        )
    if not is_loopback(rest.bind_address):
        yield Problem(
            f"is none, but {_shown(rest.bind_address)} (rest.bind-address) can be reached from other machines: "
            "anyone could run code on this one",
            "write token, oidc or mtls, or listen on 127.0.0.1",
            field=_AUTHENTICATION,
        )


def _tls_problems(rest: RestOptions, security: SecurityOptions) -> Iterator[Problem]:
    files = (
        ("security.ssl.rest.certificate", security.ssl_certificate, "certificate"),
        ("security.ssl.rest.key", security.ssl_key, "private key"),
    )
    if security.ssl_enabled:
        for key, path, what in files:
            if path is None:
                yield Problem(f"is not set, but {_TLS} is on", f"name the PEM file with the node's {what}", field=key)
        return
    if not is_loopback(rest.bind_address):
        yield Problem(
            f"is off, but {_shown(rest.bind_address)} (rest.bind-address) can be reached from other machines: tokens would "
            "cross the network unencrypted",
            "turn it on and set the certificate and the key, or listen on 127.0.0.1",
            field=_TLS,
        )
    for key, path, _ in files:
        if path is not None:
            yield Problem(f"is set, but {_TLS} is off, so HTTP is served", f"turn {_TLS} on, or remove it", field=key)


def _oidc_problems(security: SecurityOptions) -> Iterator[Problem]:
    issuer, audience, url = security.oidc_issuer, security.oidc_audience, security.oidc_jwks_url
    if Authentication.OIDC not in security.authentication:
        for key, value in (("issuer", issuer), ("audience", audience), ("jwks-url", url)):
            if value is not None:
                yield _unused(f"security.oidc.{key}", Authentication.OIDC)
        return
    if not issuer:
        yield Problem("is not set", "name the issuer whose tokens are accepted", field="security.oidc.issuer")
    if not audience:
        yield Problem(
            "is not set, so tokens for other services would be accepted",
            "name the audience that the issuer puts into tokens for this cluster",
            field="security.oidc.audience",
        )
    for key, value in (("security.oidc.issuer", issuer), ("security.oidc.jwks-url", url)):
        if value and not is_trustworthy(value):
            fix = "write an https URL; http is for loopback only"
            yield Problem(f"'{value}' is not protected against tampering", fix, field=key)
    claims = (
        ("security.oidc.role-claim", security.oidc_role_claim),
        ("security.oidc.owner-claim", security.oidc_owner_claim),
    )
    for key, value in claims:
        if not value.strip():
            yield Problem("is empty", "name a claim of the token", field=key)


def _mtls_problems(security: SecurityOptions) -> Iterator[Problem]:
    if Authentication.MTLS not in security.authentication:
        if security.mtls_roles:
            yield _unused("security.mtls.roles", Authentication.MTLS)
        return
    if not security.ssl_enabled:
        fix = f"turn {_TLS} on, or remove mtls"
        yield Problem(f"has mtls, but {_TLS} is off", fix, field=_AUTHENTICATION)
    if security.ssl_ca is None:
        yield Problem(
            "is not set, so any certificate of a public authority would be accepted",
            "name the PEM file with the authorities of client certificates",
            field="security.ssl.rest.ca",
        )
    if not security.mtls_roles:
        fix = "write an entry common-name=role:owner for each client"
        yield Problem("is empty, so no certificate would be accepted", fix, field="security.mtls.roles")
    try:
        certificate_principals(security.mtls_roles)
    except InvalidConfigError as error:
        yield from error.problems


def _name_problems(rest: RestOptions, security: SecurityOptions) -> Iterator[Problem]:
    for origin in security.allowed_origins:
        if origin_of(origin) is None:
            fix = "write scheme://host or scheme://host:port, without a path; * and null would allow every page"
            yield Problem(f"'{origin}' is not an origin", fix, field="security.rest.allowed-origins")
    for host in security.allowed_hosts:
        if not _is_bare_host(host):
            fix = "write a host name or an address, without scheme and port; a * would allow every name"
            yield Problem(f"'{host}' is not a host", fix, field="security.rest.allowed-hosts")
    if rest.address is not None and (not _is_bare_host(rest.address) or is_wildcard(rest.address)):
        fix = "write the host name or address under which others reach this node, without scheme and port"
        yield Problem(f"'{rest.address}' is not a host", fix, field="rest.address")


def _spark_settings_problems(security: SecurityOptions) -> Iterator[Problem]:
    for pattern in security.spark_settings:
        if not pattern.startswith("spark.") or pattern in ("spark.*", "spark.sql.*") or "*" in pattern[:-1]:
            yield Problem(
                f"'{pattern}' is not a Spark setting, or matches too many, including class paths and files",
                "name settings one by one, or with a * at the end of a longer name",
                field="security.spark-settings.allowed",
            )


def _unused(key: str, method: Authentication) -> Problem:
    """A problem for an option that has no effect, as its authentication method is not enabled."""
    return Problem(
        f"is set, but has no effect without {method.value} in {_AUTHENTICATION}",
        f"add {method.value} to {_AUTHENTICATION}, or remove it",
        field=key,
    )


def _is_bare_host(text: str) -> bool:
    if ":" in text:  # an IPv6 address, in brackets or not; or a port, which is never compared
        return ip_of(text) is not None
    return host_of(text) is not None


def _shown(bind_address: str) -> str:
    return "every address" if is_wildcard(bind_address) else bind_address
