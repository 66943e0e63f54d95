"""The network that other tests break does break as told."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest
from tests.support.echo import echo_server
from tests.support.tcp_proxy import TO_CLIENT, TO_SERVER, TcpProxy


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets."""
    with echo_server() as address:
        yield address


def connect(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=5)


def passes(connection: socket.socket, timeout: float = 5) -> bool:
    connection.settimeout(timeout)
    connection.sendall(b"ping")
    try:
        return connection.recv(4) == b"ping"
    except TimeoutError:
        return False


def test_passes_on_what_comes(echo: tuple[str, int]) -> None:
    with TcpProxy(echo) as proxy, connect(proxy) as connection:
        assert passes(connection)
        assert proxy.accepted == 1
        assert proxy.open_connections == 1
        connection.sendall(bytes(100_000))
        received = 0
        while received < 100_000:
            received += len(connection.recv(65536))


@pytest.mark.parametrize("directions", [(), (TO_SERVER,), (TO_CLIENT,)])
def test_freeze_keeps_all_back_and_thaw_lets_it_go(echo: tuple[str, int], directions: tuple[str, ...]) -> None:
    with TcpProxy(echo) as proxy, connect(proxy) as connection:
        assert passes(connection)
        proxy.freeze(*directions)
        assert not passes(connection, 0.1)
        proxy.thaw()
        connection.settimeout(5)
        assert connection.recv(4) == b"ping"


def test_cut_breaks_and_refuses_until_restored(echo: tuple[str, int]) -> None:
    with TcpProxy(echo) as proxy:
        with connect(proxy) as connection:
            assert passes(connection)
            port = proxy.port
            proxy.cut()
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(4) == b""
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        proxy.restore()
        assert proxy.port == port
        with connect(proxy) as connection:
            assert passes(connection)


def test_drop_breaks_once(echo: tuple[str, int]) -> None:
    with TcpProxy(echo) as proxy:
        with connect(proxy) as connection:
            assert passes(connection)
            proxy.drop()
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(4) == b""
        with connect(proxy) as connection:
            assert passes(connection)


def test_delay_is_one_way_and_no_limit_of_speed(echo: tuple[str, int]) -> None:
    with TcpProxy(echo) as proxy, connect(proxy) as connection:
        proxy.delay(0.1)
        began = time.monotonic()
        assert passes(connection)
        assert time.monotonic() - began >= 0.2
        proxy.restore()
        assert passes(connection)


def test_server_that_is_not_there(echo: tuple[str, int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        target = closed.getsockname()
    with TcpProxy(target) as proxy, contextlib.suppress(ConnectionResetError), connect(proxy) as connection:
        assert connection.recv(4) == b""
