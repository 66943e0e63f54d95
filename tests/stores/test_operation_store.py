from __future__ import annotations

import asyncio
import json

import pytest
from tests.stores.store_doubles import EPOCH, OLD, FaultyStore, job

from firesteel.errors import (
    FencingError,
    InvalidInputError,
    JobStateError,
    OperationNotFoundError,
    StoreUnavailableError,
)
from firesteel.records import from_json, to_json
from firesteel.stores.codec import UnreadableRecordError
from firesteel.stores.operations import Operation, OperationKind, OperationStatus, OperationStore


def checkpoint(trigger: str = "t1", at: float = 1.0, number: int = 1) -> Operation:
    return Operation(job(number), trigger, OperationKind.CHECKPOINT, at)


ENDED = Operation(
    job(1),
    "t9",
    OperationKind.STOP,
    1.0,
    status=OperationStatus.COMPLETED,
    ended_at=4.5,
    result={"batches": {"out": 7}, "path": None},
)


@pytest.mark.parametrize("one", [checkpoint(), ENDED])
def test_an_operation_comes_back_from_json_as_it_was(one: Operation) -> None:
    assert from_json(json.loads(json.dumps(to_json(one))), Operation) == one


@pytest.mark.parametrize("wrong", [{"status": "COMPLETED"}, {"ended_at": 3.0}, {"status": "DONE"}, {"kind": "MOVE"}])
def test_an_operation_that_contradicts_itself_is_none(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"an operation cannot be|Invalid enum value"):
        from_json({**to_json(checkpoint()), **wrong}, Operation)


def test_a_trigger_under_the_same_id_is_the_same_operation() -> None:
    async def run() -> None:
        store = OperationStore(FaultyStore())
        first = checkpoint(at=1.0)
        assert await store.begin(first, epoch=EPOCH) is first
        twin = checkpoint(at=1.0)
        assert await store.begin(twin, epoch=EPOCH) is not twin
        assert await store.begin(checkpoint(at=2.0), epoch=EPOCH) == first
        assert await store.begin(checkpoint(number=2), epoch=EPOCH) == checkpoint(number=2)
        done = await store.complete(job(1), "t1", result={"out": 3}, ended_at=5.0, epoch=EPOCH)
        assert await store.begin(checkpoint(at=9.0), epoch=EPOCH) == done

    asyncio.run(run())


def test_a_trigger_id_has_one_kind() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = OperationStore(faulty)
        await store.begin(checkpoint(), epoch=EPOCH)
        stop = Operation(job(1), "t1", OperationKind.STOP, 2.0)
        with pytest.raises(JobStateError, match="was used for a CHECKPOINT"):
            await store.begin(stop, epoch=EPOCH)
        with pytest.raises(JobStateError, match="was used for a CHECKPOINT"):  # not loaded: the store knows
            await OperationStore(faulty).begin(stop, epoch=EPOCH)

    asyncio.run(run())


@pytest.mark.parametrize("trigger", ["", "..", ".hidden", "a/b", "ä", "x" * 129])
def test_an_id_that_could_not_be_stored_is_refused(trigger: str) -> None:
    async def run() -> None:
        with pytest.raises(InvalidInputError, match="not a valid trigger id"):
            await OperationStore(FaultyStore()).begin(checkpoint(trigger), epoch=EPOCH)

    asyncio.run(run())


def test_two_triggers_at_once_begin_one_operation() -> None:
    class Slow(FaultyStore):
        """Both callers have looked at the memory before either write is done."""

        async def put(self, path: str, value: bytes, **how: object) -> int:
            await asyncio.sleep(0)
            return await super().put(path, value, **how)  # type: ignore[arg-type]

    async def run() -> None:
        store = OperationStore(Slow())
        ours = [checkpoint(at=1.0), checkpoint(at=1.0)]
        given = await asyncio.gather(*(store.begin(o, epoch=EPOCH) for o in ours))
        assert sum(g is o for g, o in zip(given, ours, strict=True)) == 1

    asyncio.run(run())


def test_a_beginning_whose_answer_was_lost_is_still_to_be_carried_out() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = OperationStore(faulty)
        mine = checkpoint(at=1.25)
        faulty.lose_answer()
        with pytest.raises(StoreUnavailableError):
            await store.begin(mine, epoch=EPOCH)
        assert await store.begin(mine, epoch=EPOCH) is mine
        assert store.unfinished() == [mine]

    asyncio.run(run())


def test_the_next_leader_answers_for_operations_of_the_last_one() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = OperationStore(faulty)
        for trigger in ("a", "b", "c"):
            await store.begin(checkpoint(trigger), epoch=EPOCH)
        done = await store.complete(job(1), "a", result={"out": 3}, ended_at=5.0, epoch=EPOCH)
        failed = await store.fail(job(1), "b", error="the job ended", ended_at=6.0, epoch=EPOCH)
        after = OperationStore(faulty)
        await after.load()
        assert after.get(job(1), "a") == done
        assert after.get(job(1), "b") == failed
        assert failed.error == "the job ended"
        assert after.unfinished() == [checkpoint("c")]
        assert after.get(job(1), "d") is None
        assert after.get(job(2), "a") is None

    asyncio.run(run())


def test_an_outcome_is_final() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = OperationStore(faulty)
        await store.begin(checkpoint(), epoch=EPOCH)
        faulty.lose_answer()
        with pytest.raises(StoreUnavailableError):
            await store.complete(job(1), "t1", result={"out": 1}, ended_at=5.0, epoch=EPOCH)
        done = await store.complete(job(1), "t1", result={"out": 1}, ended_at=5.0, epoch=EPOCH)
        assert await store.complete(job(1), "t1", result={}, ended_at=8.0, epoch=EPOCH) == done
        with pytest.raises(JobStateError, match="is COMPLETED"):
            await store.fail(job(1), "t1", error="late", ended_at=9.0, epoch=EPOCH)
        with pytest.raises(OperationNotFoundError, match="t2"):
            await store.fail(job(1), "t2", error="x", ended_at=9.0, epoch=EPOCH)

    asyncio.run(run())


def test_a_stale_leader_changes_no_operation() -> None:
    async def run() -> None:
        store = OperationStore(FaultyStore())
        with pytest.raises(FencingError):
            await store.begin(checkpoint(), epoch=OLD)
        assert store.get(job(1), "t1") is None
        await store.begin(checkpoint(), epoch=EPOCH)
        with pytest.raises(FencingError):
            await store.complete(job(1), "t1", result={}, ended_at=2.0, epoch=OLD)
        assert store.unfinished() == [checkpoint()]

    asyncio.run(run())


def test_old_outcomes_expire_and_running_operations_do_not() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = OperationStore(faulty)
        for trigger in ("a", "b", "c"):
            await store.begin(checkpoint(trigger, at=0.0), epoch=EPOCH)
        await store.complete(job(1), "a", result={}, ended_at=10.0, epoch=EPOCH)
        await store.fail(job(1), "b", error="x", ended_at=20.0, epoch=EPOCH)
        assert await store.expire(20.0, epoch=EPOCH) == 1
        assert store.get(job(1), "a") is None
        assert list(await faulty.paths("operations")) == [f"operations/{job(1)}/b", f"operations/{job(1)}/c"]
        assert await store.expire(1000.0, epoch=EPOCH) == 1
        assert store.unfinished() == [checkpoint("c", at=0.0)]

    asyncio.run(run())


def test_unreadable_operations_are_logged_and_go_with_their_job(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = OperationStore(faulty)
        await store.begin(checkpoint("good"), epoch=EPOCH)
        await store.begin(checkpoint(number=2), epoch=EPOCH)
        await faulty.damage(f"operations/{job(1)}/bad", b"{")
        await faulty.damage(f"operations/{job(1)}/moved", await faulty.value(f"operations/{job(1)}/good"))
        await store.load()
        assert f"operations/{job(1)}/bad" in caplog.text
        assert f"operations/{job(1)}/moved" in caplog.text
        assert len(store.unfinished()) == 2
        with pytest.raises(UnreadableRecordError):
            await store.begin(checkpoint("bad"), epoch=EPOCH)
        await store.delete_job(job(1), epoch=EPOCH)
        assert list(await faulty.paths("operations")) == [f"operations/{job(2)}/t1"]
        assert store.unfinished() == [checkpoint(number=2)]

    asyncio.run(run())
