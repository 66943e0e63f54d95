"""What every election must do."""

from __future__ import annotations

import pytest

from firesteel.errors import FencingError
from firesteel.ha.protocols import (
    Epoch,
    KnowsContenders,
    LeaderInformation,
)
from firesteel.testing.ha_contract.harness import (
    LONG_LEASE,
    SHORT_LEASE,
    BackendUnderTest,
    Recorder,
    contend,
    eventually,
    leading,
    run,
)


class ElectionContract:
    def test_sole_contender_leads_and_is_found(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            services = await backend.open()
            observer = services.election("observer")
            assert await observer.leader() is None
            driver, listener, epoch = await leading(services)
            assert epoch == 1
            assert driver.holds(epoch)
            assert not driver.holds(Epoch(epoch + 1))
            assert not observer.holds(epoch)
            assert await observer.leader() == LeaderInformation(epoch, "")
            await driver.publish(epoch, "http://here:1")
            assert await observer.leader() == LeaderInformation(epoch, "http://here:1")
            await driver.publish(epoch, "http://here:2")
            assert await driver.leader() == LeaderInformation(epoch, "http://here:2")
            assert listener.events == ["grant"]

        run(backend, test)

    def test_starting_twice_is_a_mistake(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            driver, _ = await contend(await backend.open())
            with pytest.raises(RuntimeError, match="already"):
                await driver.start(Recorder())

        run(backend, test)

    def test_close_hands_over_at_once_and_tells_nobody(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            one, other = await backend.open(), await backend.open()
            driver, old, epoch = await leading(one)
            await driver.publish(epoch, "http://old")
            _, new = await contend(other)
            await driver.close()
            assert await new.granted() == epoch + 1
            assert old.events == ["grant"]
            assert not driver.holds(epoch)
            assert await other.election("looks").leader() == LeaderInformation(Epoch(epoch + 1), "")
            await driver.close()  # once more does no harm
            assert await other.election("looks").leader() == LeaderInformation(Epoch(epoch + 1), "")

        run(backend, test)

    def test_who_resigns_lets_another_lead_and_leads_after_it(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            one, other = await backend.open(), await backend.open()
            driver, old, epoch = await leading(one)
            await driver.publish(epoch, "http://old")
            await one.store.put("a", b"before", epoch=epoch)
            second, new = await contend(other)
            await driver.resign(epoch, patience=LONG_LEASE)
            assert old.events == ["grant", "revoke"]
            assert not driver.holds(epoch)
            assert await new.granted() == epoch + 1
            assert await other.election("looks").leader() == LeaderInformation(Epoch(epoch + 1), "")
            with pytest.raises(FencingError):
                await one.store.put("a", b"stale", epoch=epoch)
            assert old.events == ["grant", "revoke"]
            await second.close()
            assert await old.granted() == epoch + 2
            assert (old.errors, new.errors) == ([], [])

        run(backend, test)

    def test_who_resigns_alone_leads_again_after_its_patience(self, backend: BackendUnderTest) -> None:
        """A cluster is never left without a leader out of politeness."""

        async def test(backend: BackendUnderTest) -> None:
            services = await backend.open()
            driver, listener, epoch = await leading(services)
            await driver.resign(epoch, patience=0.5)
            assert listener.events == ["grant", "revoke"]
            assert await services.election("looks").leader() is None
            assert await listener.granted() == epoch + 1
            assert driver.holds(Epoch(epoch + 1))
            assert listener.events == ["grant", "revoke", "grant"]

        run(backend, test)

    def test_who_comes_while_one_stands_back_leads_at_once(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            one, other = await backend.open(), await backend.open()
            driver, old, epoch = await leading(one)
            await driver.resign(epoch, patience=LONG_LEASE)
            second, new = await contend(other)
            assert await new.granted() == epoch + 1
            await second.resign(Epoch(epoch + 1), patience=LONG_LEASE)
            assert await old.granted() == epoch + 2
            assert new.events == ["grant", "revoke"]

        run(backend, test)

    def test_only_who_leads_can_resign(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            one, other = await backend.open(), await backend.open()
            driver, listener, epoch = await leading(one)
            waiting, _ = await contend(other)
            await driver.resign(Epoch(epoch + 1), patience=LONG_LEASE)
            await driver.resign(Epoch(epoch - 1), patience=LONG_LEASE)
            await waiting.resign(epoch, patience=LONG_LEASE)
            await other.election("looks").resign(epoch, patience=LONG_LEASE)
            assert driver.holds(epoch)
            assert listener.events == ["grant"]
            await one.store.put("a", b"", epoch=epoch)

        run(backend, test)

    def test_who_stands_back_can_leave(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            services = await backend.open()
            driver, listener, epoch = await leading(services)
            await driver.resign(epoch, patience=0.3)
            await driver.close()
            _, new = await contend(services)
            assert await new.granted() == epoch + 1
            assert listener.events == ["grant", "revoke"]

        run(backend, test)

    def test_others_that_wait_are_seen_where_they_can_be(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            one, other = await backend.open(), await backend.open()
            driver, _, _ = await leading(one)
            assert isinstance(driver, KnowsContenders) is backend.knows_contenders
            if not isinstance(driver, KnowsContenders):
                return
            knows: KnowsContenders = driver
            assert not await knows.others_wait()
            waiting, _ = await contend(other)
            await eventually(knows.others_wait)
            await waiting.close()
            assert not await knows.others_wait()

        run(backend, test)

    def test_after_the_last_has_left_nobody_leads(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            services = await backend.open()
            driver, _, epoch = await leading(services)
            await driver.publish(epoch, "http://old")
            await driver.close()
            assert await services.election("looks").leader() is None
            with pytest.raises(FencingError):
                await driver.publish(epoch, "http://old")

        run(backend, test)

    def test_contender_that_leaves_is_never_granted(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            services = await backend.open()
            first, _, epoch = await leading(services)
            second, left = await contend(services)
            await second.close()
            await first.close()
            _, third = await contend(services)
            assert await third.granted() == epoch + 1
            assert left.events == []

        run(backend, test)

    def test_close_of_one_never_started(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            services = await backend.open()
            driver, listener, epoch = await leading(services)
            await services.election("idle").close()
            assert driver.holds(epoch)
            assert await driver.leader() == LeaderInformation(epoch, "")
            assert listener.events == ["grant"]

        run(backend, test)

    def test_close_right_after_start_leaves_leadership_free(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            services = await backend.open()
            for _ in range(5):
                driver, _ = await contend(services)
                await driver.close()
            _, listener = await contend(services)
            await listener.granted()

        run(backend, test)

    def test_only_the_leader_publishes(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            one, other = await backend.open(), await backend.open()
            driver, _, epoch = await leading(one)
            waiting, _ = await contend(other)
            for wrong in (driver, Epoch(epoch - 1)), (driver, Epoch(epoch + 1)), (waiting, epoch):
                with pytest.raises(FencingError):
                    await wrong[0].publish(wrong[1], "http://wrong")
            assert await driver.leader() == LeaderInformation(epoch, "")

        run(backend, test)

    def test_of_many_contenders_one_leads_and_epochs_strictly_increase(self, backend: BackendUnderTest) -> None:
        """I6."""

        async def test(backend: BackendUnderTest) -> None:
            nodes = [await backend.open(), await backend.open()]
            contenders = [await contend(nodes[n % 2], f"c{n}") for n in range(4)]
            order: list[Epoch] = []
            while contenders:

                async def somebody_leads() -> bool:
                    return any(listener.leading for _, listener in contenders)

                await eventually(somebody_leads)
                [(driver, listener)] = [(d, r) for d, r in contenders if r.leading is not None]
                assert listener.leading is not None
                order.append(listener.leading)
                assert driver.holds(listener.leading)
                assert [d.holds(listener.leading) for d, _ in contenders].count(True) == 1
                contenders.remove((driver, listener))
                await driver.close()
            assert order == sorted(set(order))
            assert len(order) == 4

        run(backend, test)

    def test_paused_leader_is_replaced_once_its_lease_has_run_out(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            one, other = await backend.open(lease=SHORT_LEASE), await backend.open(lease=SHORT_LEASE)
            driver, _, epoch = await leading(one)
            _, new = await contend(other)
            backend.pause(driver)
            assert await new.granted() == epoch + 1
            assert new.events == ["grant"]

        run(backend, test)

    def test_services_give_up_leadership_when_closed(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            one = await backend.open()
            driver, listener, epoch = await leading(one)
            await one.close()
            assert listener.events == ["grant"]
            assert not driver.holds(epoch)
            await driver.close()

        run(backend, test)
