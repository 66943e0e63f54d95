"""Bearer tokens of an OpenID Connect issuer: JSON web tokens, checked against the issuer's keys (S29)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Self

import httpx
import jwt

from firesteel.config.sections import Role, SecurityOptions
from firesteel.errors import ForbiddenError
from firesteel.rest.security.jwks import ALGORITHMS, IssuerKeys
from firesteel.rest.security.principals import EVERYBODY, Principal, is_name

logger = logging.getLogger(__name__)

_LEEWAY = 30.0
"""Seconds by which the issuer's clock and ours may differ."""
_LONGEST = 16 * 1024
_TIMEOUT = httpx.Timeout(5.0)


class OidcVerifier:
    """Authenticates callers by the tokens of one issuer. Its creator closes it."""

    def __init__(
        self,
        keys: IssuerKeys,
        *,
        issuer: str,
        audience: str,
        role_claim: str,
        owner_claim: str,
        client: httpx.AsyncClient | None = None,
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._role_claim = role_claim
        self._owner_claim = owner_claim
        self._client = client
        """Ours to close."""

    @classmethod
    def of(cls, options: SecurityOptions) -> Self:
        """The configured verifier; `check_door` has checked that issuer and audience are set."""
        assert options.oidc_issuer
        assert options.oidc_audience
        client = httpx.AsyncClient(timeout=_TIMEOUT, limits=httpx.Limits(max_connections=4))
        return cls(
            IssuerKeys(options.oidc_issuer, options.oidc_jwks_url, client),
            issuer=options.oidc_issuer,
            audience=options.oidc_audience,
            role_claim=options.oidc_role_claim,
            owner_claim=options.oidc_owner_claim,
            client=client,
        )

    async def authenticate(self, token: str) -> Principal | None:
        """The caller of a token; None if it does not come from the issuer, is not for us, or is not valid now.

        Raises:
            AuthenticationUnavailableError: the issuer's keys are not available.
            ForbiddenError: the token is valid, but gives its holder no role.
        """
        claims = await self._claims(token)
        if claims is None:
            return None
        subject = str(claims.get("sub") or _claim(claims, self._owner_claim) or "")
        if not is_name(subject):
            return None
        role = _role(_claim(claims, self._role_claim))
        if role is None:
            raise ForbiddenError(
                f"the token of {subject} has no role in its claim '{self._role_claim}'; "
                f"configure the issuer to put viewer, operator or admin there"
            )
        owner = _claim(claims, self._owner_claim)
        # A name that people can choose must not become `*`, which stands for everybody.
        if not isinstance(owner, str) or not is_name(owner) or (owner == EVERYBODY and role is not Role.ADMIN):
            raise ForbiddenError(f"the token of {subject} has no owner in its claim '{self._owner_claim}'")
        if subject == EVERYBODY:
            return None
        return Principal(subject, role, owner)

    async def _claims(self, token: str) -> dict[str, Any] | None:
        if len(token) > _LONGEST or token.count(".") != 2:
            return None
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            # Keys only come from the issuer: jwk, jku and x5u in the header are ignored.
            if algorithm not in ALGORITHMS or not isinstance(key_id, str) or "crit" in header:
                return None
            key = await self._keys.key(key_id)
            if key is None or algorithm not in key.algorithms:
                return None
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                issuer=self._issuer,
                audience=self._audience,
                leeway=_LEEWAY,
                # Not before (nbf) is checked if it is present; several well-known issuers leave it out.
                options={"require": ["exp", "iss", "aud"], "verify_signature": True},
            )
        except (jwt.PyJWTError, ValueError) as error:
            logger.debug("a token was refused: %s", error)
            return None
        return claims

    async def close(self) -> None:
        await self._keys.close()
        if self._client is not None:
            await self._client.aclose()


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of that name; a dotted name that is not a claim itself is a path: `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def _role(claim: object) -> Role | None:
    """The highest role in a claim, which is a word or a list. Other words in it belong to other systems."""
    words = claim if isinstance(claim, list) else [claim]
    return next((role for role in (Role.ADMIN, Role.OPERATOR, Role.VIEWER, Role.SCRAPER) if role.value in words), None)
