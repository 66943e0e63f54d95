"""Credentials of workers and of joining ones: `fst_worker.<id>.<secret>` and `fst_join.<id>.<secret>`.

They are in the cluster's store and not in a file of this node, so that every node knows them: a worker may contact any node,
and the next leader.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from firesteel.config.sections import Role
from firesteel.errors import StoreError
from firesteel.rest.security.principals import AuthenticationUnavailableError, Principal
from firesteel.rest.security.rates import RateLimiter
from firesteel.stores.codec import UnreadableRecordError
from firesteel.stores.workers import JoinToken, WorkerRecord

logger = logging.getLogger(__name__)

WORKER_PREFIX = "fst_worker."
JOIN_PREFIX = "fst_join."
_WORKER = re.compile(r"fst_worker\.(w[0-9a-f]{16})\.([0-9a-f]{64})")
_JOIN = re.compile(r"fst_join\.([0-9a-f]{16})\.([0-9a-f]{64})")
_CHECK_EVERY = 1.0
"""Seconds between two reads of the records: a revoked credential may work for so long."""
_CHECK_FOR_UNKNOWN_EVERY = 0.1
"""The same for an unknown id or a wrong secret: a worker that has just joined should be accepted, but a flood of invented ids
must not become a flood of reads."""
_JOINS_PER_SECOND = 20.0
"""The rate limit on lookups of join tokens in the store, over all callers."""


def worker_bearer(worker: str, secret: str) -> str:
    return f"{WORKER_PREFIX}{worker}.{secret}"


def join_bearer(token_id: str, secret: str) -> str:
    return f"{JOIN_PREFIX}{token_id}.{secret}"


def worker_principal(worker: str) -> Principal:
    return Principal(worker, Role.WORKER, worker)


def joining_token(principal: Principal) -> str:
    """The id of the token of a JOINER."""
    return principal.name.removeprefix(_JOINER)


_JOINER = "join-"


class KnownWorkers(Protocol):
    """The read methods of a WorkerStore."""

    async def list(self) -> dict[str, WorkerRecord]: ...

    async def token(self, token_id: str) -> JoinToken | None: ...


class WorkerCredentials:
    """Authenticates workers by their records. Belongs to one event loop."""

    def __init__(
        self,
        workers: KnownWorkers,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workers = workers
        self._now = now
        self._clock = clock
        self._asking = asyncio.Lock()
        self._known: Mapping[str, WorkerRecord] = {}
        self._read_at: float | None = None
        self._joins = RateLimiter(_JOINS_PER_SECOND, 10 * _JOINS_PER_SECOND, clock=clock)

    @staticmethod
    def means_worker(token: str) -> bool:
        """Whether the token has the form of a worker's or joiner's token."""
        return token.startswith((WORKER_PREFIX, JOIN_PREFIX))

    async def authenticate(self, token: str) -> Principal | None:
        """The principal of a token; None if it is unknown, revoked or expired.

        Raises AuthenticationUnavailableError while the store cannot be read.
        """
        try:
            if found := _WORKER.fullmatch(token):
                return await self._worker(found[1], found[2])
            if found := _JOIN.fullmatch(token):
                return await self._joiner(found[1], found[2])
        except StoreError as error:
            logger.warning("workers cannot be authenticated: %s", error)
            raise AuthenticationUnavailableError(f"the records of workers cannot be read: {error}") from error
        return None

    async def is_revoked(self, worker: str) -> bool:
        """Whether the credential of a worker for which a node vouches was revoked."""
        try:
            record = (await self._records(_CHECK_EVERY)).get(worker)
        except StoreError as error:
            raise AuthenticationUnavailableError(f"the records of workers cannot be read: {error}") from error
        return record is not None and record.revoked

    async def _worker(self, worker: str, secret: str) -> Principal | None:
        for max_age in (_CHECK_EVERY, _CHECK_FOR_UNKNOWN_EVERY):
            record = (await self._records(max_age)).get(worker)
            if record is not None and record.opened_by(secret):
                return worker_principal(worker)
        return None

    async def _joiner(self, token_id: str, secret: str) -> Principal | None:
        if self._joins.take(None):
            raise AuthenticationUnavailableError("too many join tokens are being tried; try again later")
        try:
            token = await self._workers.token(token_id)
        except UnreadableRecordError as error:
            logger.error("a join token cannot be read: %s", error)
            return None
        if token is None or not token.opened_by(secret) or token.expires_at <= self._now():
            return None
        return Principal(f"{_JOINER}{token_id}", Role.JOINER, f"{_JOINER}{token_id}")

    async def _records(self, max_age: float) -> Mapping[str, WorkerRecord]:
        if self._due(max_age):
            async with self._asking:
                if self._due(max_age):
                    began = self._clock()
                    self._known = await self._workers.list()
                    self._read_at = began
        return self._known

    def _due(self, max_age: float) -> bool:
        return self._read_at is None or self._clock() - self._read_at >= max_age
