"""What a high-availability backend is: an election and a fenced store. Everything else is written once, on top.

An **epoch** names one leadership. Epochs of a cluster strictly increase (I6). Whoever leads passes its epoch with every
write; a store refuses a write whose epoch is not the newest that was ever granted, and does so atomically with the write, so
that a leader which was paused past its lease can change nothing, whatever it believes (I7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol, runtime_checkable

Epoch = NewType("Epoch", int)
"""The leader session id: the fencing token of every write. Counts from 1."""

NEW = 0
"""The version to expect of something that must not be there yet."""


@dataclass(frozen=True, slots=True)
class Stored:
    value: bytes
    version: int
    """Counts from 1 and grows with each write of this path, also across a delete and a new write."""


class StateStore(Protocol):
    """Small values by path (`graphs/<job id>`), durable once a call has returned.

    Paths are segments of `[A-Za-z0-9._-]`, but not `.` or `..`, joined by `/`; others are a ValueError. Any
    method may raise StoreUnavailableError, after which a write may or may not have happened; the caller finds out by
    reading, or repeats it (repeating a put of the same value is harmless).
    """

    async def get(self, path: str) -> Stored | None: ...

    async def list(self, prefix: str) -> Mapping[str, Stored]:
        """Everything below `prefix` (given without a trailing slash), by full path, in the order of paths."""
        ...

    async def paths(self, prefix: str) -> Sequence[str]:
        """The full paths below `prefix`, in order; cheaper than `list`."""
        ...

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        """Write, and return the new version.

        Raises FencingError when `epoch` is not the newest, and VersionConflictError when `expected` is given and the
        current version is another (NEW: when there is one). In both cases nothing was written.
        """
        ...

    async def delete(self, path: str, *, epoch: Epoch, expected: int | None = None) -> bool:
        """Remove; False when there was nothing (which is a conflict when a version was `expected`). Raises like `put`."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LeaderInformation:
    epoch: Epoch
    address: str
    """Where the leader serves; empty until it has published it."""


class LeaderListener(Protocol):
    """Told of leadership, on the event loop. Must return at once."""

    def on_grant(self, epoch: Epoch) -> None: ...

    def on_revoke(self) -> None:
        """Leadership is lost, or in doubt. Every write from now on would be refused; act no more."""
        ...

    def on_error(self, error: Exception) -> None:
        """The election itself broke in a way that waiting will not mend."""
        ...


class LeaderElectionDriver(Protocol):
    """One contender of one cluster.

    Grants and revokes alternate. A new epoch is granted only when the lease of the last one has run out, or its holder is
    known to be gone or has given it up.
    """

    async def start(self, listener: LeaderListener) -> None: ...

    def holds(self, epoch: Epoch) -> bool:
        """Whether it is certain, right now and by this node's own clock, that `epoch` leads still. No I/O.

        Asked before side effects that no store can fence: a node that was stopped past its lease and wakes up sees here,
        before it is told anything, that it must not act.
        """
        ...

    async def publish(self, epoch: Epoch, address: str) -> None:
        """Make the leader's address known. Raises FencingError when `epoch` does not lead any more."""
        ...

    async def leader(self) -> LeaderInformation | None:
        """Who leads now, as far as is known; None when nobody does."""
        ...

    async def resign(self, epoch: Epoch, *, patience: float) -> None:
        """Give `epoch` up at once, tell the listener, and stand back, so that another contender leads.

        Does nothing when `epoch` does not lead. This one contends again once another has led, or comes in line after
        others that wait, or after `patience` seconds: a cluster is never without a leader because all were polite. A store
        that cannot be told is no error: then others wait as if this node were silent.
        """
        ...

    async def close(self) -> None:
        """Leave; leadership that is held is given up at once, without telling the listener."""
        ...


@runtime_checkable
class KnowsContenders(Protocol):
    """What a driver may offer beyond its protocol: where contenders queue, they can be counted."""

    async def others_wait(self) -> bool:
        """Whether anybody else contends right now, as far as the store knows. Raises StoreUnavailableError."""
        ...


class HighAvailabilityServices(Protocol):
    """An open backend."""

    @property
    def store(self) -> StateStore: ...

    def election(self, contender: str) -> LeaderElectionDriver:
        """A new contender; the name is for people who look into the store."""
        ...

    async def close(self) -> None: ...
