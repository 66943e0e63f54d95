from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tests.stores.store_doubles import job

from firesteel.errors import StoreError
from firesteel.ha.protocols import Stored
from firesteel.records import from_json
from firesteel.stores.codec import UnreadableRecordError, decode, decode_all, encode, take, take_job_id


@dataclass(frozen=True, slots=True)
class Note:
    name: str
    at: float


def build(data: Mapping[str, Any]) -> tuple[str, float]:
    note = from_json(data, Note)
    return note.name, note.at


def test_a_record_carries_its_version_and_comes_back() -> None:
    raw = encode({"name": "a", "at": 1.5})
    assert json.loads(raw) == {"v": 1, "name": "a", "at": 1.5}
    assert decode("p/a", raw, build) == ("a", 1.5)


def test_text_that_is_no_unicode_survives() -> None:
    name = b"caf\xe9".decode(errors="surrogateescape")
    assert decode("p", encode({"name": name, "at": 0}), build)[0] == name


def test_fields_that_a_newer_writer_added_are_ignored() -> None:
    assert decode("p", encode({"name": "a", "at": 1, "extra": {}}), build) == ("a", 1.0)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "not JSON"),
        (b'{"v": 1, "name": "a", "a', "not JSON"),
        (b"\xff\xfe{}\x80", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'{"name": "a", "at": 1}', "no valid version"),
        (b'{"v": "1", "name": "a", "at": 1}', "no valid version"),
        (b'{"v": true, "name": "a", "at": 1}', "no valid version"),
        (b'{"v": 0, "name": "a", "at": 1}', "no valid version"),
        (b'{"v": 2, "name": "a", "at": 1}', "version 2 and this Firesteel reads up to 1"),
        (b'{"v": 1, "at": 1}', "missing required field `name`"),
        (b'{"v": 1, "name": 3, "at": 1}', "Expected `str`, got `int` - at `$.name`"),
        (b'{"v": 1, "name": "a", "at": "1"}', "Expected `float`, got `str` - at `$.at`"),
        (b'{"v": 1, "name": "a", "at": true}', "Expected `float`, got `bool` - at `$.at`"),
        (b"[" * 200_000, "nested too deeply"),
    ],
)
def test_a_record_that_cannot_be_read_is_named_with_the_reason(raw: bytes, why: str) -> None:
    with pytest.raises(UnreadableRecordError) as e:
        decode("graphs/x", raw, build)
    assert isinstance(e.value, StoreError)
    assert e.value.path == "graphs/x"
    assert why in e.value.why
    assert "graphs/x" in str(e.value)


def test_a_huge_wrong_value_makes_a_short_message() -> None:
    with pytest.raises(UnreadableRecordError) as e:
        decode("p", encode({"name": ["x" * 100_000], "at": 0}), build)
    assert len(str(e.value)) < 1000


def test_a_boolean_is_not_a_number_of_attempts() -> None:
    with pytest.raises(ValueError, match="'n' is True where int"):
        take({"n": True}, "n", int)


def test_a_record_on_the_path_of_another_job_is_damage() -> None:
    data = {"job_id": job(1)}
    assert take_job_id(data, f"results/{job(1)}") == job(1)
    with pytest.raises(ValueError, match=f"record of job {job(1)}"):
        take_job_id(data, f"results/{job(2)}")


def test_one_bad_record_stops_no_other() -> None:
    values = {
        f"p/{job(1)}": encode({"name": "one", "at": 1}),
        f"p/{job(2)}": b"torn",
        "p/leftover": encode({"name": "x", "at": 1}),
        f"p/{job(3)}": encode({"name": "three", "at": 3}),
    }
    stored = {path: Stored(value, 1) for path, value in values.items()}
    good, bad = asyncio.run(decode_all(stored, lambda path, raw: decode(path, raw, build)))
    assert good == {job(1): ("one", 1.0), job(3): ("three", 3.0)}
    assert set(bad) == {job(2), "leftover"}
    assert "not JSON" in bad[job(2)]
