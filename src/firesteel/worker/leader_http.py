"""The way to the leader over HTTP, by any node that answers: one that does not lead passes everything on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import httpx

from firesteel.errors import FencingError, ForbiddenError, NotLeadingError, StoreUnavailableError, UnauthenticatedError
from firesteel.rpc.messages import Command, Heard, Message, Registered, Registration, WorkerReport, decode, encode

logger = logging.getLogger(__name__)

Authorize = Callable[[str, str], Awaitable[str | None]]
"""The `Authorization` of a request, given its method and path; None when there is none yet."""

REGISTRATION_SECONDS = 3.0
"""How long a node may take to accept a worker before the next node is asked. A node whose host is gone never answers, nor does
a node that forwards to it. A worker that waited for them would be isolated although there is a leader (F27)."""
SILENCE_FACTOR = 3
"""A stream on which nothing has come for so many heartbeats is broken; the leader writes an empty line at each."""


class HttpLeaderConnection:
    """Implements LeaderConnection. The client is lent."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        addresses: Callable[[], Awaitable[Sequence[str]]],
        worker: str,
        authorize: Authorize,
        *,
        patience: float,
    ) -> None:
        """
        Args:
            addresses: Of nodes, the leader's first where that is known; asked before each registration.
            patience: Seconds that an answer may take.
        """
        self._client = client
        self._addresses = addresses
        self._worker = worker
        self._authorize = authorize
        self._patience = patience
        self._node = ""
        self._silence = patience

    async def register(self, registration: Registration) -> Registered:
        failures = []
        addresses = list(await self._addresses())
        if self._node in addresses:  # it was lost, or did not take this worker: the others come first
            addresses.remove(self._node)
            addresses.append(self._node)
        for address in addresses:
            self._node = address
            try:
                async with asyncio.timeout(min(self._patience, REGISTRATION_SECONDS)):
                    registered = await self._post("registration", encode(registration), Registered)
            except TimeoutError:
                failures.append(f"{address}: no answer")
                continue
            except (OSError, FencingError, NotLeadingError, StoreUnavailableError) as error:
                failures.append(f"{address}: {error}")
                continue
            self._silence = max(SILENCE_FACTOR * registered.heartbeat, 1.0)
            return registered
        raise NotLeadingError("; ".join(failures) or "no node is known")

    async def commands(self, incarnation: str) -> AsyncIterator[Command]:
        path = f"/workers/{self._worker}/commands"
        headers = await self._headers("GET", f"{path}?incarnation={incarnation}")
        timeout = httpx.Timeout(self._patience, read=self._silence)
        try:
            async with self._client.stream(
                "GET", f"{self._node}{path}", params={"incarnation": incarnation}, headers=headers, timeout=timeout
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                    _check(response)
                async for line in response.aiter_lines():
                    if line:
                        yield decode(line.encode(), Command)
        except httpx.HTTPError as error:
            raise _broken(error) from error

    async def report(self, report: WorkerReport) -> Heard:
        return await self._post("reports", encode(report), Heard)

    async def _post(self, what: str, body: bytes, kind: type[Message]) -> Message:
        path = f"/workers/{self._worker}/{what}"
        headers = {**await self._headers("POST", path), "content-type": "application/json"}
        try:
            response = await self._client.post(
                f"{self._node}{path}", content=body, headers=headers, timeout=self._patience
            )
        except httpx.HTTPError as error:
            raise _broken(error) from error
        _check(response)
        try:
            return decode(response.content, kind)
        except ValueError as error:
            raise OSError(f"{self._node} answered with something else: {error}") from error

    async def _headers(self, method: str, path: str) -> dict[str, str]:
        authorization = await self._authorize(method, path)
        if authorization is None:
            raise NotLeadingError("the leader has drawn no key yet")
        return {"authorization": authorization}


def _broken(error: httpx.HTTPError) -> OSError:
    return ConnectionError(str(error) or type(error).__name__)


def _check(response: httpx.Response) -> None:
    """Raises what the status says."""
    if response.status_code < 300:
        return
    message = f"HTTP {response.status_code}"
    with contextlib.suppress(ValueError, LookupError, TypeError):
        message = str(response.json()["errors"][0])
    match response.status_code:
        case 401:
            raise UnauthenticatedError(message)
        case 403:
            raise ForbiddenError(message)
        case 409:
            raise FencingError(message)
        case 503:
            raise NotLeadingError(message)
        case _:
            raise StoreUnavailableError(message)
