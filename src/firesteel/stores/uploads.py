"""UploadStore: programs that were uploaded to be run by name, each a file in the BlobStore and a record that describes it.

The record protects the file: as long as the record exists, the file is not collected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firesteel.errors import QuotaExceededError
from firesteel.ha.protocols import Epoch, StateStore, Stored
from firesteel.records import from_json, to_json

from .codec import UnreadableRecordError, decode, encode

logger = logging.getLogger(__name__)

_PREFIX = "uploads"
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}_[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._-]")

PER_OWNER = 1000
"""The number of records that one owner may have: equal files are stored once, so the byte quota would not bound them."""


def new_upload_id(name: str) -> str:
    """`<uuid>_<name>`, without characters that a path in the store cannot have."""
    return f"{uuid.uuid4()}_{_NOT_IN_ID.sub('_', name)}"


def is_upload_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Upload:
    upload_id: str
    """See `new_upload_id`."""
    name: str
    """The client's name for the file: letters, digits and a few signs (`blob.keys`)."""
    key: str
    """The key of its content in the BlobStore."""
    size: int
    uploaded_at: float
    owner: str
    entry: str = ""
    """What runs by default: a Python module, `__main__`, or nothing."""


_STORED_AS = {"upload_id": "id", "uploaded_at": "uploaded"}
"""Fields whose name in the record differs."""


class UploadStore:
    """Uploads by id; they are read once and then kept in memory, as only the leader writes."""

    def __init__(self, store: StateStore, *, per_owner: int = PER_OWNER) -> None:
        self._store = store
        self._per_owner = per_owner
        self._uploads: dict[str, Upload] | None = None
        self._changing = asyncio.Lock()

    async def list(self) -> Sequence[Upload]:
        """Oldest first."""
        return sorted((await self._known()).values(), key=lambda u: (u.uploaded_at, u.upload_id))

    async def get(self, upload_id: str) -> Upload | None:
        return (await self._known()).get(upload_id)

    async def put(self, upload: Upload, *, epoch: Epoch) -> None:
        """Store an upload. Repeating it is harmless. Raises QuotaExceededError."""
        if not is_upload_id(upload.upload_id):
            raise ValueError(f"'{upload.upload_id}' is not an upload id")
        async with self._changing:
            known = await self._known()
            if sum(u.owner == upload.owner for u in known.values() if u != upload) >= self._per_owner:
                raise QuotaExceededError(
                    f"{upload.owner} has {self._per_owner} uploaded programs, which is the limit; "
                    "delete some that are no longer needed (DELETE /jars/<id>)"
                )
            with self._in_doubt():
                await self._store.put(_path(upload.upload_id), _encode(upload), epoch=epoch)
            known[upload.upload_id] = upload

    async def delete(self, upload_id: str, *, epoch: Epoch) -> bool:
        """False when there was no such upload."""
        async with self._changing:
            known = await self._known()
            if upload_id not in known:
                return False
            with self._in_doubt():
                await self._store.delete(_path(upload_id), epoch=epoch)
            del known[upload_id]
            return True

    @contextlib.contextmanager
    def _in_doubt(self) -> Iterator[None]:
        """A write whose answer was lost may have happened; the records are read again then."""
        try:
            yield
        except BaseException:
            self._uploads = None
            raise

    async def _known(self) -> dict[str, Upload]:
        if self._uploads is None:
            stored = await self._store.list(_PREFIX)
            read = await asyncio.to_thread(_read_all, stored)
            if self._uploads is None:  # else a concurrent call was faster, and may have changed it since
                self._uploads = read
        return self._uploads


def _path(upload_id: str) -> str:
    return f"{_PREFIX}/{upload_id}"


def _encode(upload: Upload) -> bytes:
    return encode({_STORED_AS.get(name, name): value for name, value in to_json(upload).items()})


def _read(path: str, raw: bytes) -> Upload:
    def build(data: Mapping[str, Any]) -> Upload:
        named = {name: data[stored] for name, stored in _STORED_AS.items()}
        upload = from_json({**data, **named}, Upload)
        if path != _path(upload.upload_id) or not is_upload_id(upload.upload_id):
            raise ValueError(f"it is the record of upload {upload.upload_id}")
        return upload

    return decode(path, raw, build)


def _read_all(stored: Mapping[str, Stored]) -> dict[str, Upload]:
    uploads: dict[str, Upload] = {}
    for path, value in stored.items():
        try:
            upload = _read(path, value.value)
        except UnreadableRecordError as error:
            logger.error("skipping an unreadable upload: %s", error)
        else:
            uploads[upload.upload_id] = upload
    return uploads
