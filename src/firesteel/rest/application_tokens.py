"""How the program of an application is known to its cluster: by a token that only its driver has.

It is signed with a key that is derived from a secret of the cluster, so every node can check it, and a program that outlives
the leader keeps it. The program has the rights of whoever deployed the application, and no more.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable

import jwt

from firesteel.config.sections import Role
from firesteel.rest.security.principals import Principal
from firesteel.types import JobID, parse_job_id

APPLICATION_PREFIX = "fst_app."
ALGORITHM = "HS256"


class ApplicationTokens:
    """Makes and reads them; `secret` is that of the cluster. Raises StoreUnavailableError when it cannot be read."""

    def __init__(self, secret: Callable[[], Awaitable[bytes]]) -> None:
        self._secret = secret

    async def issue(self, application_id: JobID, owner: str, *, restricted: bool) -> str:
        claims = {"application": application_id, "owner": owner, "restricted": restricted}
        return APPLICATION_PREFIX + jwt.encode(claims, await self._key(), ALGORITHM)

    async def authenticate(self, token: str) -> Principal | None:
        """None for a token that is forged or damaged."""
        try:
            text = token.removeprefix(APPLICATION_PREFIX)
            claims = jwt.decode(text, await self._key(), algorithms=[ALGORITHM])
            application = parse_job_id(claims["application"])
            role = Role.OPERATOR if claims["restricted"] else Role.ADMIN
            return Principal(f"application-{application}", role, claims["owner"], application)
        except (jwt.InvalidTokenError, ValueError, KeyError, TypeError):
            return None

    async def _key(self) -> bytes:
        return hmac.new(await self._secret(), b"application tokens", hashlib.sha256).digest()
