"""An OpenID Connect issuer with real keys, that answers inside this process and can be taken away."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from firesteel.rest.security.jwks import IssuerKeys
from firesteel.rest.security.oidc import OidcVerifier

ISSUER = "https://issuer.example"
AUDIENCE = "firesteel"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
WEAK_RSA = rsa.generate_private_key(public_exponent=65537, key_size=1024)
EC = ec.generate_private_key(ec.SECP256R1())
EC_384 = ec.generate_private_key(ec.SECP384R1())
ED = ed25519.Ed25519PrivateKey.generate()


def jwk(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    match key:
        case rsa.RSAPrivateKey():
            public = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case ec.EllipticCurvePrivateKey():
            public = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case _:
            public = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**public, "kid": kid, **more}


def sign(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa", headers: Any = None, **claims: Any) -> str:
    """A token that is good in all that is not said otherwise; a claim of None is left out."""
    now = int(time.time())
    whole = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "iat": now,
        "nbf": now,
        "exp": now + 600,
        "firesteel_role": "operator",
        **claims,
    }
    said = {**({"kid": kid} if kid is not None else {}), **(headers or {})}
    return jwt.encode({k: v for k, v in whole.items() if v is not None}, key, algorithm=algorithm, headers=said)


class Issuer:
    """Answers discovery and keys; counts what it was asked."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys = list(keys) or [
            jwk(RSA, "rsa"),
            jwk(EC, "ec", use="sig", alg="ES256"),
            jwk(ED, "ed"),
            jwk(RSA, "pss", alg="PS256"),
        ]
        self.asked: list[str] = []
        self.down = False
        self.answer: Callable[[httpx.Request], httpx.Response] | None = None
        self.discovery = {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(str(request.url))
        if self.down:
            raise httpx.ConnectError("connection refused", request=request)
        if self.answer is not None:
            return self.answer(request)
        if request.url.path == "/.well-known/openid-configuration":
            return httpx.Response(200, json=self.discovery)
        return httpx.Response(200, content=json.dumps({"keys": self.keys}))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def verifier(
    issuer: Issuer, clock: Clock | None = None, *, jwks_url: str | None = None, **options: Any
) -> OidcVerifier:
    client = httpx.AsyncClient(transport=httpx.MockTransport(issuer))
    keys = IssuerKeys(ISSUER, jwks_url, client, clock=clock or Clock(), max_age=600, min_interval=10, max_stale=86400)
    given = {"role_claim": "firesteel_role", "owner_claim": "sub", **options}
    return OidcVerifier(keys, issuer=ISSUER, audience=AUDIENCE, client=client, **given)
