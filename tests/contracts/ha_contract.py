"""What every high-availability backend must do, sentence by sentence of `ha/protocols.py`.

A backend joins by a `Backend` and one more parameter of the fixture in `tests/ha/test_ha_contract.py`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest

from firesteel.errors import FencingError, StoreError, VersionConflictError
from firesteel.ha.protocols import (
    NEW,
    Epoch,
    HighAvailabilityServices,
    KnowsContenders,
    LeaderElectionDriver,
    LeaderInformation,
    StateStore,
    Stored,
)

DEADLINE = 10.0
LONG_LEASE = 60.0
"""A hand-over within the deadline of a test did not wait for it."""
SHORT_LEASE = 3.0


class Backend(Protocol):
    """One cluster, fresh for each test."""

    knows_contenders: bool
    """Whether a leader of it can tell if somebody else waits."""

    async def open(self, *, lease: float = LONG_LEASE) -> HighAvailabilityServices:
        """One more node. Backends of one process may hand out the same one again; it is closed after the test."""
        ...

    def pause(self, driver: LeaderElectionDriver) -> None:
        """Stop a contender as if its process were stopped: it neither renews nor gives up, and is told nothing."""
        ...

    async def close(self) -> None: ...


class Recorder:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.epochs: list[Epoch] = []
        self.errors: list[Exception] = []
        self._changed = asyncio.Event()

    @property
    def leading(self) -> Epoch | None:
        return self.epochs[-1] if self.events and self.events[-1] == "grant" else None

    def on_grant(self, epoch: Epoch) -> None:
        self.epochs.append(epoch)
        self._add("grant")

    def on_revoke(self) -> None:
        self._add("revoke")

    def on_error(self, error: Exception) -> None:
        self.errors.append(error)
        self._add("error")

    def _add(self, event: str) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pytest.fail(f"did not come: {self.events} {self.epochs} {self.errors}")

    async def granted(self) -> Epoch:
        await self.until(lambda: self.leading is not None)
        return self.epochs[-1]


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not await condition():
        assert time.monotonic() < deadline, "did not come true in time"
        await asyncio.sleep(0.01)


async def contend(services: HighAvailabilityServices, name: str = "node") -> tuple[LeaderElectionDriver, Recorder]:
    driver, listener = services.election(name), Recorder()
    await driver.start(listener)
    return driver, listener


async def leading(services: HighAvailabilityServices) -> tuple[LeaderElectionDriver, Recorder, Epoch]:
    driver, listener = await contend(services)
    return driver, listener, await listener.granted()


def run(backend: Backend, test: Callable[[Backend], Awaitable[None]]) -> None:
    async def main() -> None:
        try:
            await test(backend)
        finally:
            await backend.close()

    asyncio.run(main())


def on_store(backend: Backend, test: Callable[[StateStore, Epoch], Awaitable[None]]) -> None:
    """Run `test` with a store and the epoch of its leader."""

    async def main(backend: Backend) -> None:
        services = await backend.open()
        _, _, epoch = await leading(services)
        await test(services.store, epoch)

    run(backend, main)


class StateStoreContract:
    def test_value_comes_back_as_it_was_put(self, backend: Backend) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            value = bytes(range(256)) * 300
            version = await store.put("graphs/a", value, epoch=epoch)
            assert await store.get("graphs/a") == Stored(value, version)
            assert version >= 1
            empty = await store.put("graphs/empty", b"", epoch=epoch)
            assert await store.get("graphs/empty") == Stored(b"", empty)
            assert await store.get("graphs/b") is None

        on_store(backend, test)

    def test_versions_grow_with_each_write(self, backend: Backend) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            versions = [await store.put("a", b"x", epoch=epoch) for _ in range(4)]
            assert versions == sorted(set(versions))

        on_store(backend, test)

    def test_versions_grow_across_delete_and_new_write(self, backend: Backend) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            first = await store.put("a", b"x", epoch=epoch)
            assert await store.delete("a", epoch=epoch)
            second = await store.put("a", b"x", epoch=epoch)
            assert second > first
            with pytest.raises(VersionConflictError):  # else a writer from before the delete would not notice it
                await store.put("a", b"y", epoch=epoch, expected=first)

        on_store(backend, test)

    def test_expected_version_guards_put(self, backend: Backend) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            first = await store.put("a", b"1", epoch=epoch, expected=NEW)
            with pytest.raises(VersionConflictError, match="'a'"):
                await store.put("a", b"2", epoch=epoch, expected=NEW)
            with pytest.raises(VersionConflictError):
                await store.put("a", b"2", epoch=epoch, expected=first + 1)
            assert await store.get("a") == Stored(b"1", first)
            second = await store.put("a", b"2", epoch=epoch, expected=first)
            with pytest.raises(VersionConflictError):
                await store.put("a", b"3", epoch=epoch, expected=first)
            assert await store.get("a") == Stored(b"2", second)
            with pytest.raises(VersionConflictError):
                await store.put("nothing", b"3", epoch=epoch, expected=second)
            assert await store.get("nothing") is None

        on_store(backend, test)

    def test_expected_version_guards_delete(self, backend: Backend) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            version = await store.put("a", b"1", epoch=epoch)
            for wrong in (NEW, version + 1):
                with pytest.raises(VersionConflictError):
                    await store.delete("a", epoch=epoch, expected=wrong)
            assert await store.get("a") is not None
            assert await store.delete("a", epoch=epoch, expected=version) is True
            assert await store.get("a") is None
            assert await store.delete("a", epoch=epoch) is False
            assert await store.delete("a", epoch=epoch, expected=NEW) is False
            with pytest.raises(VersionConflictError):
                await store.delete("a", epoch=epoch, expected=version)

        on_store(backend, test)

    def test_one_of_many_writers_that_expect_the_same_version_wins(self, backend: Backend) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            results = await asyncio.gather(
                *(store.put("a", str(n).encode(), epoch=epoch, expected=NEW) for n in range(20)), return_exceptions=True
            )
            [winner] = [n for n, result in enumerate(results) if isinstance(result, int)]
            assert sum(isinstance(r, VersionConflictError) for r in results) == 19
            stored = await store.get("a")
            assert stored is not None
            assert stored.value == str(winner).encode()

        on_store(backend, test)

    def test_writes_of_one_caller_keep_their_order(self, backend: Backend) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            puts = [asyncio.ensure_future(store.put("a", str(n).encode(), epoch=epoch)) for n in range(50)]
            versions = await asyncio.gather(*puts)
            assert list(versions) == sorted(versions)
            assert await store.get("a") == Stored(b"49", versions[-1])

        on_store(backend, test)

    def test_list_and_paths_are_of_what_is_below_the_prefix_in_order(self, backend: Backend) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            below = ["graphs/-", "graphs/.x", "graphs/0", "graphs/A", "graphs/_", "graphs/a", "graphs/a/b", "graphs/z"]
            others = ["graphs", "graphs-2/x", "graphs.x", "graphs0", "graphs2/x", "graphsX/x", "graph/x", "a/graphs/x"]
            made = [*below, *others]
            random.Random(1).shuffle(made)
            for path in made:
                await store.put(path, path.encode(), epoch=epoch)
            assert list(await store.paths("graphs")) == below
            listed = await store.list("graphs")
            assert list(listed) == below
            for path in below:
                assert listed[path] == await store.get(path)
                assert listed[path].value == path.encode()
            assert list(await store.paths("graphs/a")) == ["graphs/a/b"]
            assert list(await store.paths("nothing")) == []
            assert dict(await store.list("nothing")) == {}

        on_store(backend, test)

    def test_wildcards_of_databases_mean_nothing(self, backend: Backend) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            await store.put("a_c/x", b"", epoch=epoch)
            await store.put("abc/x", b"", epoch=epoch)
            await store.put("ABC/x", b"", epoch=epoch)
            assert list(await store.paths("a_c")) == ["a_c/x"]
            assert list(await store.paths("abc")) == ["abc/x"]

        on_store(backend, test)

    def test_what_is_no_path_is_refused(self, backend: Backend) -> None:
        async def refused(path: str, store: StateStore, epoch: Epoch) -> None:
            for call in (store.get, store.list, store.paths):
                with pytest.raises(ValueError, match="path"):
                    await call(path)
            with pytest.raises(ValueError, match="path"):
                await store.put(path, b"", epoch=epoch)
            with pytest.raises(ValueError, match="path"):
                await store.delete(path, epoch=epoch)

        async def test(store: StateStore, epoch: Epoch) -> None:
            for path in ("", "/a", "a/", "a//b", "a b", "ä", "a/../b", ".", "..", "a/.", "a\n", "a%"):
                await refused(path, store, epoch)

        on_store(backend, test)

    def test_odd_paths_that_are_paths(self, backend: Backend) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            for path in ("...", "a/..b", ".hidden", "-", "A-Z_0.9"):
                await store.put(path, b"", epoch=epoch)
                assert await store.get(path) is not None

        on_store(backend, test)

    def test_what_one_node_has_written_another_reads(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
            one, other = await backend.open(), await backend.open()
            _, _, epoch = await leading(one)
            for n in range(20):
                version = await one.store.put("a", str(n).encode(), epoch=epoch)
                assert await other.store.get("a") == Stored(str(n).encode(), version)

        run(backend, test)

    def test_closed_store_says_so(self, backend: Backend) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            await store.close()
            with pytest.raises(StoreError, match="closed"):
                await store.get("a")
            with pytest.raises(StoreError, match="closed"):
                await store.put("a", b"", epoch=epoch)

        on_store(backend, test)


class FencingContract:
    @pytest.mark.parametrize("epoch", [0, 1, 7])
    def test_nobody_writes_before_somebody_has_led(self, backend: Backend, epoch: int) -> None:
        async def test(backend: Backend) -> None:
            store = (await backend.open()).store
            with pytest.raises(FencingError):
                await store.put("a", b"", epoch=Epoch(epoch))
            with pytest.raises(FencingError):
                await store.delete("a", epoch=Epoch(epoch))
            assert await store.get("a") is None

        run(backend, test)

    def test_only_the_newest_epoch_writes(self, backend: Backend) -> None:
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

    def test_stale_leader_changes_nothing_whatever_it_believes(self, backend: Backend) -> None:
        """I7: it was paused past its lease, and has not been told."""

        async def test(backend: Backend) -> None:
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

    def test_writes_during_many_hand_overs_are_of_the_leader_of_their_time(self, backend: Backend) -> None:
        """Each value carries the epoch that wrote it: in the order of versions, epochs never go back."""

        async def test(backend: Backend) -> None:
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


class ElectionContract:
    def test_sole_contender_leads_and_is_found(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
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

    def test_starting_twice_is_a_mistake(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
            driver, _ = await contend(await backend.open())
            with pytest.raises(RuntimeError, match="already"):
                await driver.start(Recorder())

        run(backend, test)

    def test_close_hands_over_at_once_and_tells_nobody(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
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

    def test_who_resigns_lets_another_lead_and_leads_after_it(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
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

    def test_who_resigns_alone_leads_again_after_its_patience(self, backend: Backend) -> None:
        """A cluster is never left without a leader out of politeness."""

        async def test(backend: Backend) -> None:
            services = await backend.open()
            driver, listener, epoch = await leading(services)
            await driver.resign(epoch, patience=0.5)
            assert listener.events == ["grant", "revoke"]
            assert await services.election("looks").leader() is None
            assert await listener.granted() == epoch + 1
            assert driver.holds(Epoch(epoch + 1))
            assert listener.events == ["grant", "revoke", "grant"]

        run(backend, test)

    def test_who_comes_while_one_stands_back_leads_at_once(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
            one, other = await backend.open(), await backend.open()
            driver, old, epoch = await leading(one)
            await driver.resign(epoch, patience=LONG_LEASE)
            second, new = await contend(other)
            assert await new.granted() == epoch + 1
            await second.resign(Epoch(epoch + 1), patience=LONG_LEASE)
            assert await old.granted() == epoch + 2
            assert new.events == ["grant", "revoke"]

        run(backend, test)

    def test_only_who_leads_can_resign(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
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

    def test_who_stands_back_can_leave(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
            services = await backend.open()
            driver, listener, epoch = await leading(services)
            await driver.resign(epoch, patience=0.3)
            await driver.close()
            _, new = await contend(services)
            assert await new.granted() == epoch + 1
            assert listener.events == ["grant", "revoke"]

        run(backend, test)

    def test_others_that_wait_are_seen_where_they_can_be(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
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

    def test_after_the_last_has_left_nobody_leads(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
            services = await backend.open()
            driver, _, epoch = await leading(services)
            await driver.publish(epoch, "http://old")
            await driver.close()
            assert await services.election("looks").leader() is None
            with pytest.raises(FencingError):
                await driver.publish(epoch, "http://old")

        run(backend, test)

    def test_contender_that_leaves_is_never_granted(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
            services = await backend.open()
            first, _, epoch = await leading(services)
            second, left = await contend(services)
            await second.close()
            await first.close()
            _, third = await contend(services)
            assert await third.granted() == epoch + 1
            assert left.events == []

        run(backend, test)

    def test_close_of_one_never_started(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
            services = await backend.open()
            driver, listener, epoch = await leading(services)
            await services.election("idle").close()
            assert driver.holds(epoch)
            assert await driver.leader() == LeaderInformation(epoch, "")
            assert listener.events == ["grant"]

        run(backend, test)

    def test_close_right_after_start_leaves_leadership_free(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
            services = await backend.open()
            for _ in range(5):
                driver, _ = await contend(services)
                await driver.close()
            _, listener = await contend(services)
            await listener.granted()

        run(backend, test)

    def test_only_the_leader_publishes(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
            one, other = await backend.open(), await backend.open()
            driver, _, epoch = await leading(one)
            waiting, _ = await contend(other)
            for wrong in (driver, Epoch(epoch - 1)), (driver, Epoch(epoch + 1)), (waiting, epoch):
                with pytest.raises(FencingError):
                    await wrong[0].publish(wrong[1], "http://wrong")
            assert await driver.leader() == LeaderInformation(epoch, "")

        run(backend, test)

    def test_of_many_contenders_one_leads_and_epochs_strictly_increase(self, backend: Backend) -> None:
        """I6."""

        async def test(backend: Backend) -> None:
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

    def test_paused_leader_is_replaced_once_its_lease_has_run_out(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
            one, other = await backend.open(lease=SHORT_LEASE), await backend.open(lease=SHORT_LEASE)
            driver, _, epoch = await leading(one)
            _, new = await contend(other)
            backend.pause(driver)
            assert await new.granted() == epoch + 1
            assert new.events == ["grant"]

        run(backend, test)

    def test_services_give_up_leadership_when_closed(self, backend: Backend) -> None:
        async def test(backend: Backend) -> None:
            one = await backend.open()
            driver, listener, epoch = await leading(one)
            await one.close()
            assert listener.events == ["grant"]
            assert not driver.holds(epoch)
            await driver.close()

        run(backend, test)
