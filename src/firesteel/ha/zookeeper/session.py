"""One session with the ensemble, for the event loop: pipelined requests, and the time for which the session certainly lives.

kazoo works in its own threads. Only this module hands its results to the event loop.
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
"""The number of requests in kazoo's queue: with some 270 unsent ones it would block the event loop."""
_PROVES = (Sync, Transaction, Create, Delete)
"""Requests that the leader of the ensemble processes. A read is answered by a server that may be cut off from it."""
_CLOSE_SECONDS = 5.0


class _Reply:
    """Receives kazoo's answer to one request."""

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

    An expired session is followed by a new one; `generation` tells them apart. Ephemeral nodes end with the session that
    made them.
    """

    def __init__(self, options: ZooKeeperOptions, hosts: str) -> None:
        self.where = f"ZooKeeper at {hosts}"
        self.generation = 0
        self.requests = 0
        """The number of requests sent so far."""
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
        """Whether the servers have accepted our credentials, if we have any."""
        self._closed = False
        self._starting: asyncio.Task[None] | None = None
        self._posted: deque[Callable[[], None]] = deque()
        self._posting = False
        self._posting_lock = threading.Lock()
        self._tasks = OwnedTasks("zookeeper-session", lambda error: None)
        self._client: Any = None

    # -- life -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. Raises StoreUnavailableError when no server answers, StoreBrokenError when they refuse us."""
        await asyncio.to_thread(self._start)
        self._tasks.start(self._keep_proving(), "prove")
        try:
            await self.request(Sync("/"))
            self._welcome = True
        except StoreUnavailableError as error:
            raise StoreUnavailableError(
                f"{self.where} could not be reached within {self._options.connection_timeout:g} s; check the network, and that "
                f"the servers of high-availability.zookeeper.quorum are running ({error})"
            ) from error

    async def close(self) -> None:
        """End the session and with it all its ephemeral nodes."""
        if self._closed:
            return
        self._closed = True
        self.generation += 1
        await self._tasks.close()
        if self._client is not None:
            await self._stop(self._client)

    async def _stop(self, client: Any) -> None:
        """Stop kazoo, waiting only for a moment: it waits for an answer of the server, which may be suspended."""
        ended = asyncio.Event()

        def stop() -> None:
            try:
                client.stop()
                client.close()
            except Exception as error:
                logger.warning("the session with %s was not ended cleanly: %s", self.where, error)
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
        """The session timeout that the servers have granted."""
        return self._signs.timeout

    @property
    def connected(self) -> bool:
        return self._connected.is_set() and self._broken is None

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def trusted_until(self) -> float:
        """The monotonic time until which this session has certainly not expired, unless its expiry was reported already."""
        return self._signs.trusted_until

    @property
    def id_and_password(self) -> tuple[int, bytes] | None:
        """Id and password of the current session, when connected."""
        found: tuple[int, bytes] | None = self._client.client_id
        return found

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call a listener, on the event loop, whenever the connection is made, interrupted or lost for good."""
        self._listeners.add(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        self._listeners.discard(listener)

    def in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task that ends with the session at the latest."""
        self._tasks.start(work, name)

    # -- requests -----------------------------------------------------------------------------------------------------

    async def request(self, *requests: Any) -> Any:
        """Wait for the connection, send the requests in this order, and return the answer to the last one.

        Raises:
            StoreUnavailableError: No connection, or no answer in time; the requests may or may not have been carried out.
            StoreBrokenError: The servers refuse us.
            ABOUT_A_NODE: As kazoo raises them.
        """
        return (await self._answers(requests))[-1]

    async def read(self, *requests: Any) -> Any:
        """Like `request`, for requests that may be repeated: if the connection breaks, they are sent again.

        They are not repeated in a new session, whose server may lag behind what the last session saw.
        """
        return (await self.read_all(*requests))[-1]

    async def read_all(self, *requests: Any) -> list[Any]:
        """Like `read`, but returns all answers."""
        generation = self.generation
        for left in range(self._options.max_retry_attempts, -1, -1):
            try:
                answers = await self._answers(requests)
                break
            except StoreUnavailableError as error:
                if not left or not isinstance(error.__cause__, ConnectionLoss) or self.generation != generation:
                    raise
        if self.generation != generation:
            raise StoreUnavailableError(f"the session with {self.where} ended during a read; read again")
        return answers

    async def _answers(self, requests: Sequence[Any]) -> list[Any]:
        try:
            async with asyncio.timeout(self._options.connection_timeout):
                futures = [await self._send(request) for request in requests]
                answers = await asyncio.gather(*futures, return_exceptions=True)
        except TimeoutError:
            raise StoreUnavailableError(
                f"{self.where} did not answer within {self._options.connection_timeout:g} s; the request may or may not have "
                "been carried out; try again later"
            ) from None
        for answer in answers:
            if isinstance(answer, ABOUT_A_NODE):
                raise answer
            if isinstance(answer, AuthFailedError | SASLException) and self._welcome:
                # kazoo reports this when a connection breaks while credentials are checked; `_start_again` handles it.
                raise translated(ConnectionLoss(), self.where) from answer
            if isinstance(answer, BaseException):
                raise translated(answer, self.where) from answer
        return answers

    def on_loop(self, action: Callable[[], None]) -> Callable[[Any], None]:
        """A watcher for kazoo: calls `action` on the event loop, even when the watch is lost with the connection."""
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
            # kazoo reports this only after it has failed all its requests. A request sent before that would fail with them.
            self._connected.clear()
        if error is None or isinstance(error, ABOUT_A_NODE):
            self._signs.heard(time.monotonic())
        if error is None and reply.proves:
            self._signs.proved(reply.began)

    async def _keep_proving(self) -> None:
        """Send a request whenever there was no other, to prove that the session lives."""
        while True:
            if due := self._signs.due_in(time.monotonic()):
                await asyncio.sleep(due)
                continue
            try:
                async with asyncio.timeout(self._signs.patience):
                    await self.request(Sync("/"))
                    continue
            except TimeoutError:
                # kazoo would wait for longer than the session is trusted, although other servers may work.
                if self.connected and self._signs.is_silent(time.monotonic()) and "," in self._hosts:
                    logger.warning("%s is silent; connecting to another server", self.where)
                    break_connection(self._client)
            except StoreError as error:
                logger.debug("no proof of life from %s: %s", self.where, error)
            except Exception:  # any error: without proofs this node could never lead again
                logger.exception("no proof of life from %s", self.where)
            await asyncio.sleep(self.timeout / 24)

    # -- from kazoo's threads -----------------------------------------------------------------------------------------

    def _on_state(self, state: str) -> None:
        """Runs in kazoo's thread."""
        if state == KazooState.LOST:
            self.generation += 1  # here and not later: a check for leadership must not get an old answer
        keeper_state, at = self._client.client_state, time.monotonic()
        self._post(lambda: self._state_changed(state, keeper_state, at))

    def _on_timeout_granted(self, timeout: float) -> None:
        """Runs in kazoo's thread."""
        if timeout != self.timeout:
            logger.info("%s granted a session timeout of %g s", self.where, timeout)
        self._signs.timeout = timeout

    def _post(self, action: Callable[[], None]) -> None:
        """Run `action` on the event loop, in order. The loop is woken once for many actions."""
        with self._posting_lock:
            self._posted.append(action)
            if self._posting:
                return
            self._posting = True
        try:
            self._loop.call_soon_threadsafe(self._do_posted)
        except RuntimeError:  # the loop is closed, so nothing waits any more
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
            self._connected.set()  # so that waiting calls see it
        else:
            self._connected.clear()
            ended = state == KazooState.LOST and keeper_state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED)
            if ended and (self._starting is None or self._starting.done()):
                self._starting = self._tasks.start(self._start_again(keeper_state), "start again")
        for listener in list(self._listeners):
            listener()

    async def _start_again(self, why: str) -> None:
        """Restart kazoo, whose thread has ended: by its own error, or because our credentials were refused.

        They were accepted before, and kazoo also reports this when a connection breaks while they are checked.
        """
        logger.error("the connection to %s has ended (%s); reconnecting", self.where, why)
        while True:
            await asyncio.sleep(self._options.retry_wait)
            await self._stop(self._client)
            for reply in list(self._unanswered):  # kazoo has forgotten the one that caused its error
                reply.set_exception(ConnectionLoss())
            try:
                await asyncio.to_thread(self._start)
            except (
                Exception
            ) as error:  # no descriptor, no thread, certificates that are being replaced: a later try may succeed
                logger.error("cannot connect to %s: %s", self.where, error)
                continue
            # A thread that ends before it was connected reports nothing.
            while True:
                await asyncio.sleep(self._options.retry_wait)
                if self.connected:
                    return
                if has_ended(self._client):
                    break
