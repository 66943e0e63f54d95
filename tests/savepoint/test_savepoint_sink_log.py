"""The log of Spark's file sink, cut at a batch and made to go on after one."""

from __future__ import annotations

import pytest

from firesteel.savepoint.selection import TornError
from firesteel.savepoint.sinklog import cut, number, paths, seed


def test_cut_from_the_last_compaction_on() -> None:
    names = [*(str(n) for n in range(10, 16)), "9.compact", *(str(n) for n in range(9)), ".9.compact.crc"]
    found = cut(names, 12)
    assert found is not None
    assert (found.required, found.optional) == (["9.compact", "10", "11", "12"], [])
    found = cut([*names, "19.compact", *(str(n) for n in range(16, 19))], 19)
    assert found is not None
    assert (found.required, found.optional) == (["19.compact"], ["9.compact"])
    found = cut(names, 8)
    assert found is not None
    assert found.required == [str(n) for n in range(9)]
    assert cut([".0.crc", "other"], 3) is None


@pytest.mark.parametrize(("names", "batch"), [(["0", "1", "3"], 3), (["9.compact", "11"], 11), (["0", "1"], 2)])
def test_cut_of_a_log_with_a_gap(names: list[str], batch: int) -> None:
    with pytest.raises(TornError):
        cut(names, batch)


def interval_of(names: list[str], default: int) -> int:
    """How Spark works out after how many batches it compacts."""
    compactions = sorted((int(n.partition(".")[0]) for n in names if n.endswith(".compact")), reverse=True)
    if len(compactions) >= 2:
        return compactions[0] - compactions[1]
    if not compactions:
        return default
    count = compactions[0] + 1
    if count <= default:
        return count
    if default < count // 2:
        return next((i for i in range(default, count // 2 + 1) if count % i == 0), count)
    return count


@pytest.mark.parametrize("default", [1, 2, 3, 7, 10, 25])
def test_seeded_log_can_be_read_and_compacted(default: int) -> None:
    """Whatever comes next finds all entries that Spark will look for, under the names under which it does."""
    for batch in [*range(45), 99, 100, 108, 109, 110, 1009]:
        names = seed(batch)
        interval = interval_of(names, default)
        named = {b: f"{b}.compact" if (b + 1) % interval == 0 else str(b) for b in range(batch + 1)}
        assert max(number(n) or 0 for n in names) == batch
        start = max(0, (batch + 1) // interval * interval - 1)
        assert {named[b] for b in range(start, batch + 1)} <= set(names), batch
        coming = (batch + interval + 1) // interval * interval - 1
        assert {named[b] for b in range(max(0, coming - interval), min(coming, batch + 1))} <= set(names), batch
        assert interval <= max(default, 19), "so seldom that the log would grow without bound"


def test_nothing_is_seeded_before_the_first_batch() -> None:
    assert seed(-1) == []


def test_paths_of_an_entry() -> None:
    entry = (
        'v1\n{"path":"file:///o/a%20b/x.parquet","size":3,"isDir":false,"action":"add"}\n'
        '{"path":"file:///o/y","size":4,"action":"delete"}\n{"path":"file:///o/d","size":4,"isDir":true,"action":"add"}'
    )
    assert paths(entry.encode()) == {"file:///o/a b/x.parquet": 3}
    assert paths(b"v1") == {}
