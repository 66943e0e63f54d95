"""One of the two clients, so that a test need not know which."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from tests.client.fake_cluster import TOKEN

from firesteel.client import AsyncClusterClient, ClusterClient


class Twin:
    """One of the two clients. Calling it with what a method gave waits for it where that is needed."""

    def __init__(self, kind: type[ClusterClient] | type[AsyncClusterClient]) -> None:
        self.kind = kind
        self._runner = asyncio.Runner()
        self._made: list[Any] = []

    def client(self, *addresses: str, timeout: float = 20.0, token: str | None = TOKEN, **options: Any) -> Any:
        made = self.kind(addresses, timeout=timeout, token=token, **options)
        self._made.append(made)
        return made

    def __call__(self, value: Any) -> Any:
        if not inspect.isawaitable(value):
            return value

        async def waiting() -> Any:
            return await value

        return self._runner.run(waiting())

    def items(self, iterable: Any, limit: int | None = None) -> list[Any]:
        """All items, or the first `limit`, after which the iteration is given up."""
        found: list[Any] = []

        async def gather() -> None:
            async for item in iterable:
                found.append(item)
                if len(found) == limit:
                    await iterable.aclose()
                    return

        if self.kind is AsyncClusterClient:
            self._runner.run(gather())
            return found
        for item in iterable:
            found.append(item)
            if len(found) == limit:
                iterable.close()
                break
        return found

    def close(self) -> None:
        for made in self._made:
            self(made.close())
        self._runner.close()
