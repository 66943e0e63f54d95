"""The job id for an idempotency key of an owner: the same for every leader, and unpredictable to others (S41).

It is derived, so that nothing has to be written before the job itself, and two submissions with one key are one job (I3).
A secret of the cluster goes into it, because callers may choose job ids: whoever could predict the id for the next key of
another user could take that id first.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from firesteel.errors import StoreUnavailableError, VersionConflictError
from firesteel.ha.protocols import NEW, Epoch, StateStore
from firesteel.types import JobID

_PATH = "cluster/job-key"
_BYTES = 32


async def ensure_job_key(store: StateStore, epoch: Epoch) -> None:
    """Draw the secret if there is none. It never changes: with another secret, a key would stand for another job."""
    if await store.get(_PATH) is None:
        try:
            await store.put(_PATH, secrets.token_bytes(_BYTES), epoch=epoch, expected=NEW)
        except VersionConflictError:
            pass  # the write had happened, but its answer was lost


class JobKeys:
    """Derives job ids. The secret is read once."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._secret: bytes | None = None

    async def __call__(self, owner: str, key: str) -> JobID:
        """The job id for `key`. Raises StoreUnavailableError when the secret cannot be read."""
        return job_id_of(await self.secret(), owner, key)

    async def secret(self) -> bytes:
        """Raises StoreUnavailableError when it cannot be read."""
        if self._secret is None:
            stored = await self._store.get(_PATH)
            if stored is None or len(stored.value) != _BYTES:
                raise StoreUnavailableError(f"{_PATH} is not in the store; try again once the cluster has a leader")
            self._secret = stored.value
        return self._secret


def job_id_of(secret: bytes, owner: str, key: str) -> JobID:
    text = f"{len(owner)}\0{owner}\0{key}".encode()
    return JobID(hmac.new(secret, text, hashlib.sha256).hexdigest()[:32])
