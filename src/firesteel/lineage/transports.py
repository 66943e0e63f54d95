"""Where lineage events go: an OpenLineage endpoint over HTTP, or a file with one event per line."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import httpx

from firesteel.delivery.delivery import UndeliverableError

_TRY_AGAIN = frozenset({408, 409, 425, 429})
_SHOWN = 200


class LineageTransport(Protocol):
    async def emit(self, event: Mapping[str, Any]) -> None:
        """Raises UndeliverableError for an event that is refused for good, anything else to be tried again."""
        ...

    async def close(self) -> None: ...


class HttpTransport:
    def __init__(self, url: str, *, api_key: str | None, timeout: float) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._url = url
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout, trust_env=False, follow_redirects=False)

    async def emit(self, event: Mapping[str, Any]) -> None:
        answer = await self._client.post(self._url, json=event)
        if answer.is_success:
            return
        said = f"the lineage endpoint answered {answer.status_code}: {answer.text[:_SHOWN]}"
        if 400 <= answer.status_code < 500 and answer.status_code not in _TRY_AGAIN:
            raise UndeliverableError(said)
        raise OSError(said)

    async def close(self) -> None:
        await self._client.aclose()


class FileTransport:
    """Several nodes may append to the same file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def emit(self, event: Mapping[str, Any]) -> None:
        await asyncio.to_thread(self._append, f"{json.dumps(event)}\n".encode())

    def _append(self, line: bytes) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        try:
            os.write(file, line)
        finally:
            os.close(file)

    async def close(self) -> None:
        pass


class AllTransports:
    """One after the other. An event that one of them did not take is sent to all of them again, which is harmless."""

    def __init__(self, *transports: LineageTransport) -> None:
        self._transports = transports

    async def emit(self, event: Mapping[str, Any]) -> None:
        for transport in self._transports:
            await transport.emit(event)

    async def close(self) -> None:
        for transport in self._transports:
            await transport.close()
