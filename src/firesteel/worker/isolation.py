"""How long a worker has heard from no leader, by a clock that counts suspension and that its next process shares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from firesteel.fs.files import read_json, write_json
from firesteel.hosts import boot_time, this_host

FILE = "contact.json"
SAVE_SECONDS = 1.0


class LeaderContact:
    """The last time that a leader has answered, counted from when it was *asked*.

    So the leader, which counts from when it was asked too but hears of it later, never counts less (see fleet.contact). A
    process that takes over from one that died counts on from where that one was.
    """

    def __init__(self, home: Path, timeout: float, clock: Callable[[], float] = boot_time) -> None:
        self._file = home / FILE
        self._clock = clock
        self._own = timeout
        self._boot = this_host().boot
        self._saved = float("-inf")
        data = read_json(self._file)
        same = isinstance(data, dict) and data.get("boot") == self._boot and isinstance(data.get("at"), float)
        # After a boot nothing of before runs any more, and the time begins anew.
        self.last = min(data["at"], clock()) if same else clock()
        agreed = data.get("timeout") if same else None
        # Leaders count with what they were told last. Until one has heard of a longer time, the shorter one holds (I27).
        self.timeout = min(timeout, agreed) if isinstance(agreed, float) else timeout

    def now(self) -> float:
        return self._clock()

    def registered(self, asked_at: float) -> None:
        """A leader has taken this worker as it is now, and has made its isolation time durable."""
        self.timeout = self._own
        self._saved = float("-inf")
        self.answered(asked_at)

    def answered(self, asked_at: float) -> None:
        """A leader has answered what it was asked at that time."""
        self.last = max(self.last, asked_at)
        if self.last - self._saved >= SAVE_SECONDS:
            # Not synced: after a crash of the machine nothing runs that it would be about.
            write_json(self._file, {"boot": self._boot, "at": self.last, "timeout": self.timeout}, durable=False)
            self._saved = self.last

    @property
    def left(self) -> float:
        """Seconds until this worker has to have stopped; below zero when it should have."""
        return self.last + self.timeout - self._clock()
