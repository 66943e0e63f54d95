"""Callers and their permissions.

A Principal exists only for a verified credential, or for everybody where authentication is `none`: there is no role without
an identity (S34).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firesteel.config.sections import Role
from firesteel.errors import FiresteelError, ForbiddenError
from firesteel.types import hides_nothing

EVERYBODY = "*"
"""The owner of a principal that may see the jobs of all owners."""
_LONGEST_NAME = 200
_RANK: Mapping[Role, int] = {
    Role.JOINER: -1,
    Role.WORKER: -1,
    Role.SCRAPER: -1,
    Role.VIEWER: 0,
    Role.OPERATOR: 1,
    Role.ADMIN: 2,
}


class AuthenticationUnavailableError(FiresteelError):
    """Callers cannot be authenticated, because keys or tokens cannot be read. All are refused meanwhile."""


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller."""

    name: str
    """The token, subject or certificate, for logs and the audit log."""
    role: Role
    owner: str
    """The tenant whose jobs the principal sees; `*` means all tenants, for admins and for viewers that were given it."""
    application: str = ""
    """The id of the application whose program this is; empty for everybody else."""

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("owner", self.owner)):
            if not is_name(text):
                raise ValueError(
                    f"the {what} of a principal is 1 to {_LONGEST_NAME} printable characters, not {text[:300]!r}"
                )
        if self.name == EVERYBODY:
            raise ValueError("a principal cannot be called '*', which means everybody")
        if self.role is Role.OPERATOR and self.owner == EVERYBODY:
            # It would be an admin under another name.
            raise ValueError("an operator belongs to one owner; give one, or the role admin")

    @property
    def submits_as(self) -> str:
        """The owner of the jobs that this principal submits."""
        return self.name if self.owner == EVERYBODY else self.owner


SCRAPED = "/metrics"
"""The only path that a scraper may read."""


def may_scrape(principal: Principal) -> bool:
    """Whether the principal may read the metrics of a node, which cover all owners."""
    return principal.role in (Role.SCRAPER, Role.ADMIN) or principal.owner == EVERYBODY


def is_name(text: str) -> bool:
    """Whether `text` can be the name of a principal or owner. Names appear in logs and answers, so they must be printable."""
    if not 1 <= len(text) <= _LONGEST_NAME or text != text.strip():
        return False
    return hides_nothing(text)


def at_least(principal: Principal, role: Role) -> bool:
    """Whether the principal's role is `role` or a higher one: viewer < operator < admin."""
    return _RANK[principal.role] >= _RANK[role]


def may_read(principal: Principal, owner: str) -> bool:
    """Whether the principal may see what belongs to `owner`."""
    if _RANK[principal.role] < 0:
        return False
    return principal.role is Role.ADMIN or principal.owner in (owner, EVERYBODY)


def may_write(principal: Principal, owner: str) -> bool:
    """Whether the principal may change what belongs to `owner`."""
    return principal.role is Role.ADMIN or (principal.role is Role.OPERATOR and principal.owner == owner)


def require(principal: Principal, role: Role) -> None:
    """Raises ForbiddenError unless the principal has `role` or a higher one."""
    if not at_least(principal, role):
        raise ForbiddenError(
            f"{principal.name} has the role {principal.role.value}, but this needs {role.value}; ask an admin for it"
        )
