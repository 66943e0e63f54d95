"""The protocols of a high-availability backend: an election and a fenced store. Everything else is built on top, once.

An **epoch** names one leadership. Epochs of a cluster strictly increase (I6). The leader passes its epoch with every write.
A store refuses a write whose epoch is not the newest that was ever granted, and checks this atomically with the write, so
that a leader that was paused past its lease can change nothing, even if it thinks that it still leads (I7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol, runtime_checkable

Epoch = NewType("Epoch", int)
"""The leader session id: the fencing token of every write. Epochs count from 1."""

NEW = 0
"""The expected version of a value that must not exist yet."""


@dataclass(frozen=True, slots=True)
class Stored:
    value: bytes
    version: int
    """Counts from 1 and grows with each write of this path, even across a delete and a new write."""


class StateStore(Protocol):
    """Small values by path (`graphs/<job id>`), durable once a call has returned.

    Paths are segments of `[A-Za-z0-9._-]`, but not `.` or `..`, joined by `/`; others raise ValueError. Any
    method may raise StoreUnavailableError, after which a write may or may not have happened; the caller finds out by
    reading, or repeats it (repeating a put of the same value is harmless).
    """

    async def get(self, path: str) -> Stored | None: ...

    async def list(self, prefix: str) -> Mapping[str, Stored]:
        """All values below `prefix` (without a trailing slash), by full path, in the order of paths."""
        ...

    async def paths(self, prefix: str) -> Sequence[str]:
        """The full paths below `prefix`, in order; cheaper than `list`."""
        ...

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        """Write, and return the new version.

        Raises FencingError when `epoch` is not the newest, and VersionConflictError when `expected` is given and the
        current version differs (NEW: when there is a value). In both cases nothing was written.
        """
        ...

    async def delete(self, path: str, *, epoch: Epoch, expected: int | None = None) -> bool:
        """Remove; False when there was no value (which is a conflict if a version was `expected`). Raises like `put`."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LeaderInformation:
    epoch: Epoch
    address: str
    """The leader's address; empty until the leader has published it."""


class LeaderListener(Protocol):
    """Gets changes of leadership, on the event loop. Its methods must return at once."""

    def on_grant(self, epoch: Epoch) -> None: ...

    def on_revoke(self) -> None:
        """Leadership is lost or in doubt. Every write from now on would be refused; stop acting."""
        ...

    def on_error(self, error: Exception) -> None:
        """The election itself failed in a way that waiting will not fix."""
        ...


class LeaderElectionDriver(Protocol):
    """One contender of one cluster.

    Grants and revokes alternate. A new epoch is only granted when the last lease has expired, or its holder is known to be
    dead or has given it up.
    """

    async def start(self, listener: LeaderListener) -> None: ...

    def holds(self, epoch: Epoch) -> bool:
        """Whether it is certain, right now and by this node's own clock, that `epoch` still leads. No I/O.

        Call this before side effects that no store can fence: a node that was suspended past its lease learns here, before
        any notification arrives, that it must not act.
        """
        ...

    async def publish(self, epoch: Epoch, address: str) -> None:
        """Publish the leader's address. Raises FencingError when `epoch` no longer leads."""
        ...

    async def leader(self) -> LeaderInformation | None:
        """The current leader, as far as is known; None when there is none."""
        ...

    async def resign(self, epoch: Epoch, *, patience: float) -> None:
        """Give up `epoch` at once, notify the listener, and stop contending, so that another contender leads.

        Does nothing when `epoch` does not lead. This contender contends again once another has led, or behind others that
        wait, or after `patience` seconds, so that the cluster does not stay without a leader. An unavailable store is not an
        error: other contenders then wait as if this node were silent.
        """
        ...

    async def close(self) -> None:
        """Leave the election. Leadership is given up at once, without notifying the listener."""
        ...


@runtime_checkable
class KnowsContenders(Protocol):
    """An optional capability of a driver: where contenders queue, it can tell whether others wait."""

    async def others_wait(self) -> bool:
        """Whether another node contends right now, as far as the store knows. Raises StoreUnavailableError."""
        ...


@runtime_checkable
class ForgetsClusters(Protocol):
    """What a backend may offer beyond its protocol: to remove what it keeps of a cluster that will never be led again."""

    async def forget_cluster(self) -> None:
        """Remove it, after all values were removed and the contenders of this process have left. Does nothing when somebody
        leads, or there are values."""
        ...


class HighAvailabilityServices(Protocol):
    """An open backend."""

    @property
    def store(self) -> StateStore: ...

    def election(self, contender: str) -> LeaderElectionDriver:
        """A new contender; the name is for people who look into the store."""
        ...

    async def close(self) -> None: ...
