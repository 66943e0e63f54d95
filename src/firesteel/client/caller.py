"""Sending a request to a cluster until a node answers: at other addresses, with pauses, up to a deadline."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from firesteel.client.endpoints import Attempts, Endpoints
from firesteel.client.errors import ClusterError
from firesteel.client.requests import RETRIED, Request, error_of, retry_after
from firesteel.client.transport import Answered, Outgoing, Transport, UnansweredError
from firesteel.errors import FiresteelError, UnauthenticatedError

T = TypeVar("T")

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 20.0
"""How long one node may be silent before another one is asked. Repeating is harmless, so this need not be long."""
UPLOAD_SECONDS = 120.0
"""A node that has all of a large file still has to write it to its disk."""
SILENCE_SECONDS = 25.0
"""An event stream that is silent for this long is broken: nodes send a comment every 15 s."""

_GONE = ClusterError("the node has ended, and no other one is serving yet")


class ClusterCaller:
    """One cluster, over one transport."""

    def __init__(
        self, endpoints: Endpoints, transport: Transport, timeout: float, connect_timeout: float | None = None
    ) -> None:
        self._endpoints = endpoints
        self._transport = transport
        self.timeout = timeout
        self._connect_timeout = connect_timeout
        """How long connections may be refused before any node has answered; None for as long as `timeout`."""
        self._reached = False

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._endpoints.addresses

    async def json(self, request: Request, *, patience: float | None = None) -> object:
        """The JSON of a successful answer. Raises the error that another answer stands for."""
        body = (await self.call(request, patience=patience)).body
        try:
            return json.loads(body) if body else {}
        except ValueError:
            message = f"{request.method} {request.path} : the answer is not JSON"
            raise ClusterError(f"{message}; is there a Firesteel node at this address?") from None

    async def call(self, request: Request, *, patience: float | None = None) -> Answered:
        """A successful answer, with its whole body."""
        uploads = request.body is not None and not isinstance(request.body, bytes)
        limit = UPLOAD_SECONDS if uploads else ANSWER_SECONDS
        return await self._persist(request, self._transport.send, limit, patience, uploads=uploads)

    async def open(
        self, request: Request, *, silence: float = SILENCE_SECONDS, patience: float | None = None
    ) -> Answered:
        """A successful answer, with its chunks as they come; the caller closes it."""
        return await self._persist(request, self._transport.open, silence, patience, streams=True)

    async def pause(self, seconds: float) -> None:
        await self._transport.sleep(seconds)

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await self._transport.in_thread(work)

    async def close(self) -> None:
        await self._transport.close()

    async def _persist(
        self,
        request: Request,
        send: Callable[[Outgoing], Awaitable[Answered]],
        limit: float,
        patience: float | None,
        *,
        uploads: bool = False,
        streams: bool = False,
    ) -> Answered:
        patience = self.timeout if patience is None else patience
        attempts = self._attempts(patience)
        extended = False
        while (turn := attempts.next(time.monotonic())) is not None:
            address, pause = turn
            if pause:
                await self._transport.sleep(pause)
            if attempts.begun and self._endpoints.may_move:
                # By now any process may listen where the node was.
                if not await self._transport.in_thread(self._endpoints.look_again):
                    attempts.failed(address, _GONE, time.monotonic())
                    continue
                attempts.moved(self._endpoints.addresses)
                if address not in self._endpoints.addresses:
                    continue
            left = max(0.01, attempts.deadline - time.monotonic())
            # A body that is large, or never ends, may take longer than the wait for a first answer is allowed to.
            silence = limit if uploads or streams else min(limit, left)
            try:
                answer = await send(self._outgoing(request, address, min(CONNECT_SECONDS, left), silence))
            except UnansweredError as error:
                if error.hopeless or (request.once and error.sent):
                    raise ClusterError(f"{request.method} {request.path} at {address}: {error}") from error
                cut_short = error.late and left < limit
                attempts.failed(address, error, time.monotonic(), cut_short=cut_short, refused=error.refused)
            else:
                self._reached = True
                if answer.success:
                    self._endpoints.answered(address)
                    return answer
                refusal = self._refusal(request, answer, address)
                if answer.status not in RETRIED or (request.once and answer.status in (502, 504)):
                    raise refusal
                attempts.failed(address, refusal, time.monotonic(), retry_after=retry_after(answer.headers))
            if uploads and not extended:
                # The time that was spent sending was not spent waiting.
                attempts.deadline = time.monotonic() + patience
                extended = True
        raise attempts.error(patience)

    def _attempts(self, patience: float) -> Attempts:
        now = time.monotonic()
        limit = None if self._reached or self._connect_timeout is None else now + self._connect_timeout
        return Attempts(self._endpoints.addresses, now + patience, refused_until=limit)

    def _refusal(self, request: Request, answer: Answered, address: str) -> FiresteelError:
        refusal = error_of(request, answer.status, answer.headers, answer.body)
        if isinstance(refusal, UnauthenticatedError):
            refusal.token_given = self._endpoints.token_for(address) is not None
        return refusal

    def _outgoing(self, request: Request, address: str, connect: float, silence: float) -> Outgoing:
        headers = {"accept": "*/*", **request.headers}
        token = self._endpoints.token_for(address)
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        return Outgoing(request.method, address + request.target, headers, request.body, connect, silence)
