"""Sending one request to one address, in two ways: on the event loop, and blocking.

The layers above are written once, as coroutines over a Transport. Those of BlockingTransport never suspend: they do
their work in place, so that `run` carries a coroutine through from beginning to end without any event loop or thread.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx

from firesteel import __version__
from firesteel.client.endpoints import stays_here
from firesteel.client.errors import ClusterError
from firesteel.errors import InvalidConfigError, Problem

T = TypeVar("T")
CHUNK = 1 << 16


class UnansweredError(ClusterError):
    """No answer came, or not all of it."""

    def __init__(
        self, message: str, *, sent: bool, late: bool = False, hopeless: bool = False, refused: bool = False
    ) -> None:
        self.sent = sent
        """Whether the request may have arrived."""
        self.refused = refused
        """Whether there was no connection and none is likely soon: no process listens, or there is no such host."""
        self.late = late
        """Whether the answer may still come after the time that it had."""
        self.hopeless = hopeless
        """Whether trying again cannot help."""
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request to one address."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | Path | None
    connect_timeout: float
    read_timeout: float
    """The time for each single wait for data, not for the whole."""


async def _nothing() -> None:
    pass


@dataclass(slots=True)
class Answered:
    """An answer with its whole body, or with its chunks as they come if it is a success that was opened as a stream."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    chunks: AsyncIterator[bytes] | None = None
    close: Callable[[], Awaitable[None]] = field(default=_nothing)

    @property
    def success(self) -> bool:
        return 200 <= self.status < 300


class Transport(Protocol):
    async def send(self, outgoing: Outgoing) -> Answered:
        """Send a request. Raises UnansweredError."""
        ...

    async def open(self, outgoing: Outgoing) -> Answered:
        """Send a request; a success has chunks, which the caller closes. They raise UnansweredError too."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Call a function that reads files."""
        ...

    async def close(self) -> None: ...


class AsyncTransport:
    """A transport on the caller's event loop."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._http = httpx.AsyncClient(**settings)

    async def send(self, outgoing: Outgoing) -> Answered:
        answer = await self.open(outgoing)
        return answer if answer.chunks is None else await _whole(answer)

    async def open(self, outgoing: Outgoing) -> Answered:
        body = _chunks_of_file(outgoing.body) if isinstance(outgoing.body, Path) else outgoing.body
        try:
            response = await self._http.send(self._http.build_request(**_arguments(outgoing, body)), stream=True)
            if not response.is_success:
                try:
                    await response.aread()
                finally:
                    await response.aclose()
                return Answered(response.status_code, response.headers, response.content)
        except httpx.HTTPError as error:
            raise _unanswered(error) from error
        return Answered(response.status_code, response.headers, b"", _raw_async(response), response.aclose)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    async def close(self) -> None:
        await self._http.aclose()


class BlockingTransport:
    """A transport that blocks. Several threads may share it."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._http = httpx.Client(**settings)

    async def send(self, outgoing: Outgoing) -> Answered:
        answer = await self.open(outgoing)
        return answer if answer.chunks is None else await _whole(answer)

    async def open(self, outgoing: Outgoing) -> Answered:
        if isinstance(outgoing.body, Path):
            with outgoing.body.open("rb") as file:
                return self._open(outgoing, iter(lambda: file.read(CHUNK), b""))
        return self._open(outgoing, outgoing.body)

    def _open(self, outgoing: Outgoing, body: Iterator[bytes] | bytes | None) -> Answered:
        try:
            response = self._http.send(self._http.build_request(**_arguments(outgoing, body)), stream=True)
            if not response.is_success:
                try:
                    response.read()
                finally:
                    response.close()
                return Answered(response.status_code, response.headers, response.content)
        except httpx.HTTPError as error:
            raise _unanswered(error) from error

        async def close() -> None:
            response.close()

        return Answered(response.status_code, response.headers, b"", _raw_blocking(response), close)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - no event loop waits for this coroutine

    async def in_thread(self, work: Callable[[], T]) -> T:
        return work()

    async def close(self) -> None:
        self._http.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over a BlockingTransport."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("a coroutine over a blocking transport waited for an event loop")


def iterate(source: AsyncGenerator[T, None]) -> Iterator[T]:
    """The items of an asynchronous generator over a BlockingTransport. Closing this closes that."""
    try:
        while True:
            try:
                item = run(source.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(source.aclose())


def settings_of(addresses: tuple[str, ...], *, ca: Path | None, certificate: Path | None) -> dict[str, Any]:
    """The arguments of an httpx client for these addresses."""
    # Requests to this machine, and the tokens in them, go through no proxy, whatever the environment says.
    direct = dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]", *filter(stays_here, addresses)))
    return {
        "verify": _trust(addresses, ca, certificate),
        "headers": {"user-agent": f"firesteel/{__version__}"},
        "follow_redirects": False,
        "mounts": direct,
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=10, keepalive_expiry=20.0),
    }


def _trust(addresses: tuple[str, ...], ca: Path | None, certificate: Path | None) -> ssl.SSLContext:
    if ca is None and certificate is None and not any(a.startswith("https:") for a in addresses):
        # Reading the authorities takes longer than a request. This context trusts none.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        problem = Problem(f"cannot read the authorities in '{ca}': {error}", "give a PEM file", field="client.ssl.ca")
        raise InvalidConfigError([problem]) from None
    if certificate is not None:
        try:
            context.load_cert_chain(certificate)
        except (OSError, ssl.SSLError) as error:
            message = f"cannot use the certificate in '{certificate}': {error}"
            fix = "give a PEM file with a certificate and its key"
            raise InvalidConfigError([Problem(message, fix, field="client.ssl.certificate")]) from None
    return context


def _arguments(outgoing: Outgoing, content: object) -> dict[str, Any]:
    headers = dict(outgoing.headers)
    if isinstance(outgoing.body, Path):
        headers["content-length"] = str(outgoing.body.stat().st_size)
    timeout = httpx.Timeout(outgoing.read_timeout, connect=outgoing.connect_timeout)
    return {"method": outgoing.method, "url": outgoing.url, "headers": headers, "content": content, "timeout": timeout}


async def _chunks_of_file(path: Path) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(path.open, "rb")
    try:
        while data := await asyncio.to_thread(file.read, CHUNK):
            yield data
    finally:
        await asyncio.to_thread(file.close)


async def _whole(answer: Answered) -> Answered:
    assert answer.chunks is not None
    try:
        body = b"".join([chunk async for chunk in answer.chunks])
    finally:
        await answer.close()
    return Answered(answer.status, answer.headers, body)


async def _raw_async(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.aiter_bytes():
            yield chunk
    except httpx.HTTPError as error:
        raise _unanswered(error) from error


async def _raw_blocking(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        for chunk in response.iter_bytes():
            yield chunk
    except httpx.HTTPError as error:
        raise _unanswered(error) from error


def _unanswered(error: httpx.HTTPError) -> UnansweredError:
    never_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError)
    hopeless = isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError)
    late = isinstance(error, httpx.TimeoutException)
    text = str(error) or type(error).__name__
    if (distrust := _certificate_error(error)) is not None:
        hopeless = True
        text = f"its certificate is not trusted ({distrust}) — set client.ssl.ca to the authority that signed it"
    elif late:
        text = "no connection in time" if never_sent else "no answer in time"
    unconnected = isinstance(error, httpx.ConnectError)
    return UnansweredError(text, sent=not never_sent, late=late, hopeless=hopeless, refused=unconnected)


def _certificate_error(error: BaseException | None) -> str | None:
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        error, seen = error.__cause__ or error.__context__, seen + 1
    return None
