"""What every state store must do."""

from __future__ import annotations

import asyncio

import pytest

from firesteel.errors import StoreError, VersionConflictError
from firesteel.ha.protocols import (
    NEW,
    Epoch,
    StateStore,
    Stored,
)
from firesteel.testing.ha_contract.harness import (
    BackendUnderTest,
    leading,
    on_store,
    run,
)


class StateStoreContract:
    def test_value_comes_back_as_it_was_put(self, backend: BackendUnderTest) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            value = bytes(range(256)) * 300
            version = await store.put("graphs/a", value, epoch=epoch)
            assert await store.get("graphs/a") == Stored(value, version)
            assert version >= 1
            empty = await store.put("graphs/empty", b"", epoch=epoch)
            assert await store.get("graphs/empty") == Stored(b"", empty)
            assert await store.get("graphs/b") is None

        on_store(backend, test)

    def test_versions_grow_with_each_write(self, backend: BackendUnderTest) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            versions = [await store.put("a", b"x", epoch=epoch) for _ in range(4)]
            assert versions == sorted(set(versions))

        on_store(backend, test)

    def test_versions_grow_across_delete_and_new_write(self, backend: BackendUnderTest) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            first = await store.put("a", b"x", epoch=epoch)
            assert await store.delete("a", epoch=epoch)
            second = await store.put("a", b"x", epoch=epoch)
            assert second > first
            with pytest.raises(VersionConflictError):  # else a writer from before the delete would not notice it
                await store.put("a", b"y", epoch=epoch, expected=first)

        on_store(backend, test)

    def test_expected_version_guards_put(self, backend: BackendUnderTest) -> None:
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

    def test_expected_version_guards_delete(self, backend: BackendUnderTest) -> None:
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

    def test_one_of_many_writers_that_expect_the_same_version_wins(self, backend: BackendUnderTest) -> None:
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

    def test_writes_of_one_caller_keep_their_order(self, backend: BackendUnderTest) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            puts = [asyncio.ensure_future(store.put("a", str(n).encode(), epoch=epoch)) for n in range(50)]
            versions = await asyncio.gather(*puts)
            assert list(versions) == sorted(versions)
            assert await store.get("a") == Stored(b"49", versions[-1])

        on_store(backend, test)

    def test_list_and_paths_are_of_what_is_below_the_prefix_in_order(self, backend: BackendUnderTest) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            below = ["graphs/-", "graphs/.x", "graphs/0", "graphs/A", "graphs/_", "graphs/a", "graphs/a/b", "graphs/z"]
            others = ["graphs", "graphs-2/x", "graphs.x", "graphs0", "graphs2/x", "graphsX/x", "graph/x", "a/graphs/x"]
            made = sorted([*below, *others], key=lambda path: path[::-1])  # not in the order of the answer
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

    def test_wildcards_of_databases_mean_nothing(self, backend: BackendUnderTest) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            await store.put("a_c/x", b"", epoch=epoch)
            await store.put("abc/x", b"", epoch=epoch)
            await store.put("ABC/x", b"", epoch=epoch)
            assert list(await store.paths("a_c")) == ["a_c/x"]
            assert list(await store.paths("abc")) == ["abc/x"]

        on_store(backend, test)

    def test_what_is_no_path_is_refused(self, backend: BackendUnderTest) -> None:
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

    def test_odd_paths_that_are_paths(self, backend: BackendUnderTest) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            for path in ("...", "a/..b", ".hidden", "-", "A-Z_0.9"):
                await store.put(path, b"", epoch=epoch)
                assert await store.get(path) is not None

        on_store(backend, test)

    def test_what_one_node_has_written_another_reads(self, backend: BackendUnderTest) -> None:
        async def test(backend: BackendUnderTest) -> None:
            one, other = await backend.open(), await backend.open()
            _, _, epoch = await leading(one)
            for n in range(20):
                version = await one.store.put("a", str(n).encode(), epoch=epoch)
                assert await other.store.get("a") == Stored(str(n).encode(), version)

        run(backend, test)

    def test_closed_store_says_so(self, backend: BackendUnderTest) -> None:
        async def test(store: StateStore, epoch: Epoch) -> None:
            await store.close()
            with pytest.raises(StoreError, match="closed"):
                await store.get("a")
            with pytest.raises(StoreError, match="closed"):
                await store.put("a", b"", epoch=epoch)

        on_store(backend, test)
