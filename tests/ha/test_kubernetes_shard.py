"""A shard: what one update of it does, and what is refused."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from typing import Any

import pytest

from firesteel.errors import FencingError, StoreBrokenError, VersionConflictError
from firesteel.ha.kubernetes.names import Names
from firesteel.ha.kubernetes.shard import (
    CAPACITY,
    RESERVED,
    SMALL,
    ClaimRefusedError,
    Shard,
    ShardBatch,
    ShardEntry,
    ShardFullError,
)
from firesteel.ha.protocols import NEW, Epoch

NAMES = Names("space", "test")
ONE, TWO, THREE = Epoch(1), Epoch(2), Epoch(3)
EMPTY = Shard.made(NAMES, "test-state-00", instance="i", shards=64, epoch=TWO, holder="me")


def filled(**values: bytes) -> Shard:
    batch = ShardBatch(EMPTY)
    for path, value in values.items():
        batch.put(path, value, TWO, None)
    return batch.result()


def test_shard_survives_the_way_to_the_server_and_back() -> None:
    shard = filled(a=b"1", b=bytes(range(256)), c=b"")
    raw = shard.raw()
    assert set(raw["binaryData"]) == {"1", "2", "3"}
    back = Shard.of({**raw, "metadata": {**shard.metadata, "resourceVersion": "9", "managedFields": []}})
    assert back.same_content(shard)
    assert back.metadata["resourceVersion"] == "9"
    assert "managedFields" not in back.metadata
    assert not back.same_content(replace(shard, last_version=9))
    assert {path: entry.decoded() for path, entry in back.entries.items()} == {
        "a": b"1",
        "b": bytes(range(256)),
        "c": b"",
    }


def test_versions_grow_across_delete_and_new_write_and_epochs() -> None:
    shard = filled(a=b"1")
    batch = ShardBatch(shard)
    assert batch.delete("a", TWO, 1)
    shard = Shard.of(batch.result().raw())
    batch = ShardBatch(shard)
    batch.claim(THREE, "next")
    assert batch.put("a", b"2", THREE, NEW) == 2


def test_requests_of_one_update_see_each_other_and_a_refused_one_leaves_no_trace() -> None:
    batch = ShardBatch(filled(a=b"1"))
    assert batch.put("b", b"x", TWO, NEW) == 2
    with pytest.raises(VersionConflictError):
        batch.put("b", b"y", TWO, NEW)
    with pytest.raises(FencingError):
        batch.put("c", b"y", THREE, None)
    assert batch.delete("a", TWO, 1)
    assert not batch.delete("a", TWO, None)
    assert batch.put("a", b"z", TWO, NEW) == 3
    assert batch.changes == 3
    assert {p: e.decoded() for p, e in batch.result().entries.items()} == {"b": b"x", "a": b"z"}


def test_only_the_epoch_of_the_shard_writes() -> None:
    for wrong in (ONE, THREE):
        batch = ShardBatch(filled(a=b"1"))
        with pytest.raises(FencingError):
            batch.put("a", b"2", wrong, None)
        with pytest.raises(FencingError):
            batch.delete("a", wrong, 1)
        with pytest.raises(FencingError):
            batch.check("a", wrong, None)
        assert batch.changes == 0


def test_claim_only_goes_up_and_never_over_another_holder_of_the_same_epoch() -> None:
    batch = ShardBatch(EMPTY)
    batch.claim(TWO, "me")  # repeated: nothing to do
    assert batch.changes == 0
    with pytest.raises(ClaimRefusedError) as refused:
        batch.claim(TWO, "somebody")
    assert refused.value.newest == TWO
    with pytest.raises(ClaimRefusedError):
        batch.claim(ONE, "me")
    batch.claim(THREE, "somebody")
    assert (batch.result().epoch, batch.result().holder) == (THREE, "somebody")
    with pytest.raises(FencingError):  # in the same update already
        batch.put("a", b"", TWO, None)


def test_shard_that_is_full_refuses_one_value_and_takes_a_smaller_one() -> None:
    room = CAPACITY - RESERVED
    batch = ShardBatch(EMPTY)
    batch.put("a", bytes(room - 2_000), TWO, None)
    with pytest.raises(ShardFullError, match="'b'"):
        batch.put("b", bytes(2_000), TWO, None)
    assert batch.put("b", bytes(500), TWO, None) == 2
    assert batch.put("a", bytes(10), TWO, 1) == 3
    assert batch.put("c", bytes(room - 2_000), TWO, None) == 4


def fill(batch: ShardBatch, record: bytes) -> int:
    """How many more fit."""
    for n in itertools.count():
        try:
            batch.put(f"p/{n}", record, TWO, None)
        except ShardFullError:
            return n
    raise AssertionError


def test_full_shard_has_room_for_pointers_until_that_is_used_up_too() -> None:
    batch = ShardBatch(EMPTY)
    batch.put("a", bytes(CAPACITY - RESERVED - 1_000), TWO, None)
    pointers = fill(batch, bytes(SMALL))
    assert pointers > RESERVED // (SMALL + 50)
    raw = batch.result().raw()
    assert sum(map(len, raw["data"].values())) + sum(len(v) * 3 // 4 for v in raw["binaryData"].values()) < 2**20
    assert len(json.dumps(raw)) < 2**20


def test_many_tiny_records_fit_as_well() -> None:
    batch = ShardBatch(EMPTY)
    assert fill(batch, b"v") > 10_000
    assert len(json.dumps(batch.result().raw())) < 2**20


def test_size_is_counted_right_over_many_changes() -> None:
    batch, draw = ShardBatch(EMPTY), random.Random(7)
    for _ in range(500):
        path = f"p/{draw.randrange(20)}"
        if draw.random() < 0.3:
            batch.delete(path, TWO, None)
        else:
            batch.put(path, draw.randbytes(draw.randrange(200)), TWO, None)
    assert batch._current_size() == batch.result().size


def damaged(**data: str) -> dict[str, Any]:
    raw = filled(a=b"1").raw()
    return {**raw, "data": {**raw["data"], **data}}


@pytest.mark.parametrize(
    "data",
    [
        {"paths": "{"},
        {"paths": "[1]"},
        {"paths": '{"a": "x"}'},
        {"paths": '{"a": null}'},
        {"epoch": "two"},
        {"epoch": "-1"},
        {"last-version": ""},
        {"shards": "9" * 30},
    ],
)
def test_shard_that_cannot_be_understood_is_named_with_what_to_do(data: dict[str, str]) -> None:
    with pytest.raises(StoreBrokenError, match=r"'test-state-00' is damaged.*backup"):
        Shard.of(damaged(**data))


def test_shard_of_a_newer_firesteel_is_refused() -> None:
    with pytest.raises(StoreBrokenError, match="has format '2'"):
        Shard.of(damaged(format="2"))
    with pytest.raises(StoreBrokenError, match="has format None"):
        Shard.of({"metadata": {"name": "x"}})


def test_record_that_somebody_removed_is_empty_and_the_others_are_there() -> None:
    raw = filled(a=b"1", b=b"2").raw()
    del raw["binaryData"]["1"]
    shard = Shard.of(raw)
    assert shard.entries["a"] == ShardEntry(1, "")
    assert shard.entries["b"].decoded() == b"2"


def test_versions_go_on_above_those_that_are_there_whatever_the_counter_says() -> None:
    assert Shard.of(damaged(**{"last-version": "0"})).last_version == 1


def test_paths_are_spread_over_all_shards() -> None:
    names = {NAMES.shard_of(f"graphs/{n:032x}", 64) for n in range(2000)}
    assert names == set(NAMES.shards(64))
