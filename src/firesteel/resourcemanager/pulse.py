"""Decides when a silent engine counts as lost. Pure: it is told the outcome of each check."""

from __future__ import annotations

from firesteel.resourcemanager.provider import EngineHealth


class Pulse:
    """The heartbeat of one engine, from the moment it became ready.

    A new engine loads most of its classes while its first jobs wait for them. On a loaded machine it may then stay
    silent for longer than the timeout for an engine that hangs. So until it has answered, and for as long as it is
    young and its process works, it has the time of a start.
    """

    def __init__(self, *, timeout: float, start_timeout: float, age: float = 0.0, answered: bool = False) -> None:
        """
        Args:
            timeout: How long it may be silent (`heartbeat.timeout`).
            start_timeout: How long a new one may be (`engine.start-timeout`), if that is longer.
            age: Seconds since it was started.
        """
        self._timeout = timeout
        self._start_timeout = max(timeout, start_timeout)
        self._age = age
        self._answered = answered
        self._silent = 0.0
        self._idle = 0.0
        """Silent, and its process did nothing."""

    @property
    def young(self) -> bool:
        return not self._answered or self._age < self._start_timeout

    def hear(self, health: EngineHealth, passed: float) -> str | None:
        """Note the outcome of a check and the seconds since the last one. Returns why the engine is lost, if it is."""
        self._age += passed
        if health is EngineHealth.UNKNOWN:
            return None  # it was not asked
        if health is EngineHealth.GONE:
            return "its process is gone"
        if health is EngineHealth.WELL:
            self._answered = True
            self._silent = self._idle = 0.0
            return None
        self._silent += passed
        self._idle = 0.0 if health is EngineHealth.BUSY else self._idle + passed
        if self.young and (not self._answered or self._idle < self._timeout):
            if self._silent < self._start_timeout:
                return None
            return f"it did not answer for {self._start_timeout:g} s while it was new (engine.start-timeout)"
        if self._silent < self._timeout:
            return None
        return f"it did not answer for {self._timeout:g} s (heartbeat.timeout)"
