"""A real node whose store is watched, and that dies at any write one likes: `python -m tests.chaos.failing_node -Dkey=value …`

What it is told, by environment variables:

| variable | meaning |
|---|---|
| `FIRESTEEL_CHAOS_WITNESS` | directory in which each write of this node is noted: `<pid>.jsonl`, for `Observer(witness=…)` |
| `FIRESTEEL_CHAOS_CRASH` | `before:17`, `after:17`: die at the 17th write; `before:results/`: at the first one of such a path |
| `FIRESTEEL_CHAOS_CRASH_ONCE` | a file that is made before it dies, and that keeps it from dying when it is there |
| `FIRESTEEL_CHAOS_ORDERS` | a file with `{"crash": "before:3"}`, read before each write: counted from when it was first seen |
| `FIRESTEEL_CHAOS_SKEW` | seconds that its wall clock is ahead of all others |

It dies as by `kill -9`: nothing is closed, nothing is flushed.
"""

from __future__ import annotations

import os
import time

# Taken away: a node takes every variable that begins with FIRESTEEL_ for one of its options.
TOLD = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith("FIRESTEEL_CHAOS_")}
SKEW = float(TOLD.get("FIRESTEEL_CHAOS_SKEW", "0"))
if SKEW:
    # Before anything else is imported: some take `time.time` as a default.
    _real_time, _real_time_ns = time.time, time.time_ns
    time.time = lambda: _real_time() + SKEW
    time.time_ns = lambda: _real_time_ns() + int(SKEW * 1e9)

import contextlib  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
from collections.abc import Awaitable, Callable, Mapping, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TypeVar  # noqa: E402

from firesteel.config import Configuration  # noqa: E402
from firesteel.entrypoint import cluster_entrypoint  # noqa: E402
from firesteel.entrypoint.__main__ import main  # noqa: E402
from firesteel.errors import FencingError, StoreError, VersionConflictError  # noqa: E402
from firesteel.ha.protocols import Epoch, HighAvailabilityServices, LeaderElectionDriver, StateStore, Stored  # noqa: E402

T = TypeVar("T")
Opening = Callable[[Configuration], Awaitable[HighAvailabilityServices]]
EXIT_CODE = 86
_OPEN = "open_high_availability"
"""What an entrypoint calls to get at its store."""
_OUTCOMES: dict[type[Exception], str] = {FencingError: "fenced", VersionConflictError: "conflict"}


class CrashPoint:
    """`before:17`, `after:results/`: when to die."""

    def __init__(self, text: str) -> None:
        side, _, where = text.partition(":")
        if side not in ("before", "after") or not where:
            raise ValueError(f"'{text}' is not like before:17 or after:results/")
        self.text = text
        self._before = side == "before"
        self._left = int(where) if where.isdigit() else None
        self._prefix = None if where.isdigit() else where

    def comes(self, path: str) -> tuple[bool, bool]:
        """Called once per write: whether to die before it, or after it."""
        if self._left is not None:
            self._left -= 1
            now = self._left == 0
        else:
            now = path.startswith(self._prefix or "")
        return now and self._before, now and not self._before


class Fate:
    """When this process dies."""

    def __init__(self, told: Mapping[str, str]) -> None:
        self._point = CrashPoint(text) if (text := told.get("FIRESTEEL_CHAOS_CRASH")) else None
        self._once = Path(text) if (text := told.get("FIRESTEEL_CHAOS_CRASH_ONCE")) else None
        self._orders = Path(text) if (text := told.get("FIRESTEEL_CHAOS_ORDERS")) else None
        self._seen: str | None = None

    def comes(self, path: str) -> tuple[bool, bool]:
        self._read_orders()
        if self._point is None or (self._once is not None and self._once.exists()):
            return False, False
        return self._point.comes(path)

    def _read_orders(self) -> None:
        if self._orders is None:
            return
        try:
            text = self._orders.read_text()
        except OSError:
            text = ""
        if text != self._seen:
            self._seen = text
            order = json.loads(text).get("crash") if text else None
            self._point = CrashPoint(order) if order else None

    def die(self) -> None:
        if self._once is not None:
            self._once.touch()
        if self._orders is not None:
            self._orders.unlink(missing_ok=True)
        os._exit(EXIT_CODE)


class Witness:
    """Notes each write where no death of this process can take it back: one line, one system call."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = os.open(directory / f"{os.getpid()}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, path: str, epoch: Epoch, began: float, outcome: str) -> None:
        # Both moments are outside of the call, so it happened between them.
        line = {"node": os.getpid(), "epoch": epoch, "path": path, "began": began, "ended": time.monotonic()}
        # A node that can write to no file is a fault of its own; what cannot be noted must not look like a failed write.
        with contextlib.suppress(OSError):
            os.write(self._file, (json.dumps({**line, "outcome": outcome}) + "\n").encode())


class WatchedStore:
    """A StateStore around another."""

    def __init__(self, inner: StateStore, fate: Fate, witness: Witness | None) -> None:
        self._inner = inner
        self._fate = fate
        self._witness = witness

    async def get(self, path: str) -> Stored | None:
        return await self._inner.get(path)

    async def list(self, prefix: str) -> Mapping[str, Stored]:
        return await self._inner.list(prefix)

    async def paths(self, prefix: str) -> Sequence[str]:
        return await self._inner.paths(prefix)

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        return await self._write(path, epoch, lambda: self._inner.put(path, value, epoch=epoch, expected=expected))

    async def delete(self, path: str, *, epoch: Epoch, expected: int | None = None) -> bool:
        return await self._write(path, epoch, lambda: self._inner.delete(path, epoch=epoch, expected=expected))

    async def close(self) -> None:
        await self._inner.close()

    async def _write(self, path: str, epoch: Epoch, write: Callable[[], Awaitable[T]]) -> T:
        before, after = self._fate.comes(path)
        if before:
            self._fate.die()
        began = time.monotonic()
        outcome = "unknown"
        try:
            value = await write()
            outcome = "ok"
        except StoreError as error:
            outcome = _OUTCOMES.get(type(error), "unknown")
            raise
        finally:
            if self._witness is not None:
                self._witness.note(path, epoch, began, outcome)
        if after:
            self._fate.die()
        return value


class WatchedServices:
    def __init__(self, inner: HighAvailabilityServices, store: WatchedStore) -> None:
        self._inner = inner
        self._store = store

    @property
    def store(self) -> StateStore:
        return self._store

    def election(self, contender: str) -> LeaderElectionDriver:
        return self._inner.election(contender)

    async def close(self) -> None:
        await self._inner.close()


def install(told: Mapping[str, str]) -> None:
    """From now on nodes of this process work with a watched store."""
    fate = Fate(told)
    witness = Witness(Path(text)) if (text := told.get("FIRESTEEL_CHAOS_WITNESS")) else None
    original: Opening = vars(cluster_entrypoint)[_OPEN]

    async def opened(configuration: Configuration) -> HighAvailabilityServices:
        services = await original(configuration)
        return WatchedServices(services, WatchedStore(services.store, fate, witness))

    setattr(cluster_entrypoint, _OPEN, opened)


if __name__ == "__main__":
    install(TOLD)
    sys.exit(main())
