"""WorkerStore: the workers that have joined a cluster, and the one-time tokens with which others may join.

The store does not reveal secrets: each is 256 random bits, of which one SHA-256 is kept. Slow hashes protect passwords that
people choose; random bits cannot be guessed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from firesteel.errors import (
    ForbiddenError,
    QuotaExceededError,
    VersionConflictError,
    WorkerNotFoundError,
    WorkerStateError,
)
from firesteel.ha.protocols import NEW, Epoch, StateStore, Stored
from firesteel.records import from_json, to_json

from .codec import UnreadableRecordError, decode, encode

logger = logging.getLogger(__name__)
T = TypeVar("T")

_WORKERS = "workers"
_TOKENS = "worker-tokens"
_WORKER_ID = re.compile(r"w[0-9a-f]{16}")
_TOKEN_ID = re.compile(r"[0-9a-f]{16}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_SECRET_BYTES = 32
_TRIES = 10
"""Only this leader writes, so a conflict is its own write whose answer was lost, or two requests at a time."""
MAX_TOKENS = 1000
"""Join tokens that may be waiting to be used."""


def new_worker_id() -> str:
    return f"w{secrets.token_hex(8)}"


def is_worker_id(text: str) -> bool:
    return _WORKER_ID.fullmatch(text) is not None


def is_worker_name(text: str) -> bool:
    """Host names are; an id is the name of its own worker only."""
    return _NAME.fullmatch(text) is not None and not is_worker_id(text)


def new_worker_secret() -> str:
    return secrets.token_hex(_SECRET_BYTES)


def secret_digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def is_secret_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class LostWorker:
    """An operator has confirmed that nothing of the worker runs any more."""

    at: float
    by: str
    incarnation: str
    """The process that is meant; a process that starts later is another one."""


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    id: str
    name: str
    secret_sha256: str = ""
    """Empty for a worker without its own credential: the node that it runs in speaks for it."""
    host: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    joined_at: float = 0.0
    draining: bool = False
    lost: LostWorker | None = None
    policy: str = "stop"
    """`worker.when-isolated`, as of its last registration."""
    isolation_timeout: float | None = None
    revoked: bool = False

    def opened_by(self, secret: str) -> bool:
        known = bool(self.secret_sha256) and not self.revoked
        # Always compared, so that timing reveals nothing.
        return hmac.compare_digest(self.secret_sha256 or "-" * 64, secret_digest(secret)) and known


@dataclass(frozen=True, slots=True)
class JoinToken:
    """What is kept of a token. A used one is kept until it expires, so that a join whose answer was lost can be repeated."""

    id: str
    secret_sha256: str
    expires_at: float
    name: str = ""
    """The worker that it is for; empty for any."""
    used_by: str = ""
    """The worker that joined with it, and its secret's digest: `<id>:<digest>`."""

    def opened_by(self, secret: str) -> bool:
        return hmac.compare_digest(self.secret_sha256, secret_digest(secret))


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A join token with its secret, which is only shown once."""

    id: str
    secret: str
    expires_at: float
    name: str


class WorkerStore:
    """Every node may read; only the leader writes."""

    def __init__(self, store: StateStore, *, max_tokens: int = MAX_TOKENS) -> None:
        self._store = store
        self._max_tokens = max_tokens
        self._joining = asyncio.Lock()

    # -- workers --------------------------------------------------------------------------------------------------

    async def get(self, worker: str) -> WorkerRecord | None:
        """Raises UnreadableRecordError."""
        stored = await self._store.get(_path(worker))
        return None if stored is None else _read(_path(worker), stored.value, WorkerRecord)

    async def list(self) -> dict[str, WorkerRecord]:
        """Records by id. Unreadable ones are logged and left out."""
        return await asyncio.to_thread(_read_all, await self._store.list(_WORKERS), WorkerRecord)

    async def put(self, record: WorkerRecord, *, epoch: Epoch) -> None:
        """Replace a record, or make one of a worker that needs no token. Repeating it is harmless."""
        await self._store.put(_path(record.id), encode(to_json(record)), epoch=epoch)

    async def change(
        self, worker: str, change: Callable[[WorkerRecord], WorkerRecord], *, epoch: Epoch
    ) -> WorkerRecord:
        """The record as `change` made it. `change` may be called several times. Raises WorkerNotFoundError."""
        return await self._changed(worker, change, None, epoch)

    async def note(
        self, newcomer: WorkerRecord, change: Callable[[WorkerRecord], WorkerRecord], *, epoch: Epoch
    ) -> WorkerRecord:
        """The same for a worker that need not have joined, as one that is part of a node: `newcomer` is changed if there is no
        record. What others have written in the meantime, such as that it is revoked, is kept."""
        return await self._changed(newcomer.id, change, newcomer, epoch)

    async def _changed(
        self,
        worker: str,
        change: Callable[[WorkerRecord], WorkerRecord],
        newcomer: WorkerRecord | None,
        epoch: Epoch,
    ) -> WorkerRecord:
        path = _path(worker)
        for _ in range(_TRIES):
            stored = await self._store.get(path)
            record = newcomer if stored is None else _read(path, stored.value, WorkerRecord)
            if record is None:
                raise WorkerNotFoundError(f"no worker {worker} has joined this cluster")
            changed = change(record)
            if stored is not None and changed == record:
                return record
            expected = NEW if stored is None else stored.version
            try:
                await self._store.put(path, encode(to_json(changed)), epoch=epoch, expected=expected)
            except VersionConflictError:
                continue
            return changed
        raise VersionConflictError(f"the record of worker {worker} is constantly being changed; try again")

    async def delete(self, worker: str, *, epoch: Epoch) -> bool:
        """Delete a worker, and the token that it joined with, which could otherwise bring it back."""
        for token in await self.tokens():
            if token.used_by.partition(":")[0] == worker:
                await self._store.delete(_token_path(token.id), epoch=epoch)
        return await self._store.delete(_path(worker), epoch=epoch)

    # -- joining --------------------------------------------------------------------------------------------------

    async def issue(self, *, expires_at: float, now: float, epoch: Epoch, name: str = "") -> IssuedToken:
        """A new token. Those that have expired are removed. Raises QuotaExceededError."""
        known = await self.tokens()
        for token in known:
            if token.expires_at <= now:
                await self._store.delete(_token_path(token.id), epoch=epoch)
        if sum(t.expires_at > now for t in known) >= self._max_tokens:
            raise QuotaExceededError(
                f"{self._max_tokens} join tokens are unused, which is the limit; wait until some have expired"
            )
        made = IssuedToken(secrets.token_hex(8), new_worker_secret(), expires_at, name)
        kept = JoinToken(made.id, secret_digest(made.secret), expires_at, name)
        await self._store.put(_token_path(made.id), encode(to_json(kept)), epoch=epoch)
        return made

    async def token(self, token_id: str) -> JoinToken | None:
        """Raises UnreadableRecordError."""
        stored = await self._store.get(_token_path(token_id))
        return None if stored is None else _read(_token_path(token_id), stored.value, JoinToken)

    async def tokens(self) -> Sequence[JoinToken]:
        found = await asyncio.to_thread(_read_all, await self._store.list(_TOKENS), JoinToken)
        return tuple(found.values())

    async def join(self, token_id: str, newcomer: WorkerRecord, *, now: float, epoch: Epoch) -> WorkerRecord:
        """Use up the token and store the newcomer. The same join may be repeated until the token expires.

        First the token is marked as used by this newcomer, then the newcomer is written: if a leader dies in between, the
        newcomer has not joined, and tries again.

        Raises:
            ForbiddenError: the token is unknown, expired, used by another worker, or for another name.
            WorkerStateError: another worker has the name or the id.
        """
        if not (is_worker_id(newcomer.id) and is_worker_name(newcomer.name)):
            raise ValueError(f"'{newcomer.id}' with the name '{newcomer.name}' is not a valid worker")
        mark = f"{newcomer.id}:{newcomer.secret_sha256}"
        async with self._joining:  # names are compared with stored ones
            for _ in range(_TRIES):
                stored = await self._store.get(_token_path(token_id))
                token = None if stored is None else _read(_token_path(token_id), stored.value, JoinToken)
                if stored is None or token is None or token.expires_at <= now:
                    raise ForbiddenError(f"the join token is unknown or expired; {_ANOTHER}")
                if token.used_by not in ("", mark):
                    raise ForbiddenError(f"the join token was used by another worker; {_ANOTHER}")
                if token.name not in ("", newcomer.name):
                    raise ForbiddenError(
                        f"the join token is for a worker called '{token.name}', not '{newcomer.name}'; {_ANOTHER}"
                    )
                workers = await self.list()
                record = _joining_as(newcomer, token, workers)
                if record == workers.get(newcomer.id):
                    return record
                if not token.used_by:
                    used = encode(to_json(replace(token, used_by=mark)))
                    try:
                        await self._store.put(_token_path(token_id), used, epoch=epoch, expected=stored.version)
                    except VersionConflictError:
                        continue  # another request was first, or the answer to our own write was lost
                await self.put(record, epoch=epoch)
                return record
        raise VersionConflictError("the join token is constantly being changed; try again")


_ANOTHER = "make another with `firesteel worker token`"


def _joining_as(newcomer: WorkerRecord, token: JoinToken, workers: Mapping[str, WorkerRecord]) -> WorkerRecord:
    """The record of the newcomer; the stored one if it has already joined."""
    known = workers.get(newcomer.id)
    if known is not None and known.revoked and token.used_by:
        raise ForbiddenError(f"worker {known.name} was revoked, and the join token was used before; {_ANOTHER}")
    if known is not None and not known.revoked and known.secret_sha256 == newcomer.secret_sha256:
        return known
    # A newcomer must not replace an existing worker: it would speak for what runs on that host.
    if known is not None and not (known.revoked and token.name == newcomer.name == known.name):
        raise WorkerStateError(
            f"worker {known.id} ({known.name}) has already joined; to give it a new credential, revoke it and let it join "
            f"with a token of `firesteel worker token --name {known.name}`"
        )
    for other in workers.values():
        if other.name == newcomer.name and other.id != newcomer.id and not other.revoked:
            raise WorkerStateError(
                f"another worker is called '{other.name}' ({other.id}); start this one with another name, or revoke that one"
            )
    if known is None:
        return newcomer
    again = replace(known, secret_sha256=newcomer.secret_sha256, joined_at=newcomer.joined_at, revoked=False)
    return replace(again, host=newcomer.host or known.host)


def _path(worker: str) -> str:
    if not is_worker_id(worker):
        raise ValueError(f"'{worker}' is not a worker id")
    return f"{_WORKERS}/{worker}"


def _token_path(token_id: str) -> str:
    if not _TOKEN_ID.fullmatch(token_id):
        raise ValueError(f"'{token_id}' is not the id of a join token")
    return f"{_TOKENS}/{token_id}"


def _read(path: str, raw: bytes, kind: type[T]) -> T:
    def build(data: Mapping[str, Any]) -> T:
        if path.rpartition("/")[2] != data["id"]:
            raise ValueError(f"it is the record of {data['id']}")
        return from_json(data, kind)

    return decode(path, raw, build)


def _read_all(stored: Mapping[str, Stored], kind: type[T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for path, value in stored.items():
        try:
            found[path.rpartition("/")[2]] = _read(path, value.value, kind)
        except UnreadableRecordError as error:
            logger.error("skipping an unreadable worker or token: %s", error)
    return found
