"""How nodes vouch for callers, and how the owner of a node's files is known: bearer tokens that are in no tokens file.

A caller proves who it is to the node that it talks to. What goes on to the leader is that identity, signed with a key that
only nodes of the cluster have, and never the caller's credential (S32). The signature holds for one leadership, one request
line and a while.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson

from firesteel.config.sections import Role
from firesteel.ha.protocols import Epoch
from firesteel.rest.security.identities import BearerVerifier
from firesteel.rest.security.principals import Principal

VALID_SECONDS = 70 * 60.0
"""Beyond any difference between the clocks of two nodes; a claim is bound to a leadership and to a request anyway."""
NODE_PREFIX = "fst_node."
LOCAL_PREFIX = "fst_local."


@dataclass(frozen=True, slots=True)
class Claim:
    """What a node says of a request that it passes on."""

    principal: Principal
    epoch: Epoch
    until: float
    target: str
    """Method and path with query."""


class NodeIdentity:
    """Signs and reads claims. `key` is a secret of the cluster."""

    def __init__(self, key: Callable[[], Awaitable[bytes]], now: Callable[[], float] = time.time) -> None:
        self._key = key
        self._now = now

    async def token(self, principal: Principal, epoch: Epoch, target: str) -> str:
        claim = {
            "name": principal.name,
            "role": principal.role.value,
            "owner": principal.owner,
            "epoch": epoch,
            "until": self._now() + VALID_SECONDS,
            "target": target,
        }
        text = base64.urlsafe_b64encode(orjson.dumps(claim)).decode()
        return f"{NODE_PREFIX}{text}.{_signature(await self._key(), text)}"

    async def read(self, token: str) -> Claim | None:
        """None for a claim that is forged, damaged or too old."""
        text, _, signature = token.removeprefix(NODE_PREFIX).partition(".")
        if not token.startswith(NODE_PREFIX) or not hmac.compare_digest(
            _signature(await self._key(), text).encode(), signature.encode()
        ):
            return None
        try:
            data = orjson.loads(base64.urlsafe_b64decode(text))
            principal = Principal(data["name"], Role(data["role"]), data["owner"])
            claim = Claim(principal, Epoch(data["epoch"]), float(data["until"]), data["target"])
        except (ValueError, KeyError, TypeError, binascii.Error):
            return None  # signed by a node of another version
        return claim if claim.until >= self._now() else None


def _signature(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Bearers:
    """All bearer tokens of a node: those of nodes, the one of its owner, and those of the tokens file, if that is in use."""

    def __init__(self, nodes: NodeIdentity, owner: Principal, tokens: BearerVerifier | None) -> None:
        self._nodes = nodes
        self._owner = owner
        self._tokens = tokens
        self.local_token = LOCAL_PREFIX + secrets.token_hex(32)
        """Drawn at each start and written nowhere; `local_door` hands it to processes of the node's own user."""

    async def authenticate(self, token: str) -> Principal | None:
        if token.startswith(NODE_PREFIX):
            claim = await self._nodes.read(token)
            return claim.principal if claim else None
        if token.startswith(LOCAL_PREFIX):
            return self._owner if hmac.compare_digest(token.encode(), self.local_token.encode()) else None
        return await self._tokens.authenticate(token) if self._tokens is not None else None
