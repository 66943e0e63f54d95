"""The contender that all leases share: when it may take one, and its life on a lease in memory that does as it is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from firesteel.errors import FencingError, StoreBrokenError, StoreUnavailableError
from firesteel.ha.changes import LeadershipChanges
from firesteel.ha.contender import Collecting, first_of
from firesteel.ha.lease import LeaseElectionDriver, LeaseLostError, LeaseObserver, Sighting
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.testing.ha_contract.harness import LONG_LEASE, Recorder, eventually

# -- when a lease may be taken ----------------------------------------------------------------------------------------

HELD = Sighting("found", Epoch(3), sign=(3, "other", 5), free=False)
GONE = Sighting(None, Epoch(3), sign=None, free=False)


def test_lease_is_counted_from_when_it_was_seen_to_change() -> None:
    observer = LeaseObserver(10)
    assert not observer.may_take(HELD, 100)
    assert not observer.may_take(HELD, 109.9)
    renewed = replace(HELD, sign=(3, "other", 6))
    assert not observer.may_take(renewed, 111)
    assert not observer.may_take(renewed, 120.9)
    assert observer.may_take(renewed, 121)


def test_what_shows_no_life_does_not_prolong_a_lease() -> None:
    observer = LeaseObserver(10)
    assert not observer.may_take(HELD, 0)
    assert observer.may_take(replace(HELD, found="another address"), 10)


def test_new_leader_has_its_whole_lease() -> None:
    observer = LeaseObserver(10)
    assert not observer.may_take(HELD, 0)
    assert not observer.may_take(replace(HELD, epoch=Epoch(4), sign=(4, "third", 5)), 10)


def test_holder_that_wants_to_be_waited_for_longer_is() -> None:
    """Nodes may be configured differently, if only while that is being changed."""
    observer, first = LeaseObserver(10), replace(HELD, seconds=30.0)
    assert not observer.may_take(first, 0)
    assert not observer.may_take(first, 29.9)
    assert observer.may_take(first, 30)


def test_given_up_or_gone_is_free_at_once() -> None:
    assert LeaseObserver(10).may_take(replace(HELD, free=True), 0)


def test_lease_that_is_gone_is_waited_for_like_one_that_is_held() -> None:
    observer = LeaseObserver(10)
    assert not observer.may_take(HELD, 0)
    assert not observer.may_take(GONE, 9)
    assert not observer.may_take(GONE, 18.9)
    assert observer.may_take(GONE, 19)
    assert not LeaseObserver(10).may_take(GONE, 100), "also when nothing else was seen before"


# -- its life ---------------------------------------------------------------------------------------------------------


class MemoryLease:
    """One that is free whenever nobody has it. `fails` is raised by the next look."""

    def __init__(self) -> None:
        self.epoch = Epoch(0)
        self.holder = ""
        self.fails: list[Exception] = []
        self.looks = 0
        self.released = 0

    async def look(self) -> Sighting[str]:
        self.looks += 1
        if self.fails:
            raise self.fails.pop(0)
        return Sighting(self.holder, self.epoch, sign=self.epoch, free=not self.holder)

    async def take(self, seen: Sighting[str]) -> Epoch | None:
        if (self.epoch, self.holder) != (seen.epoch, seen.found):
            return None
        self.epoch, self.holder = Epoch(self.epoch + 1), "me"
        return self.epoch

    async def renew(self, epoch: Epoch) -> None:
        if (self.epoch, self.holder) != (epoch, "me"):
            raise LeaseLostError("another contender took over")

    async def publish(self, epoch: Epoch, address: str) -> None:
        if (self.epoch, self.holder) != (epoch, "me"):
            raise FencingError("it does not lead")

    async def leader(self) -> LeaderInformation | None:
        return LeaderInformation(self.epoch, "") if self.holder else None

    async def release(self) -> None:
        self.released += 1
        if self.holder == "me":
            self.holder = ""


Claim = Callable[[Epoch], Awaitable[None]]


def contender(
    lease: MemoryLease, claim: Claim | None = None, collecting: Collecting | None = None
) -> LeaseElectionDriver[str]:
    return LeaseElectionDriver(
        "me", lease, lease_duration=LONG_LEASE, changes=LeadershipChanges(), claim=claim, collecting=collecting
    )


async def turns(count: int = 20) -> None:
    """Whatever is ready to happen has happened then."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_leadership_is_granted_when_the_claim_is_done_and_not_before() -> None:
    async def main() -> None:
        lease, listener, done = MemoryLease(), Recorder(), asyncio.Event()

        async def claim(epoch: Epoch) -> None:
            await done.wait()

        driver = contender(lease, claim)
        await driver.start(listener)
        await turns()
        assert (driver.term, listener.events) == (1, [])
        assert not driver.holds(Epoch(1))
        done.set()
        assert await listener.granted() == 1
        assert driver.holds(Epoch(1))
        await driver.close()
        assert (listener.events, lease.holder) == (["grant"], "")

    asyncio.run(main())


def test_claim_that_is_refused_costs_the_lease_and_nobody_is_told() -> None:
    async def main() -> None:
        lease, listener = MemoryLease(), Recorder()

        async def claim(epoch: Epoch) -> None:
            if epoch == 1:
                lease.holder = ""
                raise LeaseLostError("another leader has claimed the state")

        driver = contender(lease, claim)
        await driver.start(listener)
        assert await listener.granted() == 2
        assert listener.events == ["grant"]
        await driver.close()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["lost", "closed"])
def test_nothing_is_granted_to_one_that_lost_the_lease_or_left_while_it_claimed(how: str) -> None:
    """The claim succeeds in the very turn of the event loop in which that happens."""

    async def main() -> None:
        lease, listener, done = MemoryLease(), Recorder(), asyncio.Event()

        async def claim(epoch: Epoch) -> None:
            await done.wait()

        driver = contender(lease, claim)
        await driver.start(listener)
        await turns()
        lease.holder = "other"
        done.set()
        if how == "lost":
            driver.lose("another contender took over")
            await turns()
        await driver.close()
        assert listener.events == []
        assert not driver.holds(Epoch(1))

    asyncio.run(main())


def test_leader_that_hears_that_it_leads_no_more_is_revoked_at_once_and_contends_again() -> None:
    async def main() -> None:
        lease, listener = MemoryLease(), Recorder()
        driver = contender(lease)
        await driver.start(listener)
        epoch = await listener.granted()
        lease.holder = ""
        driver.lose("its lease was deleted")
        await listener.until(lambda: listener.epochs == [epoch, epoch + 1])
        assert listener.events == ["grant", "revoke", "grant"]
        await driver.close()

    asyncio.run(main())


def test_address_that_is_refused_ends_the_leadership() -> None:
    async def main() -> None:
        lease, listener = MemoryLease(), Recorder()
        driver = contender(lease)
        await driver.start(listener)
        epoch = await listener.granted()
        lease.epoch, lease.holder = Epoch(7), "other"
        with pytest.raises(FencingError):
            await driver.publish(epoch, "http://me")
        await listener.until(lambda: listener.events == ["grant", "revoke"])
        with pytest.raises(FencingError, match="does not lead as epoch 1"):
            await driver.publish(epoch, "http://me")
        await driver.close()

    asyncio.run(main())


def test_store_that_is_away_is_told_once_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        lease, listener = MemoryLease(), Recorder()
        lease.fails = [StoreUnavailableError("away") for _ in range(3)]
        driver = LeaseElectionDriver("me", lease, lease_duration=0.05, changes=LeadershipChanges())
        await driver.start(listener)
        await listener.granted()
        await driver.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert len([r for r in caplog.records if "cannot read the lease" in r.message]) == 1


def test_error_that_waiting_does_not_mend_ends_the_election() -> None:
    async def main() -> None:
        lease, listener = MemoryLease(), Recorder()
        driver = contender(lease)
        await driver.start(listener)
        await listener.granted()
        lease.fails = [StoreBrokenError("the database is damaged")]
        driver.lose("its lease was deleted")
        await listener.until(lambda: bool(listener.errors))
        assert listener.events == ["grant", "revoke", "error"]
        await driver.close()
        assert lease.released == 1

    asyncio.run(main())


def test_resigned_leader_stands_back_until_another_has_led() -> None:
    async def main() -> None:
        lease, listener = MemoryLease(), Recorder()
        changes = LeadershipChanges()
        driver = LeaseElectionDriver("me", lease, lease_duration=LONG_LEASE, changes=changes)
        await driver.start(listener)
        epoch = await listener.granted()
        await driver.resign(epoch, patience=LONG_LEASE)
        assert (listener.events, lease.holder) == (["grant", "revoke"], "")
        looks = lease.looks
        changes.tell()
        await turns()
        assert lease.looks > looks
        assert lease.holder == ""
        lease.epoch = Epoch(epoch + 1)  # another one has come and gone
        changes.tell()
        assert await listener.granted() == epoch + 2
        await driver.close()

    asyncio.run(main())


def test_files_are_collected_while_it_leads_and_errors_of_that_cost_nothing() -> None:
    async def main() -> None:
        collected: list[Epoch] = []

        async def collect(epoch: Epoch) -> int:
            collected.append(epoch)
            if len(collected) == 1:
                raise StoreUnavailableError("away")
            return 0

        lease, listener = MemoryLease(), Recorder()
        driver = contender(lease, collecting=Collecting(collect, first=0.001, every=0.001))
        await driver.start(listener)

        async def twice() -> bool:
            return len(collected) > 1

        await eventually(twice)
        assert set(collected) == {1}
        assert listener.events == ["grant"]
        await driver.close()
        count = len(collected)
        await asyncio.sleep(0.01)
        assert len(collected) == count

    asyncio.run(main())


def test_first_of_several_is_the_earlier_one_and_no_other_goes_on() -> None:
    async def main() -> None:
        ended = []

        async def way(name: str, seconds: float) -> str:
            try:
                await asyncio.sleep(seconds)
                return name
            finally:
                ended.append(name)

        async def fails() -> str:
            raise ValueError("unheard")

        assert await first_of(way("slow", 60), way("quick", 0), fails()) == "quick"
        assert set(ended) == {"slow", "quick"}

    asyncio.run(main())
