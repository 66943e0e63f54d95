"""A TCP proxy on loopback that can delay, stop, cut and drop connections: a network between a client and a server.

    with TcpProxy(("127.0.0.1", 2181)) as proxy:
        client.connect(proxy.host, proxy.port)
        proxy.freeze()      # nothing passes, and no connection breaks, as when packets get lost
        proxy.thaw()        # what was held back arrives
        proxy.cut()         # connections break, and new ones are refused
        proxy.restore()

It runs in a thread of its own; all methods may be called from anywhere, and have taken effect when they return.

It carries bytes, not packets. What a lossy network does to a TCP connection is that some bytes arrive late, once they were sent
again; that is what `disturb` does. Bytes of one connection keep their order, as TCP sees to that; those of several overtake.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

TO_SERVER = "to server"
TO_CLIENT = "to client"
BOTH = (TO_SERVER, TO_CLIENT)
_CHUNK = 65536
RETRANSMISSION = 0.25
"""How much later something arrives that was lost once, in seconds; Linux sends again after 200 ms at least."""
LONGEST_RETRANSMISSION = 4.0


class TcpProxy:
    """On plain sockets: asyncio's own server loses a connection that comes while it is closed."""

    def __init__(self, target: tuple[str, int], *, host: str = "127.0.0.1", port: int = 0) -> None:
        """`port`: 0 takes a free one."""
        self.target = target
        self.host = host
        self.port = port
        self.accepted = 0
        """Connections so far."""
        self._delay = 0.0
        self._loss = 0.0
        self._bytes_per_second: float | None = None
        self._draw = random.Random(0)  # noqa: S311 - chance, not a secret
        self._loop = asyncio.new_event_loop()
        self._listener: socket.socket | None = None
        self._gates = {direction: asyncio.Event() for direction in BOTH}
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._open)
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Break all connections and refuse new ones, until `restore`."""

        async def action() -> None:
            self._close_listener()
            await self._break_all()

        self._do(action)

    def restore(self) -> None:
        """Undo `cut`, `freeze`, `delay` and `disturb`."""

        async def action() -> None:
            self._delay, self._loss, self._bytes_per_second = 0.0, 0.0, None
            for gate in self._gates.values():
                gate.set()
            self._listen()

        self._do(action)

    def drop(self) -> None:
        """Break all connections, once; new ones are welcome."""
        self._do(self._break_all)

    def freeze(self, *directions: str) -> None:
        """Let nothing pass in these directions (both by default); connections stay open, and new ones come about."""

        async def action() -> None:
            for direction in directions or BOTH:
                self._gates[direction].clear()

        self._do(action)

    def thaw(self) -> None:
        """Let everything pass again, first what was held back."""

        async def action() -> None:
            for gate in self._gates.values():
                gate.set()

        self._do(action)

    def delay(self, seconds: float) -> None:
        """From now on, everything arrives that much later, in both directions."""

        async def action() -> None:
            self._delay = seconds

        self._do(action)

    def disturb(self, *, delay: float = 0.0, loss: float = 0.0, bytes_per_second: float | None = None) -> None:
        """A bad line.

        Args:
            delay: how much later everything arrives, in seconds.
            loss: the share of what is sent that is lost, and comes a retransmission later; lost again, after twice that, ...
            bytes_per_second: of each connection, in each direction.
        """

        async def action() -> None:
            self._delay, self._loss, self._bytes_per_second = delay, loss, bytes_per_second

        self._do(action)

    # -- in the thread ----------------------------------------------------------------------------------------------

    def _do(self, action: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            await action()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    async def _open(self) -> None:
        for gate in self._gates.values():
            gate.set()
        self._listen()

    async def _end(self) -> None:
        self._close_listener()
        await self._break_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server((self.host, self.port), backlog=128)
            self._listener.setblocking(False)
            self.port = self._listener.getsockname()[1]
            self._loop.add_reader(self._listener, self._accept, self._listener)

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    async def _break_all(self) -> None:
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        if connections:
            await asyncio.wait(connections)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client, _ = listener.accept()
            server = socket.socket()
            self.accepted += 1
            connection = self._loop.create_task(self._serve(client, server))
            self._connections.add(connection)
            connection.add_done_callback(self._connections.discard)
            # Not by the task itself, which may be told to end before it begins, and while it ends.
            connection.add_done_callback(lambda _: _reset(client, server))

    async def _serve(self, client: socket.socket, server: socket.socket) -> None:
        pumps: list[asyncio.Task[None]] = []
        try:
            for end in (client, server):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(server, self.target)
            pumps = [
                self._loop.create_task(self._pump(TO_SERVER, client, server)),
                self._loop.create_task(self._pump(TO_CLIENT, server, client)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, direction: str, source: socket.socket, sink: socket.socket) -> None:
        """Read at once and write when it is time, so that a delay does not become a limit of speed."""
        pending: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def write() -> None:
            while True:
                when, chunk = await pending.get()
                if self._bytes_per_second:
                    when = max(when, self._loop.time() + len(chunk) / self._bytes_per_second)
                await asyncio.sleep(max(0.0, when - self._loop.time()))
                await self._gates[direction].wait()
                if not chunk:
                    return  # the other side has ended; so do both
                await self._loop.sock_sendall(sink, chunk)

        writing = self._loop.create_task(write())
        try:
            chunk = b"-"
            while chunk and not writing.done():
                chunk = await self._loop.sock_recv(source, _CHUNK)
                pending.put_nowait((self._loop.time() + self._delay + self._lateness(), chunk))
            await writing
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    def _lateness(self) -> float:
        late = 0.0
        again = RETRANSMISSION
        while again <= LONGEST_RETRANSMISSION and self._draw.random() < self._loss:
            late += again
            again *= 2
        return late


def _reset(*ends: socket.socket) -> None:
    """Close them as when the other host is gone."""
    for end in ends:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.close()


class LineGroup:
    """Several lines as one: those of a node to all servers of its store."""

    def __init__(self, lines: Sequence[TcpProxy]) -> None:
        self._lines = list(lines)

    @property
    def addresses(self) -> list[str]:
        return [line.address for line in self._lines]

    def __enter__(self) -> Self:
        for line in self._lines:
            line.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for line in self._lines:
            line.__exit__()

    def cut(self) -> None:
        for line in self._lines:
            line.cut()

    def restore(self) -> None:
        for line in self._lines:
            line.restore()

    def drop(self) -> None:
        for line in self._lines:
            line.drop()

    def freeze(self, *directions: str) -> None:
        for line in self._lines:
            line.freeze(*directions)

    def disturb(self, *, delay: float = 0.0, loss: float = 0.0, bytes_per_second: float | None = None) -> None:
        for line in self._lines:
            line.disturb(delay=delay, loss=loss, bytes_per_second=bytes_per_second)
