"""Hosts in network namespaces: that they are apart, and that what is done to them is done to them alone."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import needs
from tests.support.waiting import until

from firesteel_chaos.controlled import ChaosError
from firesteel_chaos.hosts import Direction, HostNetwork, HostProcess, StagedHost
from firesteel_chaos.hosts.links import BRIDGE, PREFIX

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.xdist_group("hosts")]

ECHO = """
import pathlib, socket, sys
server = socket.create_server((sys.argv[1], 9000))
while True:
    connection, _ = server.accept()
    with connection:
        data = connection.recv(100)
        with open("heard", "ab") as heard:
            heard.write(data)
        connection.sendall(data.upper())
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], 9000), timeout=1) as connection:
    connection.sendall(sys.argv[2].encode())
    print(connection.recv(100).decode())
"""
SHOUT = "import socket, sys; socket.socket(type=socket.SOCK_DGRAM).sendto(sys.argv[2].encode(), (sys.argv[1], 9001))"
LISTEN = """
import socket, sys
receiver = socket.socket(type=socket.SOCK_DGRAM)
receiver.bind((sys.argv[1], 9001))
while True:
    with open("shouts", "ab") as shouts:
        shouts.write(receiver.recv(100) + b" ")
"""
WHO = "from firesteel.hosts import this_host; print(this_host())"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostNetwork]:
    needs.hosts()
    with HostNetwork(tmp_path_factory.mktemp("hosts"), ["a", "b", "c"]) as made:
        yield made


@pytest.fixture(autouse=True)
def healed(network: HostNetwork) -> Iterator[None]:
    """Each test finds all hosts up, whole and empty."""
    for host in network:
        host.boot()
    yield
    network.heal()
    for host in network:
        if host.up:
            host.resume()
            host.kill_all()


def python(host: StagedHost, program: str, *arguments: str) -> HostProcess:
    return host.start([sys.executable, "-c", program, *arguments])


def echo_on(host: StagedHost) -> HostProcess:
    started = python(host, ECHO, host.address)
    until(lambda: asks(host, host), lambda: f"no echo: {started.log.read_text()}")
    return started


def asks(host: StagedHost | None, other: StagedHost, word: str = "word") -> bool:
    """Whether a process on a host, or of this machine, is answered by the echo on another."""
    command = [sys.executable, "-c", ASK, other.address, word]
    try:
        said = host.run(command) if host is not None else subprocess.check_output(command, text=True, stderr=-3)
    except (ChaosError, subprocess.CalledProcessError):
        return False
    return said.strip() == word.upper()


def test_each_host_has_a_name_an_id_files_and_processes_of_its_own(network: HostNetwork) -> None:
    a, b, _ = network
    told = [host.run([sys.executable, "-c", WHO]).strip() for host in network]
    assert [name.split("/")[0] for name in told] == [host.hostname for host in network]
    for part in range(3):
        assert len({name.split("/")[part] for name in told}) == 3
    a.run(["sh", "-c", f"echo of-a > {network.local}/file; echo of-all > {network.shared}/file"])
    assert (a.files / "file").read_text() == "of-a\n"
    with pytest.raises(ChaosError, match="No such file"):
        b.run(["cat", f"{network.local}/file"])
    with pytest.raises(ChaosError, match="No such file"):
        b.run(["cat", f"{a.files}/file"])  # nor does it see the files of others where this machine sees them
    assert b.run(["cat", f"{network.shared}/file"]) == "of-all\n"
    echo = echo_on(a)
    assert echo.pid in a.processes()
    assert b.processes() == []
    assert "9000" not in b.run(["sh", "-c", "cat /proc/[0-9]*/cmdline"])


def test_hosts_reach_each_other_and_this_machine_reaches_them(network: HostNetwork) -> None:
    a, b, c = network
    echo_on(a)
    assert asks(b, a)
    assert asks(c, a)
    assert asks(None, a)


def test_a_host_that_is_cut_off_hears_nobody_and_is_not_heard(network: HostNetwork) -> None:
    a, b, c = network
    echo_on(a)
    echo_on(b)
    a.cut_off()
    assert not asks(b, a)
    assert not asks(a, b)
    assert not asks(None, a)
    assert asks(c, b)  # the others have each other
    a.heal()
    assert asks(b, a)
    assert asks(a, b)
    assert asks(None, a)


@pytest.mark.parametrize("direction", [Direction.IN, Direction.OUT])
def test_one_direction_is_cut_and_the_other_is_not(network: HostNetwork, direction: Direction) -> None:
    a, b, _ = network
    for host in (a, b):
        (host.files / "shouts").write_bytes(b"")
        python(host, LISTEN, host.address)

    def heard(host: StagedHost, by: StagedHost, word: str) -> bool:
        by.run([sys.executable, "-c", SHOUT, host.address, word])
        return word in (host.files / "shouts").read_text()

    until(lambda: heard(a, b, "before") and heard(b, a, "before"), "nobody listens")
    a.cut_off(direction)
    deaf, hearing = (a, b) if direction is Direction.IN else (b, a)
    # Both shout; when the one that hears has heard its word, the other one's has had its time too.
    deaf_words = 0

    def both() -> bool:
        nonlocal deaf_words
        deaf_words += heard(deaf, hearing, "while")
        return heard(hearing, deaf, "while")

    until(both, f"{hearing.name} does not hear either")
    assert deaf_words == 0
    network.heal()
    until(lambda: heard(deaf, hearing, "after"), "it does not hear again")


def test_groups_that_are_parted_hear_their_own_only(network: HostNetwork) -> None:
    a, b, c = network
    echo_on(a)
    network.part([a, b], [c])
    assert asks(b, a)
    assert not asks(c, a)
    network.heal()
    assert asks(c, a)


def test_a_paused_host_does_nothing_and_goes_on_when_resumed(network: HostNetwork) -> None:
    a, b, _ = network
    echo = echo_on(a)
    # A process that nobody here has started directly is paused too.
    python(a, "import subprocess, sys; subprocess.Popen(['sleep', '1000'], start_new_session=True)")
    until(lambda: len(a.processes()) == 2, lambda: f"no orphan: {a.processes()}")
    a.pause()
    assert [state_of(pid) for pid in a.processes()] == ["T", "T"]
    assert not asks(b, a, "held back")
    assert echo.alive
    a.resume()
    until(lambda: b"held back" in (a.files / "heard").read_bytes(), "what was said meanwhile did not arrive")
    assert asks(b, a)
    echo.kill()
    assert not echo.alive


def test_a_crash_leaves_no_process_and_says_nothing(network: HostNetwork) -> None:
    """F27. The others learn of it by silence: no connection is ended in order."""
    a, b, _ = network
    echo = echo_on(a)
    connected = python(
        b,
        f"import socket; s = socket.create_connection(('{a.address}', 9000)); open('connected', 'w').close(); "
        "s.recv(1); open('ended', 'w').close()",
    )
    until((b.files / "connected").exists, "not connected")
    pids = a.processes()
    a.crash()
    assert not echo.alive
    assert all(state_of(pid) is None for pid in pids)
    assert not asks(b, a)
    assert connected.alive
    assert not (b.files / "ended").exists()
    a.boot()
    assert a.processes() == []
    assert (a.files / "heard").exists()  # its disk is what it was
    echo_on(a)
    assert asks(b, a)


def test_a_host_that_crashed_while_cut_off_comes_back_cut_off(network: HostNetwork) -> None:
    a, b, _ = network
    a.cut_off()
    a.crash()
    a.boot()
    echo_on(a)
    assert not asks(b, a)
    a.heal()
    assert asks(b, a)


def test_everything_on_a_host_is_killed_and_the_host_stays(network: HostNetwork) -> None:
    a, b, _ = network
    echo = echo_on(a)
    boot = a.run(["cat", "/proc/sys/kernel/random/boot_id"])
    a.kill_all()
    assert not echo.alive
    assert a.processes() == []
    assert a.run(["cat", "/proc/sys/kernel/random/boot_id"]) == boot
    echo_on(a)
    assert asks(b, a)


def test_a_narrow_line_is_slow(network: HostNetwork) -> None:
    a, b, _ = network
    echo_on(a)
    a.narrow(64)
    assert asks(b, a)
    assert "tbf" in subprocess.check_output(["tc", "-n", a.namespace, "qdisc", "show", "dev", "eth0"], text=True)
    a.narrow(None)
    assert "tbf" not in subprocess.check_output(["tc", "-n", a.namespace, "qdisc", "show", "dev", "eth0"], text=True)


def test_a_network_whose_maker_was_killed_leaves_no_process_and_is_removed_by_the_next(
    network: HostNetwork, tmp_path: Path
) -> None:
    """The module's own network is closed for this, and entered again."""
    network.close()
    try:
        program = (
            "import sys, pathlib, time; from firesteel_chaos.hosts import HostNetwork\n"
            f"network = HostNetwork(pathlib.Path({str(tmp_path)!r}), ['left']).__enter__()\n"
            "network['left'].start(['sleep', '1000'])\n"
            "while not network['left'].processes(): time.sleep(0.01)\n"
            "print(network['left'].processes(), flush=True); sys.stdin.read()"
        )
        maker = subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True)
        assert maker.stdout is not None
        started = int(maker.stdout.readline().strip("[]\n").split(",")[0])
        maker.kill()
        maker.communicate()
        until(lambda: state_of(started) is None, "its process lives on")
    finally:
        network.__enter__()
    listed = subprocess.check_output(["ip", "netns", "list"], text=True)
    assert sorted(line.split()[0] for line in listed.splitlines() if line.startswith(PREFIX)) == [
        host.namespace for host in network
    ]
    links = {link.name for link in Path("/sys/class/net").glob(f"{PREFIX}*")}
    assert links == {BRIDGE, *(f"{PREFIX}{host.number}" for host in network)}


def state_of(pid: int) -> str | None:
    """As ps shows it; None when it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "?"
    return None
