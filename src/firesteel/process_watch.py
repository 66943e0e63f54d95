"""Waits for the end of processes that need not be our children, without a thread for each."""

from __future__ import annotations

import asyncio
import os

from firesteel.processes import ProcessIdentity

POLL_SECONDS = 0.2


async def ended(process: ProcessIdentity) -> None:
    """Return once the process is gone."""
    fd = _descriptor(process)
    if fd is None:
        while await asyncio.to_thread(lambda: process.alive):  # noqa: ASYNC110 - there is nothing that could notify us
            await asyncio.sleep(POLL_SECONDS)
        return
    loop = asyncio.get_running_loop()
    gone = loop.create_future()
    try:
        # The descriptor names the process that had the pid when it was opened; the start mark shows that it is the same
        # one.
        if not process.alive:
            return
        loop.add_reader(fd, lambda: None if gone.done() else gone.set_result(None))
        await gone
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def _descriptor(process: ProcessIdentity) -> int | None:
    """A descriptor that becomes readable when the process ends; None where there is no such thing, or none left."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(process.pid)
    except OSError:
        return None
