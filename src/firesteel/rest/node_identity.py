"""Bearer tokens that are not in the tokens file: those with which nodes vouch for callers, and that of the node's owner.

A caller authenticates to the node that it talks to. The node forwards that identity to the leader, signed with a key that
only nodes of the cluster have and that each leader draws anew, and never the caller's credential (S32). The signature is
valid for one leadership, one request line, half a minute and one use.
"""

from __future__ import annotations

import contextlib
import hmac
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jwt

from firesteel.config.sections import Role
from firesteel.errors import ForbiddenError
from firesteel.ha.protocols import Epoch
from firesteel.rest.application_tokens import APPLICATION_PREFIX
from firesteel.rest.security.identities import NODE_PREFIX, BearerVerifier
from firesteel.rest.security.principals import Principal
from firesteel.rest.security.worker_credentials import WorkerCredentials

VALID_SECONDS = 30.0
"""Lifetime of a claim by the clock of the leader, which it tells to a node whose claim it rejects."""
ALGORITHM = "HS256"
CLOCK_HEADER = "firesteel-clock"
LOCAL_PREFIX = "fst_local."


class Keys(Protocol):
    """Secrets of the cluster, one for each leadership."""

    def own(self, epoch: Epoch) -> Sequence[bytes]: ...

    async def of(self, epoch: Epoch) -> bytes | None: ...

    def forget(self, epoch: Epoch) -> None: ...


@dataclass(frozen=True, slots=True)
class Claim:
    """What a node states about a request that it forwards."""

    principal: Principal
    epoch: Epoch
    until: float
    target: str
    """The method and the path with its query."""
    once: str
    """A random value for this request."""


class NodeIdentity:
    """Signs claims for the leader of an epoch, and reads those that were made for this node."""

    def __init__(self, keys: Keys, now: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._now = now
        self._ahead = 0.0
        """Seconds by which the clock of the leader is ahead of ours, as it reported when it rejected a claim."""
        self._used: OrderedDict[str, float] = OrderedDict()

    async def token(self, principal: Principal, epoch: Epoch, target: str) -> str | None:
        """A signed claim; None while that leader has drawn no key, or when another one leads by now."""
        key = await self._keys.of(epoch)
        if key is None:
            return None
        claim = {
            "name": principal.name,
            "role": principal.role.value,
            "owner": principal.owner,
            "application": principal.application,
            "epoch": epoch,
            "until": self._now() + self._ahead + VALID_SECONDS,
            "target": target,
            "once": secrets.token_hex(16),
        }
        return NODE_PREFIX + jwt.encode(claim, key, ALGORITHM, headers={"kid": str(epoch)})

    def was_not_believed(self, epoch: Epoch, clock: str | None) -> None:
        """The leader rejected a claim: the key may have been drawn anew, or the clocks differ. It reports its own time."""
        self._keys.forget(epoch)
        try:
            shown = float(clock or "")
        except ValueError:
            return
        if math.isfinite(shown):
            self._ahead = shown - self._now()

    async def read(self, token: str) -> Claim | None:
        """Read a claim; None if it is forged, damaged, expired, or valid for longer than allowed."""
        if not token.startswith(NODE_PREFIX):
            return None
        text = token.removeprefix(NODE_PREFIX)
        try:
            keys = self._keys.own(Epoch(int(jwt.get_unverified_header(text)["kid"])))
            data = _verified(text, keys)
            if data is None:
                return None
            principal = Principal(data["name"], Role(data["role"]), data["owner"], str(data.get("application", "")))
            claim = Claim(principal, Epoch(data["epoch"]), float(data["until"]), data["target"], str(data["once"]))
        except (jwt.InvalidTokenError, ValueError, KeyError, TypeError):
            return None  # malformed, or from a node of another version
        return claim if self._now() <= claim.until <= self._now() + 2 * VALID_SECONDS else None

    def is_first_use(self, claim: Claim) -> bool:
        """Whether a claim, which is valid for one request, is used for the first time. It is remembered until it expires."""
        while self._used and next(iter(self._used.values())) < self._now():
            self._used.popitem(last=False)
        if claim.once in self._used:
            return False
        self._used[claim.once] = self._now() + 2 * VALID_SECONDS
        return True


def _verified(text: str, keys: Sequence[bytes]) -> dict[str, Any] | None:
    """The content of a token that is signed with one of the keys."""
    for key in keys:
        with contextlib.suppress(jwt.InvalidSignatureError):
            data: dict[str, Any] = jwt.decode(text, key, algorithms=[ALGORITHM])
            return data
    return None


class Bearers:
    """All bearer tokens of a node: those of nodes and of applications, that of its owner, and those of the tokens file, if it
    is used."""

    def __init__(
        self,
        nodes: NodeIdentity,
        owner: Principal,
        tokens: BearerVerifier | None,
        applications: BearerVerifier | None = None,
    ) -> None:
        self._applications = applications
        self._nodes = nodes
        self._owner = owner
        self._tokens = tokens
        self.local_token = LOCAL_PREFIX + secrets.token_hex(32)
        """Drawn at each start and never written; `local_door` gives it to processes of the node's own user."""

    async def authenticate(self, token: str) -> Principal | None:
        if token.startswith(NODE_PREFIX):
            claim = await self._nodes.read(token)
            return claim.principal if claim else None
        if token.startswith(APPLICATION_PREFIX):
            return await self._applications.authenticate(token) if self._applications is not None else None
        if token.startswith(LOCAL_PREFIX):
            return self._owner if hmac.compare_digest(token.encode(), self.local_token.encode()) else None
        return await self._tokens.authenticate(token) if self._tokens is not None else None


class MachineBearers:
    """Bearer tokens of workers: their own, those with which they join, and claims of nodes that speak for one."""

    def __init__(self, nodes: NodeIdentity, workers: WorkerCredentials) -> None:
        self._nodes = nodes
        self._workers = workers

    async def authenticate(self, token: str) -> Principal | None:
        """The principal of a token; None for a claim about a caller that is not a worker."""
        if not token.startswith(NODE_PREFIX):
            return await self._workers.authenticate(token)
        claim = await self._nodes.read(token)
        if claim is None or claim.principal.role not in (Role.WORKER, Role.JOINER):
            return None
        if claim.principal.role is Role.WORKER and await self._workers.is_revoked(claim.principal.name):
            raise ForbiddenError(f"worker {claim.principal.name} was revoked")
        return claim.principal
