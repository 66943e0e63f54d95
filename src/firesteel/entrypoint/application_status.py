"""How a cluster ended, and the exit code that reports it."""

from __future__ import annotations

from enum import Enum


class ApplicationStatus(Enum):
    """Flink's names. An exit code has one byte, so the numbers are our own."""

    SUCCEEDED = 0
    """Shut down as asked."""
    FAILED = 1
    """The application failed (application clusters)."""
    CANCELED = 130
    """The application was cancelled, or a signal asked the cluster to end before it served."""
    UNKNOWN = 3
    """The end of the application was not seen."""
    START_FAILED = 4
    """A part of the cluster could not start; the message says which and why."""
    FATAL_ERROR = 70
    """The node cannot trust its state any more; its log says why. Start it again: jobs continue meanwhile."""

    @property
    def exit_code(self) -> int:
        return int(self.value)
