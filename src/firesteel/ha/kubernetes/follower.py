"""One watch of the Lease for all its users in this process."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.concurrency import OwnedTasks
from firesteel.ha.changes import LeadershipChanges
from firesteel.ha.kubernetes.lease import LeaseRecord
from firesteel.ha.kubernetes.leases import Leases
from firesteel.ha.protocols import Epoch
from firesteel.ha.rules import NEVER

Tell = Callable[[LeaseRecord, bool], None]
"""The Lease as it is now or was last, and whether it is gone."""


class LeaseFollower:
    """Watches from the first request until the tasks are closed.

    Every change of the Lease is one of `changes`, including renewals by its holder, from which contenders count.
    """

    def __init__(self, leases: Leases, tasks: OwnedTasks, tell: Tell) -> None:
        self._leases = leases
        self._tasks = tasks
        self._tell = tell
        self.changes = LeadershipChanges(self._listen)
        self.newest = NEVER
        """The newest epoch that this process knows; the next one is above it."""

    def heard_of(self, epoch: Epoch) -> None:
        self.newest = max(self.newest, epoch)

    def _listen(self, _: Callable[[], None]) -> None:
        self._tasks.start(self._leases.follow(self._seen), "watch of the Lease")

    def _seen(self, record: LeaseRecord, gone: bool) -> None:
        self.heard_of(record.epoch)
        self._tell(record, gone)
        self.changes.tell()
