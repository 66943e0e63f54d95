"""Authentication of callers: by a bearer token or a client certificate, and by nothing else in a request (S13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

from firesteel.config.sections import Authentication, SecurityOptions
from firesteel.rest.security.mtls import certificate_principals, common_name
from firesteel.rest.security.oidc import OidcVerifier
from firesteel.rest.security.principals import Principal
from firesteel.rest.security.tokens import TOKEN_PREFIX, TokenFile
from firesteel.rest.security.worker_credentials import JOIN_PREFIX, WORKER_PREFIX

ANONYMOUS = "anonymous"
NODE_PREFIX = "fst_node."
"""What nodes say of a request that they pass on, or make for their own worker."""
OF_MACHINES = (NODE_PREFIX, WORKER_PREFIX, JOIN_PREFIX)


class BearerVerifier(Protocol):
    async def authenticate(self, token: str) -> Principal | None: ...


class CallerIdentity(NamedTuple):
    principal: Principal
    ambient: bool
    """The browser authenticates the caller automatically, whichever page sends the request, so the page is checked too."""
    session: bool = False
    """Authenticated by a cookie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identities:
    """The configured authentication methods."""

    tokens: BearerVerifier | None = None
    workers: BearerVerifier | None = None
    """Of machines of the cluster itself, which are known whatever the ways for people are."""
    oidc: BearerVerifier | None = None
    certificates: Mapping[str, Principal] | None = None
    anonymous: Principal | None = None

    @classmethod
    def of(cls, security: SecurityOptions) -> Self:
        """The configured identities. `check_door` has checked the options; the caller closes the result."""
        methods = security.authentication
        return cls(
            tokens=TokenFile(security.tokens_file) if Authentication.TOKEN in methods else None,
            oidc=OidcVerifier.of(security) if Authentication.OIDC in methods else None,
            certificates=certificate_principals(security.mtls_roles) if Authentication.MTLS in methods else None,
            # An owner of its own: without authentication, callers do not see what belongs to authenticated ones.
            anonymous=(
                Principal(ANONYMOUS, security.anonymous_role, ANONYMOUS) if methods == (Authentication.NONE,) else None
            ),
        )

    async def identify(self, bearer: str | None, certificate: Mapping[str, Any] | None) -> CallerIdentity | None:
        """The caller of a request; None when nothing authenticates it.

        A certificate does not make up for a wrong bearer token: the caller meant to be someone else.
        """
        if bearer is not None and self.workers is not None and bearer.startswith(OF_MACHINES):
            machine = await self.workers.authenticate(bearer)
            if machine is not None:
                return CallerIdentity(machine, ambient=False)
            if not bearer.startswith(NODE_PREFIX):
                return None
        if self.anonymous is not None:
            return CallerIdentity(self.anonymous, ambient=True)
        if bearer is not None:
            verifier = self.tokens if bearer.startswith(TOKEN_PREFIX) else self.oidc
            principal = await verifier.authenticate(bearer) if verifier is not None else None
            return CallerIdentity(principal, ambient=False) if principal is not None else None
        if self.certificates is not None and certificate:
            known = self.certificates.get(common_name(certificate) or "")
            return CallerIdentity(known, ambient=True) if known is not None else None
        return None

    async def close(self) -> None:
        if isinstance(self.oidc, OidcVerifier):
            await self.oidc.close()
