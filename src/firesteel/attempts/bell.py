"""A driver rings when its result is written, so that nodes learn of it before its process ends.

A bell is a datagram socket in the directory of all jobs, one for each node that listens; a driver rings all of them. It
is a hint and carries no data: a node that hears it looks at the attempt's files, which are the truth. If no node hears
a bell, the end of the driver process, which is watched anyway, makes up for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from firesteel.processes import ProcessIdentity
from firesteel.types import AttemptId, JobID, is_job_id

logger = logging.getLogger(__name__)

_NAME = re.compile(r"\d{1,10}")
_DIRECTORY = ".bells"
_LARGEST = 64


def bells(root: Path) -> Path:
    """The directory of all bells; drivers list it to ring them."""
    return root / _DIRECTORY


def ring(root: Path, attempt: AttemptId) -> None:
    """In a driver: the result of `attempt` is there. Never waits and never fails."""
    directory_of_all = bells(root)
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        with _short(directory_of_all) as directory:
            for name in os.listdir(directory_of_all):
                if _NAME.fullmatch(name):
                    with contextlib.suppress(OSError):
                        sender.sendto(str(attempt).encode(), f"{directory}/{name}")


class Bell:
    """In a node: hears drivers ring. Belongs to the event loop on which it was opened."""

    def __init__(self, root: Path, heard: Callable[[AttemptId], None]) -> None:
        self._root = root / _DIRECTORY
        self._heard = heard
        self._socket: socket.socket | None = None
        self._path = self._root / str(os.getpid())

    def open(self) -> None:
        """Open the bell. A failure is only logged: without a bell, the ends of drivers are noticed later."""
        try:
            self._root.mkdir(mode=0o700, exist_ok=True)
            _remove_leftovers(self._root)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            listener.setblocking(False)
            with _short(self._root) as directory:
                self._path.unlink(missing_ok=True)
                listener.bind(f"{directory}/{self._path.name}")
        except OSError as error:
            logger.warning(
                "the ends of attempts will be noticed late: cannot create a socket in %s: %s", self._root, error
            )
            return
        self._socket = listener
        asyncio.get_running_loop().add_reader(listener.fileno(), self._read)

    def close(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
            self._path.unlink(missing_ok=True)

    def _read(self) -> None:
        assert self._socket is not None
        while True:
            try:
                message = self._socket.recv(_LARGEST)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                logger.warning("listening for the ends of attempts failed: %s", error)
                self.close()
                return
            job_id, _, number = message.decode("ascii", "replace").partition("/")
            if is_job_id(job_id) and number.isdecimal():
                self._heard(AttemptId(JobID(job_id), int(number)))


@contextlib.contextmanager
def _short(root: Path) -> Iterator[str]:
    """A spelling of `root` that fits into the 108 bytes of a socket's address."""
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _remove_leftovers(root: Path) -> None:
    """Bells of nodes that were killed."""
    for name in os.listdir(root):
        if _NAME.fullmatch(name) and ProcessIdentity.of(int(name)) is None:
            (root / name).unlink(missing_ok=True)
