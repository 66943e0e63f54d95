"""Opens paths that a caller names in a thread that can open nothing else.

A driver that runs one job after another runs no user code, and must reach the files of each of its jobs. It must not
follow a path, or a link that was put there meanwhile, to where the owner of the job may not go.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from firesteel.sandbox import landlock
from firesteel.sandbox.rules import Sandbox, ways
from firesteel.sandbox.users import become_with_this_thread

T = TypeVar("T")


MOST_RULESETS = 32


class _Rulesets:
    """Caches rulesets until an entry is added or removed next to what they hide: making one takes a millisecond or
    more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[Sandbox, tuple[list[tuple[int, int]], int]] = {}

    @contextlib.contextmanager
    def ruleset(self, sandbox: Sandbox) -> Iterator[int]:
        """A descriptor of the caller's own: the cached one may be closed meanwhile."""
        with self._lock:
            stamp = [(s.st_ino, s.st_mtime_ns) for way in ways(sandbox) if (s := _status(way)) is not None]
            kept = self._made.get(sandbox)
            if kept is None or kept[0] != stamp:
                self._forget([*self._made] if len(self._made) >= MOST_RULESETS else [sandbox])
                kept = self._made[sandbox] = (stamp, landlock.make_ruleset(sandbox))
            mine = os.dup(kept[1])
        try:
            yield mine
        finally:
            os.close(mine)

    def _forget(self, sandboxes: list[Sandbox]) -> None:
        for sandbox in sandboxes:
            if (made := self._made.pop(sandbox, None)) is not None:
                os.close(made[1])


_RULESETS = _Rulesets()


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _enter(sandbox: Sandbox) -> None:
    if sandbox.user is not None and landlock.version() < landlock.LEAST_VERSION:
        become_with_this_thread(sandbox.user)
        return
    with _RULESETS.ruleset(sandbox) as ruleset:
        if sandbox.user is not None:
            become_with_this_thread(sandbox.user)
        landlock.enter_with_this_thread(ruleset)


def confined(sandbox: Sandbox | None, function: Callable[[], T]) -> T:
    """What `function` returns or raises, called within `sandbox`; None: called without one."""
    if sandbox is None:
        return function()
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            _enter(sandbox)
            returned.append(function())
        except BaseException as error:  # raised where it was called
            raised.append(error)

    thread = threading.Thread(target=run, name="confined")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return returned[0]
