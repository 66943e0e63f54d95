"""One session with the ensemble, for the event loop: requests that are pipelined, and how long the session surely lives.

kazoo works in threads of its own. What comes from there is handed to the event loop here, and in no other place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from kazoo.client import KazooState  # type: ignore[import-untyped]
from kazoo.exceptions import AuthFailedError, ConnectionLoss, SASLException  # type: ignore[import-untyped]
from kazoo.protocol.serialization import Create, Delete, Sync, Transaction  # type: ignore[import-untyped]
from kazoo.protocol.states import KeeperState  # type: ignore[import-untyped]

from firesteel.concurrency import OwnedTasks
from firesteel.config.high_availability import ZooKeeperOptions
from firesteel.errors import StoreError, StoreUnavailableError
from firesteel.ha.zookeeper.client import break_connection, has_ended, make_client, send, tell_timeout
from firesteel.ha.zookeeper.errors import ABOUT_A_NODE, translated
from firesteel.ha.zookeeper.life import SignsOfLife

logger = logging.getLogger(__name__)

WINDOW = 100
"""Requests that kazoo has at a time: with some 270 that it cannot send it would block the event loop."""
_PROVES = (Sync, Transaction, Create, Delete)
"""What the leader of the ensemble has to do with. A mere read is answered by a server that may be cut off from it."""
_CLOSE_SECONDS = 5.0


class _Reply:
    """Where kazoo puts the answer to one request."""

    __slots__ = ("began", "delivered", "future", "proves", "session")

    def __init__(self, session: Session, future: asyncio.Future[Any], *, proves: bool) -> None:
        self.session = session
        self.future = future
        self.proves = proves
        self.delivered = False
        self.began = time.monotonic()

    def set(self, value: Any = None) -> None:
        self.session._post(lambda: self._deliver(value, None))

    def set_exception(self, error: Exception) -> None:
        self.session._post(lambda: self._deliver(None, error))

    def _deliver(self, value: Any, error: Exception | None) -> None:
        if self.delivered:
            return  # kazoo fails some requests twice
        self.delivered = True
        self.session._answered(self, error)
        if self.future.cancelled():
            return
        if error is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(error)


class Session:
    """Belongs to the event loop that it was opened on.

    A session that expired is followed by a new one; `generation` tells them apart. Nodes that are ephemeral live and die
    with the one that made them.
    """

    def __init__(self, options: ZooKeeperOptions, hosts: str) -> None:
        self.where = f"ZooKeeper at {hosts}"
        self.generation = 0
        self.requests = 0
        """Sent so far."""
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._hosts = hosts
        self._signs = SignsOfLife(options.session_timeout)
        self._slots = asyncio.Semaphore(WINDOW)
        self._unanswered: set[_Reply] = set()
        self._connected = asyncio.Event()
        self._listeners: set[Callable[[], None]] = set()
        self._broken: StoreError | None = None
        self._welcome = False
        """The servers have taken our credentials, if we have any."""
        self._closed = False
        self._starting: asyncio.Task[None] | None = None
        self._posted: deque[Callable[[], None]] = deque()
        self._posting = False
        self._posting_lock = threading.Lock()
        self._tasks = OwnedTasks("zookeeper-session", lambda error: None)
        self._client: Any = None

    # -- life -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. Raises StoreUnavailableError when no server answered, StoreBrokenError when they refuse us."""
        await asyncio.to_thread(self._start)
        self._tasks.start(self._keep_proving(), "prove")
        try:
            await self.request(Sync("/"))
            self._welcome = True
        except StoreUnavailableError as error:
            raise StoreUnavailableError(
                f"{self.where} could not be reached within {self._options.connection_timeout:g} s; check that the servers "
                f"of high-availability.zookeeper.quorum run, and the network ({error})"
            ) from error

    async def close(self) -> None:
        """End the session, and with it every ephemeral node of it."""
        if self._closed:
            return
        self._closed = True
        self.generation += 1
        await self._tasks.close()
        if self._client is not None:
            await self._stop(self._client)

    async def _stop(self, client: Any) -> None:
        """kazoo waits for an answer of the server, which may be stopped; we wait a little for kazoo, then leave it."""
        ended = asyncio.Event()

        def stop() -> None:
            try:
                client.stop()
                client.close()
            except Exception as error:
                logger.warning("the session with %s was not ended in order: %s", self.where, error)
            self._post(ended.set)

        threading.Thread(target=stop, name="zookeeper-stop", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await ended.wait()

    def _start(self) -> None:
        """Blocks."""
        self._client = make_client(self._options, self._hosts)
        self._client.add_listener(self._on_state)
        tell_timeout(self._client, self._on_timeout_granted)
        self._client.start_async()

    # -- what is known of the session -------------------------------------------------------------------------------

    @property
    def timeout(self) -> float:
        """As the servers have granted it."""
        return self._signs.timeout

    @property
    def connected(self) -> bool:
        return self._connected.is_set() and self._broken is None

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def trusted_until(self) -> float:
        """The monotonic time until which this session has surely not expired, if it had not been told so by now."""
        return self._signs.trusted_until

    @property
    def id_and_password(self) -> tuple[int, bytes] | None:
        """Of the current session, when connected."""
        found: tuple[int, bytes] | None = self._client.client_id
        return found

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Have it called, on the event loop, whenever the connection comes, goes or is lost for good."""
        self._listeners.add(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        self._listeners.discard(listener)

    def in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Work that ends with the session at the latest."""
        self._tasks.start(work, name)

    # -- requests -----------------------------------------------------------------------------------------------------

    async def request(self, *requests: Any) -> Any:
        """The answer to the last one of these, which are sent in this order; the connection is waited for.

        Raises:
            StoreUnavailableError: No connection, or no answer in time; what was asked may or may not have happened.
            StoreBrokenError: The servers refuse us.
            ABOUT_A_NODE: As kazoo has them.
        """
        return (await self._answers(requests))[-1]

    async def read(self, *requests: Any) -> Any:
        """Like `request`, for what does no harm when it is done twice: a connection that breaks is waited for again.

        Not across sessions: a server that lags behind what the last one saw may take the new one.
        """
        return (await self.read_all(*requests))[-1]

    async def read_all(self, *requests: Any) -> list[Any]:
        """Like `read`, with all answers."""
        generation = self.generation
        for left in range(self._options.max_retry_attempts, -1, -1):
            try:
                answers = await self._answers(requests)
                break
            except StoreUnavailableError as error:
                if not left or not isinstance(error.__cause__, ConnectionLoss) or self.generation != generation:
                    raise
        if self.generation != generation:
            raise StoreUnavailableError(f"the session with {self.where} ended while it was read from; read again")
        return answers

    async def _answers(self, requests: Sequence[Any]) -> list[Any]:
        try:
            async with asyncio.timeout(self._options.connection_timeout):
                futures = [await self._send(request) for request in requests]
                answers = await asyncio.gather(*futures, return_exceptions=True)
        except TimeoutError:
            raise StoreUnavailableError(
                f"{self.where} gave no answer within {self._options.connection_timeout:g} s; what was asked of it may or may "
                "not have happened, and may work later"
            ) from None
        for answer in answers:
            if isinstance(answer, ABOUT_A_NODE):
                raise answer
            if isinstance(answer, AuthFailedError | SASLException) and self._welcome:
                # A connection that breaks while credentials are checked looks just so to kazoo; `_start_again` sees to it.
                raise translated(ConnectionLoss(), self.where) from answer
            if isinstance(answer, BaseException):
                raise translated(answer, self.where) from answer
        return answers

    def on_loop(self, action: Callable[[], None]) -> Callable[[Any], None]:
        """A watcher for kazoo: calls `action` on the event loop, also when the connection is lost, and with it the watch."""
        return lambda _: self._post(action)

    async def _send(self, request: Any) -> asyncio.Future[Any]:
        while True:
            if self._closed:
                raise StoreError(f"the session with {self.where} is closed; open it again")
            if self._broken is not None:
                raise self._broken
            await self._connected.wait()
            await self._slots.acquire()
            if self.connected and not self._closed:
                break
            self._slots.release()
        future: asyncio.Future[Any] = self._loop.create_future()
        reply = _Reply(self, future, proves=isinstance(request, _PROVES))
        self.requests += 1
        self._unanswered.add(reply)
        send(self._client, request, reply)
        return future

    def _answered(self, reply: _Reply, error: Exception | None) -> None:
        self._unanswered.discard(reply)
        self._slots.release()
        if isinstance(error, ConnectionLoss) and self._client.client_state != KeeperState.CONNECTED:
            # kazoo says so only after it has failed all that it had. What is sent again before that would fail with the rest.
            self._connected.clear()
        if error is None or isinstance(error, ABOUT_A_NODE):
            self._signs.heard(time.monotonic())
        if error is None and reply.proves:
            self._signs.proved(reply.began)

    async def _keep_proving(self) -> None:
        """Ask for something whenever nothing else was asked for, so that it is known that the session lives."""
        while True:
            if due := self._signs.due_in(time.monotonic()):
                await asyncio.sleep(due)
                continue
            try:
                async with asyncio.timeout(self._signs.patience):
                    await self.request(Sync("/"))
                    continue
            except TimeoutError:
                # kazoo would wait for longer than the session is trusted, and the other servers may be well.
                if self.connected and self._signs.is_silent(time.monotonic()) and "," in self._hosts:
                    logger.warning("%s is silent; connecting to another server", self.where)
                    break_connection(self._client)
            except StoreError as error:
                logger.debug("no proof of life from %s: %s", self.where, error)
            except Exception:  # whatever it is: without proofs this node could never lead again
                logger.exception("no proof of life from %s", self.where)
            await asyncio.sleep(self.timeout / 24)

    # -- from kazoo's threads -----------------------------------------------------------------------------------------

    def _on_state(self, state: str) -> None:
        """Runs in kazoo's thread."""
        if state == KazooState.LOST:
            self.generation += 1  # here and not later: whoever asks whether it leads must not be told an old answer
        keeper_state, at = self._client.client_state, time.monotonic()
        self._post(lambda: self._state_changed(state, keeper_state, at))

    def _on_timeout_granted(self, timeout: float) -> None:
        """Runs in kazoo's thread."""
        if timeout != self.timeout:
            logger.info("%s grants a session timeout of %g s", self.where, timeout)
        self._signs.timeout = timeout

    def _post(self, action: Callable[[], None]) -> None:
        """Have `action` done on the event loop, in order. The loop is woken once for many."""
        with self._posting_lock:
            self._posted.append(action)
            if self._posting:
                return
            self._posting = True
        try:
            self._loop.call_soon_threadsafe(self._do_posted)
        except RuntimeError:  # the loop is closed: nobody waits any more
            pass

    def _do_posted(self) -> None:
        with self._posting_lock:
            self._posting = False
            actions, self._posted = self._posted, deque()
        for action in actions:
            action()

    def _state_changed(self, state: str, keeper_state: str, at: float) -> None:
        if self._closed:
            return
        logger.info("the connection to %s is %s", self.where, state)
        if state == KazooState.CONNECTED:
            self._signs.let_in(at)
            self._connected.set()
        elif keeper_state == KeeperState.AUTH_FAILED and not self._welcome:
            self._broken = translated(AuthFailedError(), self.where)
            self._connected.set()  # let those who wait see it
        else:
            self._connected.clear()
            ended = state == KazooState.LOST and keeper_state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED)
            if ended and (self._starting is None or self._starting.done()):
                self._starting = self._tasks.start(self._start_again(keeper_state), "start again")
        for listener in list(self._listeners):
            listener()

    async def _start_again(self, why: str) -> None:
        """kazoo's thread has ended: by an error of its own, or because our credentials were refused.

        They were good before. A connection that breaks while they are checked looks just so to kazoo.
        """
        logger.error("the connection to %s has ended (%s); connecting anew", self.where, why)
        while True:
            await asyncio.sleep(self._options.retry_wait)
            await self._stop(self._client)
            for reply in list(self._unanswered):  # the one that it fell over is forgotten there
                reply.set_exception(ConnectionLoss())
            try:
                await asyncio.to_thread(self._start)
            except (
                Exception
            ) as error:  # no descriptor, no thread, certificates that are being replaced: it may work later
                logger.error("no connection to %s could be begun: %s", self.where, error)
                continue
            # A thread that dies before it was ever connected tells nobody.
            while True:
                await asyncio.sleep(self._options.retry_wait)
                if self.connected:
                    return
                if has_ended(self._client):
                    break
