"""The public keys of an OpenID Connect issuer: fetched, cached, and fetched again at a limited rate.

Callers cannot make the node query the issuer more than once in `min_interval`, however many key ids they invent. While the
issuer is unavailable, known keys keep working for a day.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from firesteel.concurrency import OwnedTasks
from firesteel.rest.security.addresses import is_trustworthy
from firesteel.rest.security.principals import AuthenticationUnavailableError

logger = logging.getLogger(__name__)

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey
_ALGORITHMS: Mapping[str, frozenset[str]] = {
    "RSA": frozenset({"RS256", "PS256"}),
    "EC": frozenset({"ES256"}),
    "OKP": frozenset({"EdDSA"}),
}
ALGORITHMS = frozenset[str]().union(*_ALGORITHMS.values())
"""Only algorithms with public keys: `none` signs nothing, and HS256 would use the public key as its secret."""
_MAX_BYTES = 512 * 1024
_MAX_KEYS = 100
_FETCH_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """One key with its algorithms; a token cannot choose another algorithm for it."""

    key: PublicKey
    algorithms: frozenset[str]


class IssuerKeys:
    """The keys of one issuer by id."""

    def __init__(
        self,
        issuer: str,
        jwks_url: str | None,
        client: httpx.AsyncClient,
        *,
        max_age: float = 600.0,
        min_interval: float = 10.0,
        max_stale: float = 86400.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = issuer
        self._jwks_url = jwks_url
        self._client = client
        self._max_age = max_age
        self._min_interval = min_interval
        self._max_stale = max_stale
        self._clock = clock
        self._keys: Mapping[str, IssuerKey] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._failure = ""
        self._fetching: asyncio.Task[None] | None = None
        self._tasks = OwnedTasks("issuer-keys", on_error=lambda _: None)

    async def key(self, key_id: str) -> IssuerKey | None:
        """The key of that id; None when the issuer has none.

        Raises:
            AuthenticationUnavailableError: the issuer cannot be reached, and the cached keys do not answer the question.
        """
        known = self._known(key_id)
        if (known is None or self._age() > self._max_age) and self._may_try():
            await self._refresh(wait=known is None)
            known = self._known(key_id)
        if known is None and self._failure:
            raise AuthenticationUnavailableError(f"the keys of {self._issuer} are not available: {self._failure}")
        return known

    async def close(self) -> None:
        await self._tasks.close()

    def _known(self, key_id: str) -> IssuerKey | None:
        return self._keys.get(key_id) if self._age() <= self._max_stale else None

    def _age(self) -> float:
        return float("inf") if self._fetched_at is None else self._clock() - self._fetched_at

    def _may_try(self) -> bool:
        if self._fetching is not None:
            return True  # a request is already under way
        return self._tried_at is None or self._clock() - self._tried_at >= self._min_interval

    async def _refresh(self, *, wait: bool) -> None:
        """Fetch the keys, sharing one request between callers. A caller whose key is known need not wait."""
        if self._fetching is None:
            self._tried_at = self._clock()
            self._fetching = self._tasks.start(self._fetch(), "fetch")
            self._fetching.add_done_callback(self._fetched)
        if wait:
            # A caller that is cancelled must not cancel the request of the others.
            await asyncio.shield(self._fetching)

    def _fetched(self, _: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(
                _FETCH_TIMEOUT
            ):  # the client's own limits apply to each read, and there may be many
                url = self._jwks_url or await self._discover()
                keys = parse_keys(await self._get(url))
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, TimeoutError, RecursionError) as error:
            self._failure = str(error) or type(error).__name__
            logger.warning("cannot fetch the keys of issuer %s: %s", self._issuer, self._failure)
            return
        self._keys, self._fetched_at, self._failure = keys, self._clock(), ""

    async def _discover(self) -> str:
        url = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        document = await self._get(url)
        if document.get("issuer") != self._issuer:
            raise ValueError(f"{url} names another issuer than {self._issuer}")
        found = document.get("jwks_uri")
        if not isinstance(found, str):
            raise ValueError(f"{url} has no jwks_uri")
        return found

    async def _get(self, url: str) -> dict[str, Any]:
        if not is_trustworthy(url):
            raise ValueError(f"{url} is neither https nor on this machine")
        body = bytearray()
        # Redirects are not followed: they could lead to an unencrypted URL.
        async with self._client.stream("GET", url, follow_redirects=False) as response:
            if response.status_code != 200:
                raise ValueError(f"{url} answered {response.status_code}")
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _MAX_BYTES:
                    raise ValueError(f"{url} sent more than {_MAX_BYTES} bytes")
        found = json.loads(body)
        if not isinstance(found, dict):
            raise ValueError(f"{url} did not send a JSON object")
        return found


def parse_keys(jwks: Mapping[str, Any]) -> dict[str, IssuerKey]:
    """The keys of a JSON web key set that can verify signatures, without the others.

    Raises:
        ValueError: it is not a key set.
    """
    listed = jwks.get("keys")
    if not isinstance(listed, list):
        raise ValueError("the key set has no list of keys")
    keys: dict[str, IssuerKey] = {}
    for jwk in listed[:_MAX_KEYS]:
        if isinstance(jwk, dict) and isinstance(jwk.get("kid"), str) and (key := _parse_key(jwk)) is not None:
            keys[jwk["kid"]] = key
    return keys


def _parse_key(jwk: dict[str, Any]) -> IssuerKey | None:
    algorithms = _ALGORITHMS.get(str(jwk.get("kty")), frozenset())
    if "alg" in jwk:
        algorithms &= {str(jwk["alg"])}
    if not algorithms or jwk.get("use", "sig") != "sig" or "d" in jwk:
        return None
    try:
        key = jwt.PyJWK(jwk, algorithm=min(algorithms)).key
    except (jwt.PyJWTError, ValueError):
        return None
    match key:
        case RSAPublicKey():
            usable = key.key_size >= 2048
        case EllipticCurvePublicKey():
            usable = isinstance(key.curve, SECP256R1)
        case _:
            usable = isinstance(key, Ed25519PublicKey | Ed448PublicKey)
    return IssuerKey(key, algorithms) if usable else None
