"""TLS, and callers that authenticate with certificates."""

from __future__ import annotations

import re
import ssl
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from firesteel.config.sections import GRANTED_ROLES, Authentication, Role, SecurityOptions
from firesteel.errors import InvalidConfigError, Problem
from firesteel.rest.security.principals import Principal

PEER_CERTIFICATE = "firesteel.peer_cert"
"""The key, in the extensions of an ASGI scope, of the client's verified certificate, in the form of `ssl`."""
_ROLE_WORD = re.compile(r"(?P<name>.+)=(?P<role>[a-z]+):(?P<owner>[^=]+)")
_ROLES_KEY = "security.mtls.roles"


def certificate_principals(words: Sequence[str]) -> dict[str, Principal]:
    """The principals of certificates by common name, from entries `common-name=role:owner`.

    Raises:
        InvalidConfigError: with all malformed entries.
    """
    principals: dict[str, Principal] = {}
    problems: list[Problem] = []
    for word in words:
        found = _ROLE_WORD.fullmatch(word)
        if found is None or found["role"] not in {r.value for r in GRANTED_ROLES}:
            fix = "write common-name=role:owner, with the role viewer, operator or admin"
            problems.append(Problem(f"'{word}' does not assign a certificate to an owner", fix, field=_ROLES_KEY))
            continue
        name, role, owner = found["name"], Role(found["role"]), found["owner"]
        if name in principals:
            problems.append(Problem(f"'{name}' is listed twice", "remove one of the two", field=_ROLES_KEY))
            continue
        try:
            principals[name] = Principal(name, role, owner)
        except ValueError as error:
            problems.append(Problem(f"'{word}': {error}", "correct it", field=_ROLES_KEY))
    if problems:
        raise InvalidConfigError(problems)
    return principals


def common_name(certificate: Mapping[str, Any]) -> str | None:
    """The common name of a certificate; None when it has none or several."""
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else None


def ssl_context(options: SecurityOptions) -> ssl.SSLContext:
    """The TLS context of the node: 1.2 or newer, and 1.3 with client certificates if `mtls` is enabled.

    Raises:
        InvalidConfigError: with every file that is missing, damaged, or readable by other users.
    """
    mtls = Authentication.MTLS in options.authentication
    problems = [*_certificate_problems(options.ssl_certificate), *_key_problems(options.ssl_key)]
    if mtls and options.ssl_ca is None:
        fix = "name the PEM file with the authorities of client certificates"
        problems.append(Problem("is not set", fix, field="security.ssl.rest.ca"))
    if problems:
        raise InvalidConfigError(problems)
    assert options.ssl_certificate is not None
    assert options.ssl_key is not None

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")  # for TLS 1.2; all ciphers of 1.3 are good
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(options.ssl_certificate, options.ssl_key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        fix = "check that both are PEM files, belong together, and that the key has no password"
        raise InvalidConfigError(
            [Problem(f"{options.ssl_certificate} and {options.ssl_key} cannot be used: {error}", fix)]
        ) from error
    if mtls:
        assert options.ssl_ca is not None
        try:
            context.load_verify_locations(options.ssl_ca)
        except (ssl.SSLError, OSError) as error:
            fix = "name a PEM file with the certificates of authorities"
            problem = Problem(f"{options.ssl_ca} cannot be used: {error}", fix, field="security.ssl.rest.ca")
            raise InvalidConfigError([problem]) from error
        alone = options.authentication == (Authentication.MTLS,)
        context.verify_mode = ssl.CERT_REQUIRED if alone else ssl.CERT_OPTIONAL
        # No resumed sessions, so that every connection shows a certificate that is valid now. TLS 1.2 could not disable them.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def _no_password() -> str:
    """Raise an error instead: OpenSSL would prompt at the terminal, and a node has none."""
    raise ValueError("the key has a password")


def _certificate_problems(path: Path | None) -> list[Problem]:
    field = "security.ssl.rest.certificate"
    if path is None:
        return [Problem("is not set", "name the PEM file with the node's certificate", field=field)]
    if not path.is_file():
        return [Problem(f"no such file: {path}", "name the PEM file with the node's certificate", field=field)]
    return []


def _key_problems(path: Path | None) -> list[Problem]:
    field = "security.ssl.rest.key"
    if path is None:
        return [Problem("is not set", "name the PEM file with the node's private key", field=field)]
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return [Problem(f"{path}: {error.strerror}", "name the PEM file with the node's private key", field=field)]
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return [Problem(f"other users can read {path}", f"run chmod 600 {path}", field=field)]
    return []
