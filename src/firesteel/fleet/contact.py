"""When the leader may count everything on a silent host as ended. Pure; times are of a clock that counts suspension.

A worker with the policy `stop` ends all that it runs once it has not been answered by a leader for its isolation time,
counted from when it *sent* the last report that was answered. The leader counts from when it *received* a report, which is
later, and waits for a margin on top: so it is never the first of the two (I27). A leader that has just been elected has
heard no worker yet. Its predecessor may have answered one up to the moment in which its leadership ended, so the time begins
with the election.

A host with the policy `run-on` is never counted as ended because it is silent: somebody who can know has to say so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

STOP, RUN_ON = "stop", "run-on"

MARGIN_SECONDS = 5.0
"""For clocks that run at different speeds, and for the time that a worker takes to end its processes."""
DRIFT = 0.001
"""Two clocks may drift apart by this much of the time that is waited for."""


@dataclass(frozen=True, slots=True)
class Contact:
    """What a leader knows of its contact with one worker."""

    policy: str
    isolation_timeout: float
    since: float
    """When the worker was last heard; before that, when this leadership began."""
    heard: bool = False

    def at(self, now: float) -> Contact:
        """After a report or a registration."""
        return replace(self, since=now, heard=True)

    def is_silent(self, now: float, patience: float) -> bool:
        return not self.heard or now - self.since > patience

    @property
    def gone_at(self) -> float | None:
        """When all that ran there is certainly over; None: time alone does not tell."""
        if self.policy != STOP:
            return None
        return self.since + self.isolation_timeout * (1 + DRIFT) + MARGIN_SECONDS

    def is_gone(self, now: float) -> bool:
        return (end := self.gone_at) is not None and now >= end
