"""High availability in memory that a test can control: it takes leadership away with or without notice."""

from __future__ import annotations

from firesteel.ha.memory import MemoryHighAvailabilityServices, MemoryLeaderElectionDriver


class SteeredHighAvailabilityServices(MemoryHighAvailabilityServices):
    """The backend of type `none`, with methods to control it. Call them in the event loop of the contenders."""

    def __init__(self) -> None:
        super().__init__()
        self._unaware: list[MemoryLeaderElectionDriver] = []
        """Contenders that lost leadership by `expire` and were not notified."""

    def revoke(self) -> None:
        """Take leadership from its holder with notice, and give it to the next contender (the same one if it is alone)."""
        driver = self._holder
        if driver is None:
            return
        self._vacate()
        self._tell_revoked(driver)
        self._grant()

    def expire(self) -> None:
        """Take leadership from its holder without notice, as if it were paused. Its epoch is stale at once."""
        if self._holder is None:
            return
        self._unaware.append(self._holder)
        self._vacate()
        if not self._waiting:  # a leader that has already gone
            self._next_epoch()
        self._grant()

    def resume(self) -> None:
        """Resume the contenders that `expire` paused: they notice that they lost leadership, and contend again."""
        drivers, self._unaware = self._unaware, []
        for driver in drivers:
            self._tell_revoked(driver)
        self._grant()

    async def close(self) -> None:
        self._unaware.clear()
        await super().close()

    def leave(self, driver: MemoryLeaderElectionDriver) -> None:
        if driver in self._unaware:
            self._unaware.remove(driver)
        super().leave(driver)

    def _tell_revoked(self, driver: MemoryLeaderElectionDriver) -> None:
        self._waiting.append(driver)
        assert driver.listener is not None
        driver.listener.on_revoke()
