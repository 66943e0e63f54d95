"""kazoo, as the session uses it. This is the only module that goes past its public interface."""

from __future__ import annotations

import contextlib
import math
import select
import socket
import ssl
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import EXCEPTIONS, ZookeeperError  # type: ignore[import-untyped]
from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]
from kazoo.protocol.serialization import (  # type: ignore[import-untyped]
    GetData,
    MultiHeader,
    Transaction,
    int_struct,
    read_buffer,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat  # type: ignore[import-untyped]
from kazoo.retry import KazooRetry  # type: ignore[import-untyped]
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE  # type: ignore[import-untyped]

from firesteel.config.high_availability import ZooKeeperAcl, ZooKeeperOptions, ZooKeeperSaslMechanism
from firesteel.ha.zookeeper.tls import connect, tls_context


def _error_of(code: int, name: str) -> type[Exception]:
    """The exception for an error code of the servers. kazoo ends its connection for good on a code that it does not know."""
    found: type[Exception] = EXCEPTIONS.setdefault(code, type(name, (ZookeeperError,), {"code": code}))
    return found


RequestTimeoutError = _error_of(-122, "RequestTimeoutError")
"""The server gave up waiting for its ensemble."""
SaslRequiredError = _error_of(-124, "SaslRequiredError")
"""The servers only serve clients that authenticate with SASL."""
QuotaExceededError = _error_of(-125, "QuotaExceededError")
"""An operator's limit on the number or size of nodes."""
ThrottledError = _error_of(-127, "ThrottledError")
"""The server is overloaded."""


class Reply(Protocol):
    """Receives the outcome of a request, in kazoo's own thread."""

    def set(self, value: Any = None) -> None: ...

    def set_exception(self, error: Exception) -> None: ...


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with a shorter timeout for a host that does not even accept a connection.

    kazoo would wait for a whole session timeout, by which time the session is over although other servers work.
    """

    def __init__(self, connect_timeout: float, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._connect_timeout = connect_timeout
        self._tls = tls

    def select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """The sockets that are ready. kazoo calls this several times for each request, and its own implementation makes and
        closes an epoll object each time."""
        if timeout is not None and timeout < 0:
            raise ValueError("timeout must be non-negative")
        poll = select.poll()
        wanted = {file.fileno(): select.POLLIN for file in rlist}
        for file in wlist:
            wanted[file.fileno()] = wanted.get(file.fileno(), 0) | select.POLLOUT
        for fd, events in wanted.items():
            poll.register(fd, events)
        ready = dict(poll.poll(None if timeout is None else math.ceil(timeout * 1000)))
        # A broken connection is ready for both, and using it raises the error.
        readable = [file for file in rlist if ready.get(file.fileno(), 0) & ~select.POLLOUT]
        return readable, [file for file in wlist if ready.get(file.fileno(), 0) & ~select.POLLIN], []

    def create_connection(self, *, address: tuple[str, int], hostname: str, **kwargs: Any) -> Any:
        if self._tls is not None:
            return connect(self._tls, address, hostname, self._connect_timeout)
        kwargs["timeout"] = self._connect_timeout
        return super().create_connection(address=address, hostname=hostname, **kwargs)


def make_client(options: ZooKeeperOptions, hosts: str) -> Any:
    """A KazooClient that has not been started."""
    connect_timeout = max(0.2, options.session_timeout / (hosts.count(",") + 1) / 2)
    return KazooClient(
        hosts=hosts,
        timeout=options.session_timeout,
        handler=_Handler(connect_timeout, tls_context(options)),
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=options.retry_wait),
        auth_data=[("digest", options.auth)] if options.auth else None,
        sasl_options=_sasl(options),
        use_ssl=options.ssl_enabled,
    )


def _sasl(options: ZooKeeperOptions) -> dict[str, str | None] | None:
    if options.sasl_mechanism is ZooKeeperSaslMechanism.NONE:
        return None
    return {
        "mechanism": options.sasl_mechanism.value,
        "service": options.sasl_service_name,
        "username": options.sasl_username,
        "password": options.sasl_password,
    }


def acl_of(options: ZooKeeperOptions) -> list[Any]:
    acl: list[Any] = CREATOR_ALL_ACL if options.acl is ZooKeeperAcl.CREATOR else OPEN_ACL_UNSAFE
    return acl


def send(client: Any, request: Any, reply: Reply) -> None:
    """Queue a request. kazoo's own methods do the same, but with two more threads and a condition for each request.

    Blocks when a few hundred unsent requests are queued: kazoo wakes its thread with a byte in a socket for each.
    """
    client._call(request, reply)


def tell_timeout(client: Any, tell: Callable[[float], None]) -> None:
    """Call `tell`, in kazoo's thread, with each session timeout that a server has granted, in seconds."""
    connection = client._connection
    original = connection._connect

    def connect_and_tell(*args: Any) -> Any:
        read_timeout, connect_timeout = original(*args)
        tell(read_timeout * 3 / 2 / 1000)  # kazoo only keeps this value
        return read_timeout, connect_timeout

    connection._connect = connect_and_tell


def break_connection(client: Any) -> None:
    """Make kazoo reconnect, to another server if there is one; the session continues."""
    connected = client._connection._socket
    if connected is not None:
        with contextlib.suppress(OSError):
            # Not the method of a TLS socket: it would drop the decryption first, and kazoo, if it reads at this moment, would
            # take encrypted bytes in the buffer for an answer.
            socket.socket.shutdown(connected, socket.SHUT_RDWR)


def has_ended(client: Any) -> bool:
    """Whether kazoo's thread, which was started, has ended."""
    ended: bool = client._connection.connection_stopped.is_set()
    return ended


class MultiRead(namedtuple("MultiRead", "operations")):
    """Many GetData in one request, which is twenty times as fast as one by one. Servers support it since ZooKeeper 3.6."""

    type = 22  # a namedtuple with a type, as kazoo's own requests are

    def serialize(self) -> Any:
        return Transaction.serialize(self)

    @classmethod
    def deserialize(cls, raw: Any, offset: int) -> list[tuple[bytes, ZnodeStat] | Exception]:
        results: list[tuple[bytes, ZnodeStat] | Exception] = []
        header, offset = MultiHeader.deserialize(raw, offset)
        while not header.done:
            if header.type == GetData.type:
                data, offset = read_buffer(raw, offset)
                results.append((data or b"", ZnodeStat._make(stat_struct.unpack_from(raw, offset))))
                offset += stat_struct.size
            else:
                results.append(EXCEPTIONS[int_struct.unpack_from(raw, offset)[0]]())
                offset += int_struct.size
            header, offset = MultiHeader.deserialize(raw, offset)
        return results
