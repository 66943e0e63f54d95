"""The fenced store in a database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection

from firesteel.errors import StoreError
from firesteel.ha.protocols import Epoch, Stored
from firesteel.ha.rules import check_path
from firesteel.ha.sql.database import READERS, Database, repeated
from firesteel.ha.sql.tables import read_below, read_paths_below
from firesteel.ha.sql.writer import GroupWriter

T = TypeVar("T")


class Reader:
    """Reads in its own threads, in parallel with the writer, and never waits for it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="ha-sql-reader")
        self._closed = False

    async def read(self, action: Callable[[Connection], T]) -> T:
        if self._closed:
            raise StoreError(f"{self._database.where} is closed; open it again")
        return await asyncio.get_running_loop().run_in_executor(self._threads, repeated, partial(self._do, action))

    async def value(self, cluster_id: str, path: str) -> Stored | None:
        return await self.read(lambda connection: self._database.value(connection, cluster_id, path))

    def _do(self, action: Callable[[Connection], T]) -> T:
        with self._database.read() as connection:
            return action(connection)

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)


class SqlStateStore:
    """Reads see every write that was acknowledged before they began, by any process."""

    def __init__(self, cluster_id: str, reader: Reader, writer: GroupWriter) -> None:
        self._cluster_id = cluster_id
        self._reader = reader
        self._writer = writer

    async def get(self, path: str) -> Stored | None:
        check_path(path)
        return await self._reader.value(self._cluster_id, path)

    async def list(self, prefix: str) -> Mapping[str, Stored]:
        check_path(prefix)
        return await self._reader.read(lambda connection: read_below(connection, self._cluster_id, prefix))

    async def paths(self, prefix: str) -> Sequence[str]:
        check_path(prefix)
        return await self._reader.read(lambda connection: read_paths_below(connection, self._cluster_id, prefix))

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        check_path(path)
        return await self._writer.submit(lambda batch: batch.put(path, value, epoch, expected), path)

    async def delete(self, path: str, *, epoch: Epoch, expected: int | None = None) -> bool:
        check_path(path)
        return await self._writer.submit(lambda batch: batch.delete(path, epoch, expected), path)

    async def close(self) -> None:
        await self._writer.close()
        await self._reader.close()
