"""Which job an idempotency key of an owner stands for: the same for every leader, and nobody else can tell (S41).

Derived, so that nothing has to be written before the job itself is, and two submissions with one key are one job (I3). From a
secret of the cluster, as anybody may choose the id of a job: who could tell the id of somebody's next key could take it.
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
    """The first leader of a cluster draws the secret, and it stays: with another one, a key would be another job."""
    if await store.get(_PATH) is None:
        try:
            await store.put(_PATH, secrets.token_bytes(_BYTES), epoch=epoch, expected=NEW)
        except VersionConflictError:
            pass  # an answer got lost, and the write had happened


class JobKeys:
    """Reads the secret once."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._secret: bytes | None = None

    async def __call__(self, owner: str, key: str) -> JobID:
        """Raises StoreUnavailableError when the secret cannot be read."""
        if self._secret is None:
            stored = await self._store.get(_PATH)
            if stored is None or len(stored.value) != _BYTES:
                raise StoreUnavailableError(f"{_PATH} is not in the store; try again once a leader is there")
            self._secret = stored.value
        return job_id_of(self._secret, owner, key)


def job_id_of(secret: bytes, owner: str, key: str) -> JobID:
    text = f"{len(owner)}\0{owner}\0{key}".encode()
    return JobID(hmac.new(secret, text, hashlib.sha256).hexdigest()[:32])
