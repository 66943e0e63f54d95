"""Enrollment: how a host becomes a worker of the cluster. One for each leadership."""

from __future__ import annotations

import logging
from collections.abc import Callable

from firesteel.errors import InvalidRequestError, Problem
from firesteel.ha.protocols import Epoch
from firesteel.stores.workers import (
    IssuedToken,
    WorkerRecord,
    WorkerStore,
    is_secret_digest,
    is_worker_id,
    is_worker_name,
)

logger = logging.getLogger(__name__)

DEFAULT_LIFETIME = 3600.0
MAX_LIFETIME = 7 * 86400.0
"""Seconds. A token that lies around for longer is one that somebody finds."""


class Enrollment:
    def __init__(
        self,
        store: WorkerStore,
        epoch: Epoch,
        *,
        now: Callable[[], float],
        joined: Callable[[WorkerRecord], None],
    ) -> None:
        """`joined` is told of each worker that has joined, once that is durable; it may be told again."""
        self._store = store
        self._epoch = epoch
        self._now = now
        self._joined = joined

    async def issue(self, name: str = "", lifetime: float = DEFAULT_LIFETIME) -> IssuedToken:
        """A token for one worker, which has to be called `name` if one is given."""
        if name:
            _check_name(name)
        if not 0 < lifetime <= MAX_LIFETIME:
            fix = f"choose a lifetime of at most {MAX_LIFETIME / 86400:g} days"
            raise InvalidRequestError(
                [Problem(f"a join token cannot be valid for {lifetime:g} s", fix, field="expires")]
            )
        now = self._now()
        return await self._store.issue(expires_at=now + lifetime, now=now, epoch=self._epoch, name=name)

    async def join(self, token_id: str, *, worker: str, name: str, secret_sha256: str, host: str = "") -> WorkerRecord:
        """Let the holder of a token in. The worker has drawn its id and its secret, so that a join whose answer was lost can be
        repeated. See WorkerStore.join for what it raises."""
        _check_name(name)
        if not is_worker_id(worker):
            raise InvalidRequestError([Problem("is not a worker id", "use w and 16 random hex digits", field="id")])
        if not is_secret_digest(secret_sha256):
            fix = "send the SHA-256 of the secret as 64 hex digits"
            raise InvalidRequestError([Problem("is not the digest of a secret", fix, field="secret_sha256")])
        newcomer = WorkerRecord(worker, name, secret_sha256, host[:253], joined_at=self._now())
        record = await self._store.join(token_id, newcomer, now=self._now(), epoch=self._epoch)
        logger.info("worker %s (%s) has joined", record.name, record.id)
        self._joined(record)
        return record


def _check_name(name: str) -> None:
    if not is_worker_name(name):
        fix = "use 1 to 128 letters, digits, dots, dashes and underscores, beginning and ending with a letter or digit"
        raise InvalidRequestError([Problem(f"'{name[:200]}' cannot be the name of a worker", fix, field="name")])
