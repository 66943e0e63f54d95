"""The token of a node's owner: for processes of its user, and in no file."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from firesteel.client.local_token import ask_for_token
from firesteel.rest.local_door import local_door

SECRET = "fst_local.0123456789abcdef"
NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user: run the tests as root")


def as_nobody(code: str, *args: str) -> subprocess.Popen[str]:
    """A Python program of another user."""
    become = f"import os, socket, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    return subprocess.Popen(
        [sys.executable, "-S", "-c", become + textwrap.dedent(code), *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    )


@pytest.mark.parametrize("abstract", [True, False])
def test_own_user_is_handed_the_token(abstract: bool) -> None:
    with local_door(SECRET, abstract=abstract) as address:
        assert address.startswith("@") is abstract
        assert [ask_for_token(address) for _ in range(3)] == [SECRET] * 3
    assert ask_for_token(address) is None


def test_file_and_its_directory_go_with_the_door() -> None:
    with local_door(SECRET, abstract=False) as address:
        assert Path(address).parent.stat().st_mode & 0o077 == 0
    assert not Path(address).parent.exists()


@needs_root
def test_another_user_is_handed_nothing_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with local_door(SECRET) as address:
        for _ in range(2):
            asking = as_nobody(
                """
                line = socket.socket(socket.AF_UNIX)
                line.connect("\\0" + sys.argv[1][1:])
                print(line.recv(1000))
                """,
                address,
            )
            assert asking.communicate()[0] == "b''\n"
        assert ask_for_token(address) == SECRET
    assert caplog.text.count("another user") == 1


@needs_root
def test_a_name_that_another_user_has_taken_is_not_believed() -> None:
    taking = as_nobody(
        """
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\\0" + sys.argv[1][1:])
        listener.listen()
        print("ready", flush=True)
        line, _ = listener.accept()
        try:
            line.sendall(b"fst_local.forged")
        except OSError:
            pass
        """,
        address := f"@firesteel-test-{os.getpid()}",
    )
    assert taking.stdout is not None
    assert taking.stdout.readline() == "ready\n"
    assert ask_for_token(address) is None
    taking.communicate()


def test_callers_that_go_away_or_stay_silent_keep_nobody_waiting() -> None:
    with local_door(SECRET) as address:
        silent = [socket.socket(socket.AF_UNIX) for _ in range(20)]
        for line in silent:
            line.connect(f"\0{address[1:]}")
        for line in silent[::2]:
            line.close()
        assert ask_for_token(address) == SECRET
        for line in silent:
            line.close()


def test_nothing_is_left_of_it() -> None:
    before = threading.active_count()
    with local_door(SECRET):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


@pytest.mark.parametrize("sent", [b"", b"\xff\xfe"])
def test_what_is_no_token_is_none(sent: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0firesteel-test-{os.getpid()}-odd")
        listener.listen()

        def answer() -> None:
            line, _ = listener.accept()
            with line:
                line.sendall(sent)

        answering = threading.Thread(target=answer)
        answering.start()
        assert ask_for_token(f"@firesteel-test-{os.getpid()}-odd") is None
        answering.join()
