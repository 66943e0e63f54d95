"""S29: every way to forge or misuse a JSON web token, with real keys; and an issuer that goes away."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from tests.rest_security.issuer import (
    AUDIENCE,
    EC,
    EC_384,
    ED,
    ISSUER,
    OTHER_RSA,
    RSA,
    WEAK_RSA,
    Clock,
    Issuer,
    jwk,
    sign,
    verifier,
)
from tests.rest_security.rig import until_async

from firesteel.config.sections import Role
from firesteel.errors import ForbiddenError
from firesteel.rest.security.jwks import ALGORITHMS, IssuerKeys, parse_keys
from firesteel.rest.security.oidc import OidcVerifier
from firesteel.rest.security.principals import AuthenticationUnavailableError, Principal

ALICE = Principal("alice", Role.OPERATOR, "alice")


def who(token: str, issuer: Issuer | None = None, **options: Any) -> Principal | None:
    async def ask() -> Principal | None:
        checked = verifier(issuer or Issuer(), **options)
        try:
            return await checked.authenticate(token)
        finally:
            await checked.close()

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA, "RS256", "rsa"), (RSA, "PS256", "rsa"), (RSA, "PS256", "pss"), (EC, "ES256", "ec"), (ED, "EdDSA", "ed")],
)
def test_good_tokens_are_known(key: Any, algorithm: str, kid: str) -> None:
    assert who(sign(key, algorithm, kid)) == ALICE


def public_pem(key: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return pem


def hs256_by_hand(secret: bytes, kid: str) -> str:
    """PyJWT refuses to sign with a public key; an attacker does not use PyJWT."""

    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now + 600, "firesteel_role": "admin"}
    signed = part({"alg": "HS256", "kid": kid, "typ": "JWT"}) + b"." + part(claims)
    mac = hmac.new(secret, signed, hashlib.sha256).digest()
    return (signed + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


def unsigned(algorithm: str) -> str:
    head, claims, _ = sign().split(".")
    header = json.loads(base64.urlsafe_b64decode(head + "=="))
    forged = base64.urlsafe_b64encode(json.dumps({**header, "alg": algorithm}).encode()).rstrip(b"=").decode()
    return f"{forged}.{claims}."


def tampered() -> str:
    head, claims, signature = sign().split(".")
    said = json.loads(base64.urlsafe_b64decode(claims + "=="))
    forged = base64.urlsafe_b64encode(json.dumps({**said, "firesteel_role": "admin"}).encode()).rstrip(b"=").decode()
    return f"{head}.{forged}.{signature}"


NOW = int(time.time())
ATTACKS = {
    "alg none": unsigned("none"),
    "alg None": unsigned("None"),
    "alg nOnE": unsigned("nOnE"),
    "alg empty": unsigned(""),
    "signature cut off": sign().rpartition(".")[0] + ".",
    "claims changed": tampered(),
    "key confusion: HS256 with the public key as PEM": hs256_by_hand(public_pem(RSA), "rsa"),
    "key confusion: HS256 with the modulus": hs256_by_hand(jwk(RSA, "rsa")["n"].encode(), "rsa"),
    "HS256 with an empty secret": hs256_by_hand(b"", "rsa"),
    "signed by somebody else under the issuer's key id": sign(OTHER_RSA),
    "RS384, which nobody allowed": sign(RSA, "RS384"),
    "RS512, which nobody allowed": sign(RSA, "RS512"),
    "RS256 with a key that is for PS256": sign(RSA, "RS256", "pss"),
    "ES256 under the id of an RSA key": sign(EC, "ES256", "rsa"),
    "RS256 under the id of an EC key": sign(RSA, "RS256", "ec"),
    "EdDSA under the id of an EC key": sign(ED, "EdDSA", "ec"),
    "unknown key id": sign(kid="no-such-key"),
    "no key id": sign(kid=None),
    "key id that is a path": sign(kid="../../../../dev/null"),
    "its own key in the header": sign(OTHER_RSA, headers={"jwk": jwk(OTHER_RSA, "rsa")}),
    "a key URL in the header": sign(OTHER_RSA, headers={"jku": "https://evil.example/keys"}),
    "a certificate URL in the header": sign(OTHER_RSA, headers={"x5u": "https://evil.example/cert"}),
    "an extension that must be understood": sign(headers={"crit": ["exp"], "exp": 1}),
    "other issuer": sign(iss="https://evil.example"),
    "issuer with a slash more": sign(iss=f"{ISSUER}/"),
    "no issuer": sign(iss=None),
    "other audience": sign(aud="grafana"),
    "several audiences, not us": sign(aud=["grafana", "kibana"]),
    "no audience": sign(aud=None),
    "expired": sign(exp=NOW - 31),
    "never expires": sign(exp=None),
    "expires at no time": sign(exp="tomorrow"),
    "not yet": sign(nbf=NOW + 36000),
    "issued in the future": sign(iat=NOW + 36000),
    "not a token": "a.b.c",
    "two dots": "..",
    "four parts": sign() + ".x",
    "no dots": "abc",
    "empty": "",
    "huge": "a" * 100_000 + "." + "b" * 100_000 + ".c",
    "deeply nested header": base64.urlsafe_b64encode(b'{"a":' * 3000 + b"1" + b"}" * 3000).decode().rstrip("=")
    + ".e30.",
    "not base64": "$$$.$$$.$$$",
    "white space": f" {sign()}",
}


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_bad_tokens_are_nobodys(attack: str) -> None:
    """S29"""
    assert who(ATTACKS[attack]) is None


def test_a_token_without_end_is_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(token: str) -> dict[str, Any]:
        raise AssertionError("it was read")

    monkeypatch.setattr("firesteel.rest.security.oidc.jwt.get_unverified_header", read)
    assert who(ATTACKS["huge"]) is None
    assert who(ATTACKS["four parts"]) is None


def test_only_signatures_with_public_keys_are_allowed() -> None:
    """S29"""
    assert {"RS256", "PS256", "ES256", "EdDSA"} == ALGORITHMS


def test_clocks_may_differ_a_little() -> None:
    now = int(time.time())  # this may run long after the module was imported
    assert who(sign(exp=now - 5)) == ALICE
    assert who(sign(nbf=now + 10, iat=now + 10)) == ALICE
    assert who(sign(nbf=None)) == ALICE
    assert who(sign(aud=["grafana", AUDIENCE])) == ALICE


def test_keys_that_are_not_for_signatures_or_too_weak_are_left_out() -> None:
    """S29: whatever the key set has in it, nothing is checked with a secret, a weak key or another curve."""
    secret = {"kty": "oct", "kid": "oct", "k": base64.urlsafe_b64encode(b"x" * 32).decode(), "alg": "HS256"}
    keys = parse_keys(
        {
            "keys": [
                secret,
                jwk(RSA, "encrypts", use="enc"),
                jwk(RSA, "hs", alg="HS256"),
                jwk(RSA, "none", alg="none"),
                jwk(WEAK_RSA, "weak"),
                jwk(EC_384, "p384"),
                {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
                {"kty": "EC", "kid": "off-curve", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
                {"kty": "unheard-of", "kid": "new"},
                {"kid": "no type"},
                {k: v for k, v in jwk(RSA, "x").items() if k != "kid"},
                "not a key",
                None,
                {**jwk(RSA, "numbered"), "kid": 7},
                jwk(RSA, "good"),
            ]
        }
    )
    assert list(keys) == ["good"]
    assert keys["good"].algorithms == {"RS256", "PS256"}


def test_a_key_set_is_bounded() -> None:
    """S29: JWKS cache bounded."""
    one = jwk(RSA, "x")
    assert len(parse_keys({"keys": [{**one, "kid": str(n)} for n in range(1000)]})) == 100


@pytest.mark.parametrize("jwks", [{}, {"keys": None}, {"keys": "rsa"}])
def test_what_is_no_key_set_is_an_error(jwks: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="list of keys"):
        parse_keys(jwks)


@pytest.mark.parametrize(
    ("claims", "options", "expected"),
    [
        ({"firesteel_role": "viewer"}, {}, Principal("alice", Role.VIEWER, "alice")),
        ({"firesteel_role": ["viewer", "admin", "x"]}, {}, Principal("alice", Role.ADMIN, "alice")),
        ({"roles": ["operator"]}, {"role_claim": "roles"}, ALICE),
        ({"realm_access": {"roles": ["operator", "offline_access"]}}, {"role_claim": "realm_access.roles"}, ALICE),
        ({"a.b": "operator", "a": {"b": "admin"}}, {"role_claim": "a.b"}, ALICE),
        ({"tenant": "team-a"}, {"owner_claim": "tenant"}, Principal("alice", Role.OPERATOR, "team-a")),
        ({"firesteel_role": "admin", "tenant": "*"}, {"owner_claim": "tenant"}, Principal("alice", Role.ADMIN, "*")),
    ],
)
def test_role_and_owner_come_from_the_configured_claims(
    claims: dict[str, Any], options: dict[str, Any], expected: Principal
) -> None:
    assert who(sign(**claims), **options) == expected


@pytest.mark.parametrize(
    ("claims", "options", "said"),
    [
        ({"firesteel_role": None}, {}, "no role"),
        ({"firesteel_role": "root"}, {}, "no role"),
        ({"firesteel_role": "Admin"}, {}, "no role"),
        ({"firesteel_role": {"admin": True}}, {}, "no role"),
        ({"firesteel_role": []}, {}, "no role"),
        ({"firesteel_role": "viewer admin"}, {}, "no role"),
        ({}, {"owner_claim": "tenant"}, "no owner"),
        ({"tenant": ["a"]}, {"owner_claim": "tenant"}, "no owner"),
        ({"tenant": "a\nb"}, {"owner_claim": "tenant"}, "no owner"),
        ({"tenant": "*"}, {"owner_claim": "tenant"}, "no owner"),
        ({"tenant": "*", "firesteel_role": "viewer"}, {"owner_claim": "tenant"}, "no owner"),
        ({"sub": "*"}, {}, "no owner"),
    ],
)
def test_a_good_token_without_role_or_owner_is_refused(
    claims: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    """S34: no role that nobody gave; and nobody can name themselves everybody."""
    with pytest.raises(ForbiddenError, match=said):
        who(sign(**claims), **options)


def test_a_subject_that_hides_something_is_nobody() -> None:
    assert who(sign(sub="al\u202eice")) is None
    assert who(sign(sub="*", firesteel_role="admin")) is None


def test_a_flood_of_unknown_key_ids_does_not_reach_the_issuer() -> None:
    """S29"""
    issuer, clock = Issuer(), Clock()

    async def flood() -> None:
        checked = verifier(issuer, clock)
        assert await checked.authenticate(sign()) == ALICE
        for number in range(200):
            assert await checked.authenticate(sign(kid=f"made-up-{number}")) is None
        assert len(issuer.asked) == 2  # discovery and keys, once
        clock.now += 10
        found = await asyncio.gather(*(checked.authenticate(sign(kid=f"made-up-{n}")) for n in range(50)))
        assert found == [None] * 50
        assert len(issuer.asked) == 4  # together
        await checked.close()

    asyncio.run(flood())


def test_a_new_key_of_the_issuer_is_found() -> None:
    issuer, clock = Issuer(jwk(RSA, "rsa")), Clock()

    async def scenario() -> None:
        checked = verifier(issuer, clock)
        assert await checked.authenticate(sign()) == ALICE
        issuer.keys = [jwk(OTHER_RSA, "next")]
        clock.now += 10
        assert await checked.authenticate(sign(OTHER_RSA, kid="next")) == ALICE
        assert await checked.authenticate(sign()) is None  # and the old one is gone with it
        await checked.close()

    asyncio.run(scenario())


def test_a_key_that_the_issuer_takes_back_stops_working() -> None:
    issuer, clock = Issuer(jwk(RSA, "rsa")), Clock()

    async def scenario() -> None:
        checked = verifier(issuer, clock)
        assert await checked.authenticate(sign()) == ALICE
        issuer.keys = []
        clock.now += 601

        async def gone() -> bool:  # the issuer is asked behind the back of this caller
            return await checked.authenticate(sign()) is None

        await until_async(gone)
        await checked.close()

    asyncio.run(scenario())


def test_known_keys_work_while_the_issuer_is_away_but_not_for_ever() -> None:
    """S29: JWKS down."""
    issuer, clock = Issuer(), Clock()

    async def scenario() -> None:
        checked = verifier(issuer, clock)
        assert await checked.authenticate(sign()) == ALICE
        issuer.down = True
        clock.now += 3600
        for _ in range(5):
            assert await checked.authenticate(sign()) == ALICE
            await asyncio.sleep(0)
        clock.now += 10
        with pytest.raises(AuthenticationUnavailableError, match="connection refused"):
            await checked.authenticate(sign(kid="perhaps-a-new-one"))
        clock.now += 86400
        with pytest.raises(AuthenticationUnavailableError):
            await checked.authenticate(sign())
        issuer.down = False
        clock.now += 10
        assert await checked.authenticate(sign()) == ALICE
        await checked.close()

    asyncio.run(scenario())


def test_without_keys_nobody_gets_in() -> None:
    """S29: JWKS down from the start; never open."""
    issuer, clock = Issuer(), Clock()
    issuer.down = True

    async def scenario() -> None:
        checked = verifier(issuer, clock)
        for _ in range(20):
            with pytest.raises(AuthenticationUnavailableError, match=ISSUER):
                await checked.authenticate(sign())
        assert len(issuer.asked) == 1
        assert await checked.authenticate("nonsense") is None
        await checked.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda r: httpx.Response(500), "500"),
        (lambda r: httpx.Response(302, headers={"location": "http://evil.example/keys"}), "302"),
        (lambda r: httpx.Response(200, content=b"<html>"), "are not available"),
        (lambda r: httpx.Response(200, content=b"[]"), "did not send a JSON object"),
        (lambda r: httpx.Response(200, content=b'{"keys": [' + b" " * 600_000), "more than"),
        (lambda r: httpx.Response(200, content=b"[" * 100_000), "are not available"),
        (
            lambda r: httpx.Response(200, json={"issuer": "https://evil.example", "jwks_uri": f"{ISSUER}/keys"}),
            "another",
        ),
        (lambda r: httpx.Response(200, json={"issuer": ISSUER, "jwks_uri": "http://issuer.example/keys"}), "https"),
        (lambda r: httpx.Response(200, json={"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"}), "https"),
        (lambda r: httpx.Response(200, json={"issuer": ISSUER}), "jwks_uri"),
    ],
)
def test_an_issuer_that_answers_nonsense_lets_nobody_in(answer: Any, said: str) -> None:
    issuer = Issuer()
    issuer.answer = answer
    with pytest.raises(AuthenticationUnavailableError, match=said):
        who(sign(), issuer)


def test_the_keys_can_be_named_without_discovery() -> None:
    issuer = Issuer()
    assert who(sign(), issuer, jwks_url=f"{ISSUER}/elsewhere") == ALICE
    assert issuer.asked == [f"{ISSUER}/elsewhere"]
    with pytest.raises(AuthenticationUnavailableError, match="neither https"):
        who(sign(), issuer, jwks_url="http://issuer.example/keys")
    assert who(sign(), issuer, jwks_url="http://127.0.0.1:8080/keys") == ALICE


def test_a_caller_who_goes_away_does_not_take_the_keys_from_the_others() -> None:
    issuer = Issuer()
    asked, let_go = asyncio.Event(), asyncio.Event()

    async def slow(request: httpx.Request) -> httpx.Response:
        asked.set()
        await let_go.wait()
        return issuer(request)

    async def scenario() -> None:
        client = httpx.AsyncClient(transport=httpx.MockTransport(slow))
        keys = IssuerKeys(ISSUER, f"{ISSUER}/keys", client)
        checked = OidcVerifier(
            keys, issuer=ISSUER, audience=AUDIENCE, role_claim="firesteel_role", owner_claim="sub", client=client
        )
        first = asyncio.create_task(checked.authenticate(sign()))
        await asked.wait()
        second = asyncio.create_task(checked.authenticate(sign()))
        await asyncio.sleep(0)
        first.cancel()
        let_go.set()
        assert await second == ALICE
        assert first.cancelled() or await asyncio.gather(first, return_exceptions=True)
        await checked.close()

    asyncio.run(scenario())


def test_the_attacks_would_work_on_a_verifier_that_does_not_check() -> None:
    """The attacks are real: with the checks off, each forged token that can be read at all says what it wants."""
    read = jwt.decode(ATTACKS["alg none"], options={"verify_signature": False})
    assert read["sub"] == "alice"
    assert jwt.decode(ATTACKS["claims changed"], options={"verify_signature": False})["firesteel_role"] == "admin"
