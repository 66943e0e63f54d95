"""Connections are counted at the listener, and those without a credential go first (S43)."""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import resource
import socket
from collections.abc import Iterator

import pytest
from tests.rest_security.rig import BEARER, make_door, rest, security, served, until

from firesteel.rest.security.connections import RESERVE, Connections, GuardedListener, OpenConnection, room_for


class Crowd:
    """Connections without sockets."""

    def __init__(self, most: int, per_peer: int) -> None:
        self.connections = Connections(most, per_peer)
        self.ended: list[int] = []
        self._next = 0

    def come(self, peer: str, *, proved: bool = False) -> int | None:
        number = self._next = self._next + 1
        if not self.connections.admit(OpenConnection(number, peer, lambda: self.ended.append(number))):
            return None
        if proved:
            self.connections.prove(number)
        return number


def test_the_oldest_stranger_of_the_address_that_has_most_goes_first() -> None:
    crowd = Crowd(5, 5)
    quiet = crowd.come("b")
    flood = [crowd.come("a") for _ in range(4)]
    assert crowd.come("c") is not None
    assert crowd.ended == [flood[0]]
    assert quiet not in crowd.ended
    assert len(crowd.connections) == 5


def test_those_who_are_known_stay_and_when_all_are_nobody_comes_in() -> None:
    crowd = Crowd(3, 3)
    known = [crowd.come("a", proved=True) for _ in range(2)]
    stranger = crowd.come("a")
    assert crowd.come("b", proved=True)
    assert crowd.ended == [stranger]
    assert crowd.come("c") is None
    assert not set(known) & set(crowd.ended)


def test_one_address_has_its_share() -> None:
    crowd = Crowd(10, 2)
    first = crowd.come("a")
    crowd.come("a", proved=True)
    assert crowd.come("a", proved=True)
    assert crowd.ended == [first]
    assert crowd.come("a") is None
    assert crowd.come("b") is not None


def test_what_is_closed_is_forgotten() -> None:
    connections = Connections(2, 2)
    for number in range(100):
        connection = OpenConnection(number % 2, f"peer {number}", lambda: None)
        assert connections.admit(connection)
        if number % 3 == 0:
            connections.prove(number % 2)
        connections.closed(connection)
        connections.closed(connection)
    assert len(connections) == 0
    assert not connections._peers
    assert not connections._strangers


def test_descriptors_are_kept_back() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert room_for(10**9) <= soft - RESERVE
    assert room_for(20) == 20


@contextlib.contextmanager
def silent(port: int, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as opened:
        yield [opened.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(count)]


def status(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/who", headers=BEARER)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_silent_connections_keep_nobody_out_and_nobody_who_is_known_is_cut_off() -> None:
    connections = Connections(12, 12)
    with served(make_door(), rest(), security(), connections) as port:
        known = [http.client.HTTPConnection("127.0.0.1", port, timeout=20) for _ in range(4)]
        try:
            assert {status(c) for c in known} == {200}
            sockets = [c.sock for c in known]
            with silent(port, 40) as strangers:
                newcomer = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                known.append(newcomer)
                assert status(newcomer) == 200
                assert {status(c) for c in known} == {200}
                assert [c.sock for c in known[:4]] == sockets, "they were not connected anew"
                assert len(connections) <= 12
                strangers[0].settimeout(10)
                assert strangers[0].recv(1) == b"", "it was ended"
        finally:
            for connection in known:
                connection.close()
        until(lambda: len(connections) == 0)


def test_without_descriptors_callers_are_turned_away_in_one_line_and_served_afterwards(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = GuardedListener(socket.create_server(("127.0.0.1", 0), backlog=64), Connections(64, 64))
    listener.setblocking(False)
    address = listener.getsockname()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as opened, caplog.at_level(logging.WARNING):
        opened.callback(listener.close)
        for _ in range(20):
            opened.enter_context(socket.create_connection(address, 10))
        lowest = os.dup(0)  # the next one would be this: from here on there is none
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            for _ in range(10):
                with pytest.raises(BlockingIOError):
                    listener.accept()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        accepted, _ = listener.accept()
        accepted.close()
    assert len(caplog.records) == 1
    assert "were refused" in caplog.text
    assert "Traceback" not in caplog.text
