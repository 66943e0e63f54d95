"""WorkerStore: the workers that have joined a cluster, and the one-time tokens with which others may.

Nobody who reads the store learns a secret: each is 256 random bits, of which one SHA-256 is kept. A slow hash would guard what
people choose; nobody guesses these.
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
from firesteel.ha.protocols import Epoch, StateStore, Stored
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
    """Somebody who can know has said that nothing of it runs any more."""

    at: float
    by: str
    incarnation: str
    """Of the process that is meant: one that starts later is another."""


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    id: str
    name: str
    secret_sha256: str = ""
    """Empty for a worker that has no credential of its own: the node around it speaks for it."""
    host: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    joined_at: float = 0.0
    draining: bool = False
    lost: LostWorker | None = None
    policy: str = "stop"
    """`worker.when-isolated`, as it said when it registered last."""
    isolation_timeout: float | None = None
    revoked: bool = False

    def opened_by(self, secret: str) -> bool:
        known = bool(self.secret_sha256) and not self.revoked
        # Compared in any case, so that the time it takes says nothing.
        return hmac.compare_digest(self.secret_sha256 or "-" * 64, secret_digest(secret)) and known


@dataclass(frozen=True, slots=True)
class JoinToken:
    """What is kept of a token. A used one is kept until it expires, so that a join whose answer was lost can be repeated."""

    id: str
    secret_sha256: str
    expires_at: float
    name: str = ""
    """The worker that it is for; empty: any."""
    used_by: str = ""
    """The worker that joined with it, and its secret's digest: `<id>:<digest>`."""

    def opened_by(self, secret: str) -> bool:
        return hmac.compare_digest(self.secret_sha256, secret_digest(secret))


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A join token with its secret, which nobody can be shown again."""

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
        """By id. One that cannot be read is left out, and logged."""
        return await asyncio.to_thread(_read_all, await self._store.list(_WORKERS), WorkerRecord)

    async def put(self, record: WorkerRecord, *, epoch: Epoch) -> None:
        """Replace a record, or make one of a worker that needs no token. Repeating it is harmless."""
        await self._store.put(_path(record.id), encode(to_json(record)), epoch=epoch)

    async def change(
        self, worker: str, change: Callable[[WorkerRecord], WorkerRecord], *, epoch: Epoch
    ) -> WorkerRecord:
        """The record as `change` made it. `change` may be called several times. Raises WorkerNotFoundError."""
        path = _path(worker)
        for _ in range(_TRIES):
            stored = await self._store.get(path)
            if stored is None:
                raise WorkerNotFoundError(f"no worker {worker} has joined this cluster")
            record = _read(path, stored.value, WorkerRecord)
            changed = change(record)
            if changed == record:
                return record
            try:
                await self._store.put(path, encode(to_json(changed)), epoch=epoch, expected=stored.version)
            except VersionConflictError:
                continue
            return changed
        raise VersionConflictError(f"the record of worker {worker} is changed again and again; try again")

    async def delete(self, worker: str, *, epoch: Epoch) -> bool:
        """Forget a worker, and the token that it joined with, which could otherwise bring it back."""
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
                f"{self._max_tokens} join tokens are waiting to be used, and more may not be; wait until some have expired"
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
        """Use the token up and keep the newcomer. The same join may be repeated until the token expires.

        First the token is marked as used by this newcomer, and then the newcomer is written: a leader that dies in between has
        let nobody in, and the newcomer comes again.

        Raises:
            ForbiddenError: the token is not known, has expired, was used by another worker, or is for another name.
            WorkerStateError: another worker has the name or the id.
        """
        if not (is_worker_id(newcomer.id) and is_worker_name(newcomer.name)):
            raise ValueError(f"'{newcomer.id}' called '{newcomer.name}' is no worker")
        mark = f"{newcomer.id}:{newcomer.secret_sha256}"
        async with self._joining:  # two names are compared with what is there
            for _ in range(_TRIES):
                stored = await self._store.get(_token_path(token_id))
                token = None if stored is None else _read(_token_path(token_id), stored.value, JoinToken)
                if stored is None or token is None or token.expires_at <= now:
                    raise ForbiddenError(f"the join token is not known here, or has expired; {_ANOTHER}")
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
                        continue  # somebody else was first, or the answer to our own write was lost
                await self.put(record, epoch=epoch)
                return record
        raise VersionConflictError("the join token is changed again and again; try again")


_ANOTHER = "make another with `firesteel worker token`"


def _joining_as(newcomer: WorkerRecord, token: JoinToken, workers: Mapping[str, WorkerRecord]) -> WorkerRecord:
    """What the record of the newcomer will be; the one that is there when it has joined already."""
    known = workers.get(newcomer.id)
    if known is not None and known.revoked and token.used_by:
        raise ForbiddenError(f"worker {known.name} was revoked, and the join token was used before; {_ANOTHER}")
    if known is not None and not known.revoked and known.secret_sha256 == newcomer.secret_sha256:
        return known
    # Whoever has any token must not become a worker that is there: it would speak for what runs on that host.
    if known is not None and not (known.revoked and token.name == newcomer.name == known.name):
        raise WorkerStateError(
            f"worker {known.id} ({known.name}) has joined already; to give it a new credential, revoke it and let it join "
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
        raise ValueError(f"'{worker}' is no id of a worker")
    return f"{_WORKERS}/{worker}"


def _token_path(token_id: str) -> str:
    if not _TOKEN_ID.fullmatch(token_id):
        raise ValueError(f"'{token_id}' is no id of a join token")
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
            logger.error("a worker or its token is not known any more: %s", error)
    return found
