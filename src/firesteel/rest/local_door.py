"""A socket from which the user of a node's process gets a token, so that the token need not be stored on disk.

A process that connects and has the node's own user id gets the token of the node's owner, which exists in memory only. The
kernel tells who connects (SO_PEERCRED); nothing is read from the caller.

The socket has an abstract name where the system has them. A job in its sandbox has the user id of the node as well, but the
sandbox denies access to abstract sockets of processes outside, which it could not do for a socket that is a file.

A thread serves it, because clients block while they ask, even in the node's own process.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from firesteel.processes import user_behind

logger = logging.getLogger(__name__)

BACKLOG = 64
PAUSE_SECONDS = 0.1
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors that pass when other processes release descriptors (F24)."""


@contextlib.contextmanager
def local_door(token: str, *, abstract: bool = sys.platform == "linux") -> Iterator[str]:
    """Give `token` to every process of this user until the block is left. Yields the address for `ask_for_token`.

    Without abstract names it is a file in a directory that only this user can enter.
    """
    directory = None if abstract else Path(tempfile.mkdtemp(prefix="firesteel-"))
    address = str(directory / "local") if directory else f"@firesteel-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(address if directory else f"\0{address[1:]}")
            listener.listen(BACKLOG)
            serving = threading.Thread(target=_serve, args=(listener, token.encode()), name="local-door", daemon=True)
            serving.start()
            try:
                yield address
            finally:
                # Closing alone would leave the thread in its call.
                listener.shutdown(socket.SHUT_RDWR)
                serving.join()
        finally:
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)


def _serve(listener: socket.socket, token: bytes) -> None:
    warned = False
    while True:
        try:
            connection, _ = listener.accept()
        except ConnectionAbortedError:
            continue
        except OSError as error:
            if error.errno not in _PASSING:
                return  # the block was left
            time.sleep(PAUSE_SECONDS)
            continue
        with connection, contextlib.suppress(OSError):
            connection.settimeout(1.0)
            if _may_have_it(connection):
                connection.sendall(token)
            elif not warned:  # logged once, so that other users cannot fill the log
                warned = True
                logger.warning("refused the token of this node's owner to a process of another user")


def _may_have_it(connection: socket.socket) -> bool:
    """Whether the peer is this user. Where the kernel does not tell, only this user can enter the socket's directory."""
    return user_behind(connection) in (os.geteuid(), None)
