"""What a store must refuse, and when."""

from __future__ import annotations

import asyncio

import pytest

from firesteel.errors import FencingError
from firesteel.ha.protocols import (
    NEW,
    Epoch,
    HighAvailabilityServices,
    LeaderInformation,
    StateStore,
    Stored,
)
from firesteel.testing.ha_contract.harness import (
    SHORT_LEASE,
    BackendUnderTest,
    Recorder,
    contend,
    eventually,
    leading,
    on_store,
    run,
)


class FencingContract:
    @pytest.mark.parametrize("epoch", [0, 1, 7])
    def test_nobody_writes_before_somebody_has_led(self, backend: BackendUnderTest, epoch: int) -> None:
        async def test(backend: BackendUnderTest) -> None:
            store = (await backend.open()).store
            with pytest.raises(FencingError):
                await store.put("a", b"", epoch=Epoch(epoch))
            with pytest.raises(FencingError):
                await store.delete("a", epoch=Epoch(epoch))
            assert await store.get("a") is None

        run(backend, test)

    def test_only_the_newest_epoch_writes(self, backend: BackendUnderTest) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            version = await store.put("a", b"kept", epoch=epoch)
            for wrong in (epoch - 1, epoch + 1):
                with pytest.raises(FencingError):
                    await store.put("a", b"no", epoch=Epoch(wrong))
                with pytest.raises(FencingError):
                    await store.put("a", b"no", epoch=Epoch(wrong), expected=version)
                with pytest.raises(FencingError):
                    await store.put("b", b"no", epoch=Epoch(wrong), expected=NEW)
                with pytest.raises(FencingError):
                    await store.delete("a", epoch=Epoch(wrong))
            assert await store.get("a") == Stored(b"kept", version)
            assert await store.get("b") is None

        on_store(backend, test)

    def test_stale_leader_changes_nothing_whatever_it_believes(self, backend: BackendUnderTest) -> None:
        """I7: it was paused past its lease, and has not been told."""

        async def test(backend: BackendUnderTest) -> None:
            one, other = await backend.open(lease=SHORT_LEASE), await backend.open(lease=SHORT_LEASE)
            old_driver, old, stale = await leading(one)
            await old_driver.publish(stale, "http://old")
            version = await one.store.put("a", b"old", epoch=stale)
            assert old_driver.holds(stale)
            _, new = await contend(other)
            backend.pause(old_driver)
            epoch = await new.granted()
            assert epoch > stale
            assert old.events == ["grant"]
            assert not old_driver.holds(stale)
            with pytest.raises(FencingError):
                await one.store.put("a", b"stale", epoch=stale)
            with pytest.raises(FencingError):
                await one.store.put("a", b"stale", epoch=stale, expected=version)
            with pytest.raises(FencingError):
                await one.store.delete("a", epoch=stale)
            with pytest.raises(FencingError):
                await old_driver.publish(stale, "http://stale")
            assert await other.store.get("a") == Stored(b"old", version)
            await other.store.put("a", b"new", epoch=epoch, expected=version)
            assert await other.election("looks").leader() == LeaderInformation(epoch, "")

        run(backend, test)

    def test_writes_during_many_hand_overs_are_of_the_leader_of_their_time(self, backend: BackendUnderTest) -> None:
        """Each value carries the epoch that wrote it: in the order of versions, epochs never go back."""

        async def test(backend: BackendUnderTest) -> None:
            nodes = [await backend.open() for _ in range(2)]
            written: list[tuple[int, Epoch]] = []
            done = False

            async def write(services: HighAvailabilityServices, listener: Recorder) -> None:
                while not done:
                    if listener.epochs:
                        epoch = listener.epochs[-1]  # also when it is stale
                        try:
                            written.append((await services.store.put("a", str(epoch).encode(), epoch=epoch), epoch))
                        except FencingError:
                            pass
                    await asyncio.sleep(0.002)

            listeners = [Recorder() for _ in nodes]
            writers = [asyncio.create_task(write(n, r)) for n, r in zip(nodes, listeners, strict=True)]
            for turn in range(5):
                services, listener = nodes[turn % 2], listeners[turn % 2]
                driver = services.election(f"turn-{turn}")
                listener.events.clear()
                await driver.start(listener)
                epoch = await listener.granted()

                async def has_written(epoch: Epoch = epoch) -> bool:
                    return any(by == epoch for _, by in written)

                await eventually(has_written)
                await driver.close()
            done = True
            await asyncio.gather(*writers)
            by_version = [epoch for _, epoch in sorted(written)]
            assert by_version == sorted(by_version)
            assert len(set(by_version)) == 5
            assert len({version for version, _ in written}) == len(written)

        run(backend, test)
