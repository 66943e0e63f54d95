"""Which files of a checkpoint a savepoint takes."""

from __future__ import annotations

import pytest
from tests.savepoint.fake_query import archive

from firesteel.savepoint.manifest import NONE
from firesteel.savepoint.selection import TornError, choose, members, newest

BASE = ["metadata", ".metadata.crc", "offsets/6", "offsets/7", "offsets/8", "commits/6", "commits/7", "offsets/.8.tmp"]
UUID = "d0ec6445-aeb8-4270-90d9-91c8c05337b8"


def state(*names: str) -> list[str]:
    return [f"state/0/1/{n}" for n in names]


def taken(files: list[str], batch: int) -> set[str]:
    chosen = choose(files, batch)
    assert not set(chosen.required) & set(chosen.optional)
    return set(chosen.required) - {"metadata", "offsets/6", "offsets/7", "commits/6", "commits/7"}


def test_newest_batch_of_a_log() -> None:
    assert newest(["0", "9", "10", ".11.crc", ".11.uuid.tmp", "x"]) == 10
    assert newest([]) == NONE


def test_logs_up_to_the_batch_without_what_is_hidden() -> None:
    assert set(choose(BASE, 7).required) == {"metadata", "offsets/6", "offsets/7", "commits/6", "commits/7"}
    many = ["metadata", *(f"{log}/{n}" for log in ("offsets", "commits") for n in range(8))]
    assert set(choose(many, 7).required) == {"metadata", "offsets/6", "offsets/7", "commits/6", "commits/7"}
    assert set(choose(["metadata", "offsets/0", "commits/0"], 0).required) == {"metadata", "offsets/0", "commits/0"}


@pytest.mark.parametrize("gone", ["metadata", "offsets/7", "commits/7"])
def test_log_without_the_batch_is_torn(gone: str) -> None:
    with pytest.raises(TornError, match=gone):
        choose([f for f in BASE if f != gone], 7)


def test_query_that_has_committed_nothing() -> None:
    files = ["metadata", "offsets/0", "sources/0/0", "state/0/0/1.delta"]
    assert set(choose(files, NONE).required) == {"metadata", "sources/0/0"}
    assert choose([], NONE).required == []


def test_hdfs_backed_state_from_the_last_snapshot_on() -> None:
    names = [f"{v}.delta" for v in range(1, 11)] + ["3.snapshot", "7.snapshot", "9.snapshot"]
    extra = ["state/0/_metadata/metadata", "state/0/1/_metadata/schema", "state/0/1/.7.delta.crc"]
    found = taken([*BASE, *state(*names), *extra], 7)
    assert found == {*state("7.snapshot", "7.delta", "8.delta"), *extra[:2]}
    without = [n for n in names if "snapshot" not in n]
    assert taken([*BASE, *state(*without)], 7) == set(state(*(f"{v}.delta" for v in range(1, 9))))


@pytest.mark.parametrize("gone", [5, 8])
def test_state_with_a_gap_is_torn(gone: int) -> None:
    names = [f"{v}.delta" for v in range(1, 10) if v != gone] + ["3.snapshot"]
    with pytest.raises(TornError, match=f"version {gone}"):
        choose([*BASE, *state(*names)], 7)


def test_rocksdb_takes_the_archive_of_the_version() -> None:
    chosen = choose([*BASE, *state("6.zip", "7.zip", "8.zip", "9.zip", "SSTs/a.sst", "SSTs/b.sst")], 7)
    assert chosen.archives == {"state/0/1/8.zip": True}
    assert "state/0/1/SSTs/a.sst" not in chosen.required
    with pytest.raises(TornError, match="version 7"):
        choose([*BASE, *state("6.zip", "9.zip")], 7)


def test_rocksdb_with_changelog_from_the_last_archive_on() -> None:
    names = [f"{v}.changelog" for v in range(1, 11)] + ["3.zip", "6.zip", "9.zip"]
    chosen = choose([*BASE, *state(*names)], 7)
    assert chosen.archives == {"state/0/1/6.zip": True}
    assert set(state("6.zip", "6.changelog", "7.changelog", "8.changelog")) <= set(chosen.required)
    assert not {*state("5.changelog", "9.changelog", "9.zip", "3.zip")} & set(chosen.required)


def test_names_with_ids_are_all_taken_because_the_newest_may_be_of_a_failed_try() -> None:
    names = [f"{v}_{UUID}.{kind}" for v in range(1, 10) for kind in ("changelog", "changelog.crc")]
    zips = [f"3_{UUID}.zip", f"3_{UUID}.zip.crc", f"6_{UUID}.zip", f"6_{UUID}.zip.crc"]
    chosen = choose([*BASE, *state(*names, *zips)], 7)
    assert chosen.archives == {f"state/0/1/3_{UUID}.zip": False, f"state/0/1/6_{UUID}.zip": True}
    assert set(state(f"6_{UUID}.zip.crc", f"8_{UUID}.changelog.crc")) <= set(chosen.required)
    assert set(state(f"3_{UUID}.zip", f"3_{UUID}.zip.crc", f"1_{UUID}.changelog")) <= set(chosen.optional)
    assert not set(state(f"9_{UUID}.changelog")) & {*chosen.required, *chosen.optional}


def test_stores_of_a_join_are_apart() -> None:
    names = [
        "left-keyToNumValues/7.delta",
        "left-keyToNumValues/8.delta",
        "left-keyToNumValues/6.snapshot",
        "right/8.zip",
    ]
    files = [*BASE, *state(*names)]
    assert taken(files, 7) == set(state(*names))
    with pytest.raises(TornError, match="left-keyToNumValues"):
        choose([f for f in files if "8.delta" not in f], 7)


def test_metadata_of_operators_up_to_the_batch() -> None:
    files = [*BASE, "state/0/_metadata/v2/0", "state/0/_metadata/v2/8", "state/0/_stateSchema/default/0_uuid"]
    assert taken(files, 7) == {"state/0/_metadata/v2/0", "state/0/_stateSchema/default/0_uuid"}


def test_logs_of_sources_are_taken_as_they_are() -> None:
    """What is ahead of the batch is read by the next one. It may be known there only."""
    files = [*BASE, "sources/0/7", "sources/0/8", "sources/0/9.compact", "sources/0/10", "sources/1/0"]
    assert taken(files, 7) == set(files) - set(BASE)
    other = [*BASE, "sources/0/5", "sources/0/9", "sources/0/note"]
    assert taken(other, 7) == set(other) - set(BASE)
    for torn in (["sources/0/9.compact", "sources/0/11"], ["sources/0/7", "sources/0/8", "sources/0/10"]):
        with pytest.raises(TornError, match="sources/0"):
            choose([*BASE, *torn], 7)


def test_members_of_an_archive() -> None:
    there = {"state/0/1/SSTs/a.sst", "state/0/1/SSTs/b.sst", "state/0/2/SSTs/c.sst", "state/0/1/SSTs/.a.sst.crc"}
    assert members(archive("b.sst"), "state/0/1/8.zip", there) == ["state/0/1/SSTs/b.sst"]
    assert members(archive(), "state/0/1/8.zip", there) == []
    with pytest.raises(TornError, match=r"state/0/1/SSTs/z\.sst"):
        members(archive("b.sst", "z.sst"), "state/0/1/8.zip", there)
    unknown = members(b"not a zip", "state/0/1/8.zip", there)
    assert set(unknown) == {"state/0/1/SSTs/a.sst", "state/0/1/SSTs/b.sst"}
