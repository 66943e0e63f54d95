"""The effects of one transaction, computed in memory: first the checks, then the smallest set of writes.

This is pure and knows no database. The requests of a group see each other's effects in order, and a refused request leaves
no trace, so it cannot affect the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from firesteel.errors import FencingError
from firesteel.ha.protocols import NEW, Epoch
from firesteel.ha.rules import check_epoch, check_version


@dataclass(frozen=True, slots=True)
class Leadership:
    """The row that names the leader."""

    epoch: Epoch
    """The newest granted epoch; 0 when there was none."""
    holder: str
    """The name of its holder, which is never reused; empty when leadership was given up."""
    host: str
    pid: int
    process_started: str
    renewals: int
    """Grows while the holder lives. Other contenders watch it with their own clocks; no clock time is stored."""
    address: str
    last_version: int
    """The latest version of any value of the cluster."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A contender, as it is named in the row."""

    name: str
    host: str
    """Empty when the host cannot be identified with certainty."""
    pid: int
    process_started: str


@dataclass(frozen=True, slots=True)
class Written:
    value: bytes
    version: int


class Batch:
    """The requests of one transaction.

    Args:
        leadership: The row as the transaction read it.
        versions: The versions of the existing paths among those that the requests touch.
        next_epoch: The epoch to grant; by default the one after the newest.
    """

    def __init__(self, leadership: Leadership, versions: Mapping[str, int], next_epoch: Epoch | None = None) -> None:
        self._found = leadership
        self._versions = versions
        self._next_epoch = next_epoch or Epoch(leadership.epoch + 1)
        self.leadership = leadership
        self.changes: dict[str, Written | None] = {}
        """The writes by path; None for a removed value."""

    @property
    def leadership_changed(self) -> bool:
        return self.leadership != self._found

    @property
    def lease_renewed(self) -> bool:
        """Whether a lease starts with this transaction, for a new leader or for the same one again."""
        then, now = self._found, self.leadership
        return bool(now.holder) and (now.epoch, now.renewals) != (then.epoch, then.renewals)

    @property
    def leader_changed(self) -> bool:
        """Whether the change matters to those who follow the leader."""
        then, now = self._found, self.leadership
        return (now.epoch, now.holder, now.address) != (then.epoch, then.holder, then.address)

    def existed(self, path: str) -> bool:
        """Whether there was a row before this transaction."""
        return path in self._versions

    # Requests of a leader.

    def put(self, path: str, value: bytes, epoch: Epoch, expected: int | None) -> int:
        self._check(path, epoch, expected)
        version = self.leadership.last_version + 1
        self.leadership = replace(self.leadership, last_version=version)
        self.changes[path] = Written(value, version)
        return version

    def delete(self, path: str, epoch: Epoch, expected: int | None) -> bool:
        self._check(path, epoch, expected)
        there = self._version(path) != NEW
        if there:
            self.changes[path] = None
        return there

    def _check(self, path: str, epoch: Epoch, expected: int | None) -> None:
        check_epoch(epoch, self.leadership.epoch, f"a write of '{path}'")
        check_version(path, self._version(path), expected)

    def _version(self, path: str) -> int:
        if path in self.changes:
            change = self.changes[path]
            return change.version if change else NEW
        return self._versions.get(path, NEW)

    # Requests of a contender.

    def take(self, holder: Holder, seen: Leadership) -> Epoch | None:
        """A new epoch, unless another contender took it or renewed since the row was `seen`."""
        row = self.leadership
        if (row.epoch, row.holder, row.renewals) != (seen.epoch, seen.holder, seen.renewals):
            return None
        # There cannot be a second take in the same transaction: it would have to have seen a row that does not exist yet.
        epoch = self._next_epoch
        self.leadership = replace(
            row,
            epoch=epoch,
            holder=holder.name,
            host=holder.host,
            pid=holder.pid,
            process_started=holder.process_started,
            renewals=0,
            address="",
        )
        return epoch

    def renew(self, holder: Holder, epoch: Epoch) -> bool:
        """False when `holder` no longer leads with this epoch."""
        if not self._leads(holder, epoch):
            return False
        self.leadership = replace(self.leadership, renewals=self.leadership.renewals + 1)
        return True

    def publish(self, holder: Holder, epoch: Epoch, address: str) -> None:
        doing = f"the address of contender '{holder.name}'"
        check_epoch(epoch, self.leadership.epoch, doing)
        if not self._leads(holder, epoch):
            raise FencingError(f"{doing} was refused: it does not lead")
        self.leadership = replace(self.leadership, address=address)

    def release(self, holder: Holder) -> None:
        """Give up the holder's leadership, even if the holder does not know that it has it."""
        if self.leadership.holder == holder.name:
            self.leadership = replace(self.leadership, holder="", host="", pid=0, process_started="", address="")

    def _leads(self, holder: Holder, epoch: Epoch) -> bool:
        return (self.leadership.holder, self.leadership.epoch) == (holder.name, epoch)
