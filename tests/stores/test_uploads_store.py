from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest
from tests.stores.store_doubles import EPOCH, OLD, FaultyStore

from firesteel.errors import FencingError, QuotaExceededError, StoreUnavailableError
from firesteel.records import from_json, to_json
from firesteel.stores.uploads import Upload, UploadStore, is_upload_id, new_upload_id

KEY = "ab" * 32


def upload(number: int = 1, *, owner: str = "alice", at: float = 1.0) -> Upload:
    return Upload(f"00000000-0000-4000-8000-{number:012x}_job.py", "job.py", KEY, 12, at, owner, "__main__")


def test_an_upload_comes_back_from_json_as_it_was() -> None:
    assert from_json(json.loads(json.dumps(to_json(upload()))), Upload) == upload()


def test_ids_are_new_each_time_and_keep_the_name_as_far_as_paths_allow() -> None:
    first, second = new_upload_id("etl+v2.py"), new_upload_id("etl+v2.py")
    assert first != second
    assert first.endswith("_etl_v2.py")
    assert is_upload_id(first)
    assert is_upload_id(new_upload_id("a" * 128))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "job.py",
        "../../etc/passwd",
        "00000000-0000-4000-8000-000000000001_",
        "00000000-0000-4000-8000-000000000001_../x",
        "00000000-0000-4000-8000-000000000001_a/b",
        "00000000-0000-4000-8000-000000000001_a\x00b",
        "00000000-0000-4000-8000-000000000001_.hidden",
        "00000000-0000-4000-8000-000000000001_a\n",
        "00000000-0000-4000-8000-000000000001_" + "a" * 129,
    ],
)
def test_what_is_no_id_is_no_path(text: str) -> None:
    """S4"""
    assert not is_upload_id(text)
    with pytest.raises(ValueError, match="not an upload id"):
        asyncio.run(UploadStore(FaultyStore()).put(dataclasses.replace(upload(), upload_id=text), epoch=EPOCH))


def test_what_was_put_is_there_for_the_next_leader_until_it_is_deleted() -> None:
    async def run() -> None:
        store = FaultyStore()
        uploads = UploadStore(store)
        await uploads.put(upload(2, at=2.0), epoch=EPOCH)
        await uploads.put(upload(1, at=3.0), epoch=EPOCH)
        assert await uploads.list() == [upload(2, at=2.0), upload(1, at=3.0)]
        assert await UploadStore(store).list() == await uploads.list()
        assert await UploadStore(store).get(upload(2).upload_id) == upload(2, at=2.0)
        assert await uploads.delete(upload(2).upload_id, epoch=EPOCH)
        assert not await uploads.delete(upload(2).upload_id, epoch=EPOCH)
        assert await uploads.get(upload(2).upload_id) is None
        assert [u.upload_id for u in await UploadStore(store).list()] == [upload(1).upload_id]

    asyncio.run(run())


def test_a_leader_of_the_past_changes_nothing() -> None:
    async def run() -> None:
        store = FaultyStore()
        uploads = UploadStore(store)
        await uploads.put(upload(1), epoch=EPOCH)
        with pytest.raises(FencingError):
            await uploads.put(upload(2), epoch=OLD)
        with pytest.raises(FencingError):
            await uploads.delete(upload(1).upload_id, epoch=OLD)
        assert await uploads.list() == [upload(1)]

    asyncio.run(run())


@pytest.mark.parametrize("what", ["put", "delete"])
def test_a_write_whose_answer_was_lost_is_seen_as_it_is(what: str) -> None:
    async def run() -> None:
        store = FaultyStore()
        uploads = UploadStore(store)
        await uploads.put(upload(1), epoch=EPOCH)
        store.lose_answer()
        write = (
            uploads.put(upload(2), epoch=EPOCH) if what == "put" else uploads.delete(upload(1).upload_id, epoch=EPOCH)
        )
        with pytest.raises(StoreUnavailableError):
            await write
        assert await uploads.list() == ([upload(1), upload(2)] if what == "put" else [])

    asyncio.run(run())


def test_a_record_that_cannot_be_read_is_left_out_and_stops_nothing() -> None:
    async def run() -> None:
        store = FaultyStore()
        await UploadStore(store).put(upload(1), epoch=EPOCH)
        await store.damage(f"uploads/{upload(2).upload_id}", b"{not json")
        await store.damage(f"uploads/{upload(3).upload_id}", await store.value(f"uploads/{upload(1).upload_id}"))
        assert await UploadStore(store).list() == [upload(1)]

    asyncio.run(run())


def test_one_owner_may_keep_so_many_records_and_no_more() -> None:
    """S24: equal files cost no bytes, so the quota of bytes does not bound them."""

    async def run() -> None:
        uploads = UploadStore(FaultyStore(), per_owner=2)
        for number in (1, 2):
            await uploads.put(upload(number), epoch=EPOCH)
        await uploads.put(upload(2), epoch=EPOCH)
        with pytest.raises(QuotaExceededError, match="DELETE /jars"):
            await uploads.put(upload(3), epoch=EPOCH)
        await uploads.put(upload(4, owner="bob"), epoch=EPOCH)
        await uploads.delete(upload(1).upload_id, epoch=EPOCH)
        await uploads.put(upload(3), epoch=EPOCH)

    asyncio.run(run())


def test_many_at_once_are_counted_one_after_the_other() -> None:
    async def run() -> None:
        uploads = UploadStore(FaultyStore(), per_owner=3)
        outcomes = await asyncio.gather(
            *(uploads.put(upload(n), epoch=EPOCH) for n in range(10)), return_exceptions=True
        )
        assert sum(isinstance(o, QuotaExceededError) for o in outcomes) == 7
        assert len(await uploads.list()) == 3

    asyncio.run(run())
