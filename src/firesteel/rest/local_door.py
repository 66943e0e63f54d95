"""How the user of a node's process gets a token without one lying on a disk: by a socket that knows who is at its other end.

Whoever connects and has the node's own user id is handed the token of the node's owner, which lives in memory only. The kernel
says who connects (SO_PEERCRED); nothing is read from the caller.

The socket has an abstract name where there are such names. A job in its sandbox has the user id of the node as well, but the
sandbox keeps it from abstract sockets of processes outside, and it would not keep it from a socket that is a file.

It is served by a thread: those who ask do so while they block, also from the node's own process.
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
"""What ends when others give back what they hold (F24)."""


@contextlib.contextmanager
def local_door(token: str, *, abstract: bool = sys.platform == "linux") -> Iterator[str]:
    """Hand `token` to every process of this user until the block is left. Gives the address for `ask_for_token`.

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
            elif not warned:  # once: others must not be able to fill the log
                warned = True
                logger.warning("a process of another user asked for the token of this node's owner; it got nothing")


def _may_have_it(connection: socket.socket) -> bool:
    """Where the kernel does not say who it is, the socket is a file in a directory that only this user can enter."""
    return user_behind(connection) in (os.geteuid(), None)
