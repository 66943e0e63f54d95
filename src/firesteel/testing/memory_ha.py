"""High availability in memory that a test can steer: take leadership away, as a real backend would, with or without a word."""

from __future__ import annotations

from firesteel.ha.memory import MemoryHighAvailabilityServices, MemoryLeaderElectionDriver


class SteeredHighAvailabilityServices(MemoryHighAvailabilityServices):
    """As the backend of type `none`, with levers. Each is pulled in the event loop that its contenders are in."""

    def __init__(self) -> None:
        super().__init__()
        self._unaware: list[MemoryLeaderElectionDriver] = []
        """Lost their leadership to `expire` and have not been told."""

    def revoke(self) -> None:
        """Take leadership from its holder, which is told, and give it to the next contender (the same when alone)."""
        driver = self._holder
        if driver is None:
            return
        self._vacate()
        self._tell_revoked(driver)
        self._grant()

    def expire(self) -> None:
        """Take leadership from its holder, which is not told, as if it were paused. Its epoch is stale at once."""
        if self._holder is None:
            return
        self._unaware.append(self._holder)
        self._vacate()
        if not self._waiting:  # a leader that has come and gone
            self._next_epoch()
        self._grant()

    def resume(self) -> None:
        """Those that `expire` passed over go on: they notice that they lost leadership, and contend again."""
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
