"""Ports for servers that begin to listen later."""

from __future__ import annotations

import socket

import pytest

from firesteel import ports


@pytest.mark.parametrize(
    ("kernel", "quiet"),
    [
        ((32768, 60999), range(20_000, 32_768)),
        ((15000, 50000), range(50_001, 65_536)),
        ((1024, 65535), range(20_000, 65_536)),
        ((20_500, 65_000), range(20_000, 65_536)),
        ((1024, 15000), range(20_000, 65_536)),
    ],
)
def test_ports_are_not_those_that_the_kernel_hands_out(kernel: tuple[int, int], quiet: range) -> None:
    assert ports.quiet_range(kernel) == quiet


def test_ports_are_in_a_row_and_can_be_listened_on() -> None:
    row = ports.unused_ports(3)
    assert row == list(range(row[0], row[0] + 3))
    first, last = ports.kernel_range()
    assert not any(first <= port <= last for port in row) or last - first > 44_000
    for port in row:
        socket.create_server((ports.LOOPBACK, port)).close()


def test_ports_that_are_taken_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((ports.LOOPBACK, 0)) as server:
        taken: int = server.getsockname()[1]
        monkeypatch.setattr(ports, "quiet_range", lambda _: range(taken, taken + 2))
        with pytest.raises(ports.NoPortError, match="no 1 free ports"):
            ports.unused_port()
