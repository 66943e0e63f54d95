"""A checkpoint that is taken over from an attempt that may be alive: stopped at each of its file system calls (I27)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from tests.sinks.sink_model import Crash, Trip, TrippingOs

from firesteel.errors import FiresteelError, SupersededError
from firesteel.fs import generations, local
from firesteel.fs.generations import Generations
from firesteel.savepoint.files import Place
from firesteel.types import JobID

JOB = JobID("ab" * 16)
OTHER_JOB = JobID("cd" * 16)
CONTENT = {"metadata": "the id", "offsets/0": "planned", "commits/0": "done", "offsets/1": "planned"}


@pytest.fixture
def trip() -> Iterator[Trip]:
    found = Trip()
    setattr(local, "os", TrippingOs(found))  # noqa: B010
    yield found
    setattr(local, "os", os)  # noqa: B010


@pytest.fixture
def places(tmp_path: Path) -> Callable[[], Path]:
    numbers = count()
    return lambda: tmp_path / str(next(numbers)) / "job" / "o"


def query_begins(place: Path) -> None:
    """Spark makes the directory, and all above it."""
    for name, text in CONTENT.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


def query_goes_on(place: Path) -> None:
    """It makes files only, by their path."""
    with suppress(OSError):
        (place / "commits" / "1").write_text("done")


def begins_late(place: Path) -> None:
    with suppress(OSError):
        (place / "offsets").mkdir(parents=True, exist_ok=True)
        (place / "offsets" / "0").write_text("planned by another query")


def content(place: str) -> dict[str, str]:
    return {str(f.relative_to(place)): f.read_text() for f in Path(place).rglob("*") if f.is_file()}


def check_taken(place: Path, mine: str, *allowed: dict[str, str]) -> None:
    assert content(mine) in (CONTENT, *allowed)
    assert generations.current(str(place)) == mine
    before = content(mine)
    assert not place.is_dir()
    for late in (query_goes_on, begins_late, query_begins):
        with suppress(OSError):
            late(place)
    assert content(mine) == before
    assert generations.current(str(place)) == mine


@pytest.mark.parametrize("late", [query_goes_on, begins_late], ids=["goes-on", "begins"])
def test_attempt_that_wakes_up_anywhere_in_the_take_over_leaves_no_trace(
    trip: Trip, places: Callable[[], Path], late: Callable[[Path], None]
) -> None:
    for n in count(1):
        place = places()
        query_begins(place)
        acted: list[bool] = []

        def wake_up(place: Path = place, acted: list[bool] = acted) -> None:
            acted.append(True)
            late(place)

        with trip.armed(n, wake_up):
            mine = generations.take(str(place), JOB, 2, 1)
        if not acted:
            assert n > 8
            return
        # What it committed before the directory was renamed is committed.
        check_taken(place, mine, CONTENT | {"commits/1": "done"}, CONTENT | {"offsets/0": "planned by another query"})


def test_take_over_that_dies_anywhere_is_finished_by_the_next_attempt(trip: Trip, places: Callable[[], Path]) -> None:
    for n in count(1):
        place = places()
        query_begins(place)
        try:
            with trip.armed(n):
                generations.take(str(place), JOB, 2, 1)
            return
        except Crash:
            pass
        check_taken(place, generations.take(str(place), JOB, 3, 1))


def test_second_take_over_that_dies_anywhere_is_finished_by_the_next_attempt(
    trip: Trip, places: Callable[[], Path]
) -> None:
    for n in count(1):
        place = places()
        query_begins(place)
        first = generations.take(str(place), JOB, 2, 1)
        try:
            with trip.armed(n):
                generations.take(str(place), JOB, 3, 2)
            return
        except Crash:
            pass
        mine = generations.take(str(place), JOB, 4, 2)
        check_taken(place, mine)
        begins_late(Path(first))
        assert Path(first).is_file()
        assert generations.current(str(place)) == mine


def test_two_attempts_that_take_over_at_once_leave_the_later_one_with_everything(
    trip: Trip, places: Callable[[], Path]
) -> None:
    """Attempt 2 was taking over from attempt 1 when it was given up itself."""
    for began in (True, False):
        for n in count(1):
            place = places()
            if began:
                query_begins(place)
            acted: list[str] = []
            second = ""

            def overtake(place: Path = place, acted: list[str] = acted) -> None:
                acted.append(generations.take(str(place), JOB, 3, 2))

            with trip.armed(n, overtake), suppress(SupersededError):
                second = generations.take(str(place), JOB, 2, 1)
            if not acted:
                assert n > 8
                break
            mine = acted[0]
            if second:  # it was done before attempt 3 came, which then took it from there
                assert second != mine
                query_goes_on(Path(second))
            assert not Path(second or place).is_dir() or not os.listdir(second or place)
            assert content(mine) == (CONTENT if began else {})
            assert generations.current(str(place)) == mine


def test_attempt_that_was_given_up_is_refused_when_it_comes_back(places: Callable[[], Path]) -> None:
    place = places()
    query_begins(place)
    generations.take(str(place), JOB, 2, 1)
    with pytest.raises(SupersededError, match=r"attempt 1 was given up and attempt 2 has taken over .*/o"):
        generations.take(str(place), JOB, 1, 0)


def test_attempts_that_follow_ones_seen_to_end_stay_where_they_are(places: Callable[[], Path]) -> None:
    place = places()
    query_begins(place)
    before = sorted(os.listdir(place.parent))
    assert [generations.take(str(place), JOB, n, 0) for n in (1, 2, 3)] == [str(place)] * 3
    assert sorted(os.listdir(place.parent)) == before
    taken = generations.take(str(place), JOB, 4, 3)
    assert [generations.take(str(place), JOB, n, 3) for n in (5, 6)] == [taken] * 2


def test_checkpoint_that_nobody_had_begun_can_be_taken_over(places: Callable[[], Path]) -> None:
    place = places()
    mine = generations.take(str(place), JOB, 2, 1)
    assert Path(mine).is_dir()
    begins_late(place)
    assert content(mine) == {}
    assert place.is_file()


def test_next_job_goes_on_in_a_place_of_its_user_that_was_taken_over(places: Callable[[], Path]) -> None:
    """Numbers of attempts begin at 1 in every job."""
    place = places()
    query_begins(place)
    first = generations.take(str(place), JOB, 2, 1)
    assert generations.take(str(place), OTHER_JOB, 1, 0) == first
    second = generations.take(str(place), OTHER_JOB, 2, 1)
    check_taken(place, second)
    assert Path(first).is_file()
    assert Place.of_checkpoint(str(place), "o").read("metadata") == b"the id"


def test_link_to_a_checkpoint_is_taken_over_with_what_it_leads_to(places: Callable[[], Path]) -> None:
    place = places()
    real = place.parent.parent / "disk" / "o"
    query_begins(real)
    place.parent.mkdir(parents=True)
    place.symlink_to(real)
    check_taken(place, generations.take(str(place), JOB, 2, 1))


def test_place_that_cannot_be_taken_over_says_why(places: Callable[[], Path]) -> None:
    place = places()
    place.parent.mkdir(parents=True)
    place.write_text("somebody's file")
    with pytest.raises(FiresteelError, match="could not be taken over: it is not a directory"):
        generations.take(str(place), JOB, 2, 1)
    assert place.read_text() == "somebody's file"


def test_object_stores_take_nothing_over() -> None:
    place = "memory://bucket/checkpoints/o"
    assert generations.at(place) is None
    assert generations.take(place, JOB, 2, 1) == place
    assert generations.current("only-spark://knows/o") == "only-spark://knows/o"


def _no_file_in_its_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Generations, "_block", lambda self, latest: None)


def _no_rename(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Generations, "take", lambda *_: "")


@pytest.mark.parametrize("break_it", [_no_file_in_its_place, _no_rename])
def test_suite_notices_a_take_over_that_does_not_hold(
    trip: Trip,
    places: Callable[[], Path],
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[pytest.MonkeyPatch], None],
) -> None:
    break_it(monkeypatch)
    with pytest.raises(AssertionError):
        test_attempt_that_wakes_up_anywhere_in_the_take_over_leaves_no_trace(trip, places, begins_late)


def _no_second_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Generations, "_check", lambda *_: None)


def test_suite_notices_an_attempt_that_does_not_look_for_a_later_one(
    trip: Trip, places: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_second_look(monkeypatch)
    with pytest.raises(AssertionError):
        test_two_attempts_that_take_over_at_once_leave_the_later_one_with_everything(trip, places)
