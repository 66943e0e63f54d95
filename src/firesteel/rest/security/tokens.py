"""Firesteel's own bearer tokens: `fst_<id>_<secret>`, stored in one file as hashes.

The id finds the record, and the secret is verified against it. The file does not reveal tokens, but who can write it can
create them, so a file that other users can write is rejected.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from firesteel.config.sections import GRANTED_ROLES, Role
from firesteel.fs.files import private_dir, write_atomically
from firesteel.fs.locks import exclusively
from firesteel.rest.security.principals import AuthenticationUnavailableError, Principal

logger = logging.getLogger(__name__)

TOKEN_PREFIX = "fst_"  # noqa: S105  # what every token begins with
_TOKEN = re.compile(r"fst_([0-9a-f]{16})_([0-9a-f]{48})")
_ID_BYTES, _SECRET_BYTES = 8, 24  # 192 bits of secret
_CHECK_EVERY = 1.0
"""Seconds between two checks of the file: a revoked token may work for so long."""
_CHECK_FOR_UNKNOWN_EVERY = 0.05
"""The same for an unknown id: a token that another process has just made should work at once, but a flood of invented ids
must not become a flood of file accesses."""


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """The public part of a token."""

    id: str
    name: str
    role: Role
    owner: str
    created: datetime
    expires: datetime | None


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[0-9a-f]{16}$")
    name: str
    role: Role
    owner: str
    salt: str = Field(pattern=r"^[0-9a-f]{32}$")
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    created: AwareDatetime
    expires: AwareDatetime | None = None

    @model_validator(mode="after")
    def _names_a_principal(self) -> _Record:
        _ = self.principal  # raises ValueError
        if self.role not in GRANTED_ROLES:
            raise ValueError(f"the role {self.role.value} is given to no token of this file")
        return self

    @property
    def principal(self) -> Principal:
        return Principal(self.name, self.role, self.owner)

    @property
    def info(self) -> TokenInfo:
        return TokenInfo(self.id, self.name, self.role, self.owner, self.created, self.expires)

    def opened_by(self, secret: str) -> bool:
        return hmac.compare_digest(self.hash, _hash(self.salt, secret))


class _Tokens(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    tokens: tuple[_Record, ...] = ()

    @model_validator(mode="after")
    def _has_each_id_once(self) -> _Tokens:
        if len({t.id for t in self.tokens}) != len(self.tokens):
            raise ValueError("an id occurs twice")
        return self


class _Stamp(NamedTuple):
    """Changes whenever the file does."""

    modified: int
    size: int
    inode: int


def _hash(salt: str, secret: str) -> str:
    # One SHA-256 is enough, and a slow hash would cost time on each request: slow hashes protect passwords that people choose,
    # and 192 random bits cannot be guessed. The salt keeps equal secrets from having equal hashes.
    return hashlib.sha256(bytes.fromhex(salt) + secret.encode()).hexdigest()


class TokenFile:
    """The tokens in one file. Several processes and threads may use it; `authenticate` is for one event loop.

    A missing file counts as empty. A file that is damaged, newer or writable by other users is rejected and never
    overwritten: all methods raise AuthenticationUnavailableError, which says what to do.
    """

    def __init__(self, path: Path, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = path
        self._now = now
        self._reading = threading.Lock()
        self._asking = asyncio.Lock()
        self._stamp: _Stamp | None = None
        self._known: Mapping[str, _Record] | None = None
        self._broken = ""
        """Why the file could not be read the last time."""
        self._checked = 0.0

    def create(self, name: str, role: Role, owner: str, expires: datetime | None = None) -> str:
        """Make a token and return it. This is the only time that it is shown.

        Raises:
            ValueError: for an invalid name or owner, or a time that has no zone or is in the past.
        """
        if expires is not None and (expires.tzinfo is None or expires <= self._now()):
            raise ValueError(f"a token must expire at a future time with a time zone, not at {expires}")
        identity, secret, salt = secrets.token_hex(_ID_BYTES), secrets.token_hex(_SECRET_BYTES), secrets.token_hex(16)
        record = _Record(
            id=identity,
            name=Principal(name, role, owner).name,
            role=role,
            owner=owner,
            salt=salt,
            hash=_hash(salt, secret),
            created=self._now(),
            expires=expires,
        )
        with self._changing() as tokens:
            self._write((*tokens, record))
        return f"{TOKEN_PREFIX}{identity}_{secret}"

    def revoke(self, token_id: str) -> bool:
        """Remove a token; False when there is no such id. Nodes notice within about a second."""
        with self._changing() as tokens:
            left = tuple(t for t in tokens if t.id != token_id)
            if len(left) == len(tokens):
                return False
            self._write(left)
        return True

    def list(self) -> tuple[TokenInfo, ...]:
        """All tokens, including expired ones, in the order of their creation."""
        return tuple(t.info for t in self._read())

    async def authenticate(self, token: str) -> Principal | None:
        """The principal of a token; None if it is unknown, revoked or expired."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        identity, secret = found.groups()
        # Ids are not secret, so it does not matter that an unknown one is answered faster.
        record = (await self._current(_CHECK_EVERY)).get(identity)
        if record is None:
            record = (await self._current(_CHECK_FOR_UNKNOWN_EVERY)).get(identity)
        if record is None or not record.opened_by(secret):
            return None
        if record.expires is not None and record.expires <= self._now():
            return None
        return record.principal

    async def _current(self, max_age: float) -> Mapping[str, _Record]:
        if self._due(max_age):
            async with self._asking:
                if self._due(max_age):
                    await asyncio.to_thread(self._refresh)
        if self._known is None:
            raise AuthenticationUnavailableError(self._broken)
        return self._known

    def _due(self, max_age: float) -> bool:
        return self._checked == 0.0 or time.monotonic() - self._checked >= max_age

    def _refresh(self) -> None:
        with self._reading:
            try:
                stamp = self._look()
                if stamp != self._stamp or self._known is None:
                    self._known = {t.id: t for t in self._read()}
                    self._stamp = stamp
                    self._broken = ""
            except AuthenticationUnavailableError as error:
                if self._broken != str(error):
                    logger.error("tokens cannot be checked: %s", error)
                self._known, self._stamp, self._broken = None, None, str(error)
            finally:
                self._checked = time.monotonic()

    def _look(self) -> _Stamp | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error.strerror or str(error), "make it readable") from error
        return _Stamp(status.st_mtime_ns, status.st_size, status.st_ino)

    def _read(self) -> tuple[_Record, ...]:
        try:
            with self._path.open("rb") as f:
                self._check_guarded(os.fstat(f.fileno()))
                raw = f.read()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._unreadable(error.strerror or str(error), "make it readable") from error
        try:
            return _Tokens.model_validate_json(raw).tokens
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            what = f"{where}: {first['msg']}" if where else first["msg"]
            fix = "restore it from a backup, or move it away and make new tokens"
            # Not `from error`: pydantic's own text contains the values.
            raise self._unreadable(what, fix) from None

    def _check_guarded(self, status: os.stat_result) -> None:
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise self._unreadable("other users can write it", f"run chmod 600 {self._path}")
        if status.st_uid not in (os.geteuid(), 0):
            raise self._unreadable("it belongs to another user", f"run chown {os.geteuid()} {self._path}")

    def _unreadable(self, why: str, fix: str) -> AuthenticationUnavailableError:
        return AuthenticationUnavailableError(f"the tokens file {self._path} cannot be used: {why} — {fix}")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[tuple[_Record, ...]]:
        """The tokens, locked against changes by other processes and threads."""
        private_dir(self._path.parent)
        # A separate lock file: each change replaces the tokens file, and a lock belongs to the replaced file.
        with exclusively(self._path.with_name(f"{self._path.name}.lock")):
            yield self._read()

    def _write(self, tokens: tuple[_Record, ...]) -> None:
        write_atomically(self._path, _Tokens(tokens=tokens).model_dump_json(indent=1) + "\n", mode=0o600)
        self._checked = 0.0  # this process sees its own change at once
