"""An attempt that was given up on a lost host wakes up, at any of its file system calls, and can do no harm (I27).

Attempt 1 is stopped at its n-th call, from its first look at the target to its last line, while attempt 2 runs elsewhere; then
it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

import pytest
from tests.support.marks import samples

from firesteel.errors import CommitConflictError, SupersededError
from firesteel.sinks import Begin, StagedFileSink
from firesteel.sinks.log import CommitLog

if TYPE_CHECKING:
    from tests.sinks.sink_model import (
        NEW,
        OLD,
        OTHER,
        OTHER_JOB,
        VERTEX,
        Crash,
        MemoryWorld,
        World,
        expected,
        ours,
        rows_in,
        rows_of,
        run,
        sink_of,
        spark_writes,
    )
else:
    from sink_model import (
        NEW,
        OLD,
        OTHER,
        OTHER_JOB,
        VERTEX,
        Crash,
        MemoryWorld,
        World,
        expected,
        ours,
        rows_in,
        rows_of,
        run,
        sink_of,
        spark_writes,
    )

MakeWorld = Callable[[], World]
MODES = ["append", "overwrite", "dynamic"]
OVER = f"_firesteel/{'a' * 32}-{VERTEX}.over"


class Woken:
    """Attempt 1 of a job, stopped at its n-th call while `meanwhile` happened, and woken up."""

    def __init__(self, world: World, mode: str, old: Mapping[str, str]) -> None:
        self.world = world
        self.mode = mode
        self.error: Exception | None = None
        self.stopped = False
        self.decided_before = False
        """Whether the commit of attempt 1 was decided when it was stopped."""
        for name, text in old.items():
            world.put(name, text)

    def live(self, n: int, meanwhile: Callable[[World, str], object]) -> None:
        def act() -> None:
            self.stopped = True
            self.decided_before = any(name.endswith("commit.json") for name in self.world.files())
            meanwhile(self.world, self.mode)

        try:
            with self.world.trip.armed(n, act):
                run(self.world, sink_of(self.world, self.mode), attempt=1)
        except (CommitConflictError, FileNotFoundError) as error:
            # On a real file system the directory that it was about to write to may be gone.
            self.error = error


def each_wake_up(
    make_world: MakeWorld, mode: str, meanwhile: Callable[[World, str], object], old: Mapping[str, str] = OLD
) -> Iterator[Woken]:
    for n in count(1):
        woken = Woken(make_world(), mode, old)
        woken.live(n, meanwhile)
        if not woken.stopped:
            assert n > 25
            return
        yield woken


def next_attempt(world: World, mode: str) -> None:
    run(world, sink_of(world, mode, given_up=1), attempt=2)


def next_attempt_to_the_end(world: World, mode: str) -> None:
    next_attempt(world, mode)
    sink_of(world, mode, given_up=1).cleanup()


def check_rows_after_the_next_attempt(make_world: MakeWorld, mode: str) -> None:
    for woken in each_wake_up(make_world, mode, next_attempt):
        assert rows_of(woken.world) == expected(mode)
        assert woken.decided_before or woken.error is not None
        sink_of(woken.world, mode, given_up=1).cleanup()
        assert rows_of(woken.world) == expected(mode)
        assert ours(woken.world) - {"_firesteel"} == {OVER}


def check_rows_after_the_end(make_world: MakeWorld, mode: str) -> None:
    for woken in each_wake_up(make_world, mode, next_attempt_to_the_end):
        assert rows_of(woken.world) == expected(mode)
        assert woken.decided_before or woken.error is not None
        left = {name for name in ours(woken.world) if not name.endswith("/done")} - {"_firesteel"}
        assert OVER in left
        sink_of(woken.world, mode, given_up=1).cleanup()
        assert ours(woken.world) - {"_firesteel"} == {OVER}


@pytest.mark.parametrize("mode", samples(MODES))
def test_attempt_that_wakes_up_anywhere_after_the_next_one_has_committed(make_world: MakeWorld, mode: str) -> None:
    check_rows_after_the_next_attempt(make_world, mode)


@pytest.mark.parametrize("mode", samples(MODES))
def test_attempt_that_wakes_up_anywhere_after_its_job_has_ended(make_world: MakeWorld, mode: str) -> None:
    check_rows_after_the_end(make_world, mode)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_attempt_that_wakes_up_anywhere_after_its_job_was_given_up_with_it(make_world: MakeWorld, mode: str) -> None:
    """No attempt followed; the job failed or was cancelled. Its rows are there only if they had been decided on."""

    def abandon(world: World, mode: str) -> None:
        sink_of(world, mode, given_up=1).abandon()
        sink_of(world, mode, given_up=1).cleanup()

    for woken in each_wake_up(make_world, mode, abandon):
        assert rows_of(woken.world) == (expected(mode) if woken.decided_before else rows_in(OLD))


def test_attempt_that_wakes_up_anywhere_replaces_nothing_that_came_after_its_job(make_world: MakeWorld) -> None:
    """The overwrite of a job that has ended must not remove what another job has put in its place."""

    def another_job(world: World, mode: str) -> None:
        next_attempt_to_the_end(world, mode)
        other = sink_of(world, mode, job_id=OTHER_JOB)
        run(world, other, rows=OTHER)
        other.cleanup()

    for woken in each_wake_up(make_world, "overwrite", another_job):
        assert rows_of(woken.world) == rows_in(OTHER)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_next_attempt_that_wakes_up_with_the_earlier_one_writes_rows_once(make_world: MakeWorld, mode: str) -> None:
    """Both at once: attempt 2 is between two of its calls when attempt 1 does all that it has left to do."""
    for n in count(1):
        world = make_world()
        for name, text in OLD.items():
            world.put(name, text)
        first = sink_of(world, mode)
        assert first.begin(1) is Begin.RUN
        spark_writes(world, first.staging_path(1))
        acted: list[bool] = []

        def late(first: StagedFileSink = first, acted: list[bool] = acted) -> None:
            acted.append(True)
            with suppress(CommitConflictError):
                first.commit(1)

        with world.trip.armed(n, late):
            next_attempt(world, mode)
        if not acted:
            return
        assert rows_of(world) == expected(mode)


def test_attempt_that_was_given_up_is_told_which_one_has_taken_over(world: World) -> None:
    first = sink_of(world)
    first.begin(1)
    spark_writes(world, first.staging_path(1))
    sink_of(world, given_up=1).begin(2)
    with pytest.raises(SupersededError, match="attempt 1 was given up and attempt 2 has taken over"):
        first.commit(1)
    assert rows_of(world) == []
    assert not any("/attempt-1" in name for name in world.files())


def test_attempt_that_begins_after_a_later_one_is_refused_before_spark_works(world: World) -> None:
    sink_of(world, given_up=1).begin(2)
    with pytest.raises(SupersededError, match="attempt 2 has taken over"):
        sink_of(world).begin(1)
    assert not any("/attempt-1" in name for name in world.files())


def test_attempt_whose_files_vanish_under_the_hands_of_spark_can_ask_why(world: World) -> None:
    first = sink_of(world)
    first.begin(1)
    first.check(1)
    sink_of(world, given_up=1).begin(2)
    with pytest.raises(SupersededError, match="attempt 2 has taken over"):
        first.check(1)
    with pytest.raises(SupersededError, match="nothing was committed"):
        first.check(1)


def test_attempt_that_follows_one_that_was_seen_to_end_leaves_nothing_behind(world: World) -> None:
    first = sink_of(world)
    first.begin(1)
    spark_writes(world, first.staging_path(1), finishes=False)
    second = sink_of(world)
    run(world, second, attempt=2)
    second.cleanup()
    assert rows_of(world) == rows_in(NEW)
    assert ours(world) == set()


def test_clean_up_that_dies_anywhere_still_keeps_an_attempt_from_beginning(make_world: MakeWorld) -> None:
    for n in count(1):
        world = make_world()
        next_attempt(world, "append")
        try:
            with world.trip.armed(n):
                sink_of(world, given_up=1).cleanup()
            return
        except Crash:
            sink_of(world).cleanup()  # by a leader that asks again; the directory says what happened
        with suppress(CommitConflictError, FileNotFoundError):
            run(world, sink_of(world), attempt=1)
        assert rows_of(world) == rows_in(NEW)


def test_overwrite_of_another_job_does_not_mind_what_is_left(make_world: MakeWorld) -> None:
    world = make_world()
    next_attempt_to_the_end(world, "append")
    other = sink_of(world, "overwrite", job_id=OTHER_JOB)
    run(world, other, rows=OTHER)
    other.cleanup()
    assert rows_of(world) == rows_in(OTHER)


def _no_claim(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLog, "check_claim", lambda self, attempt: None)


def _no_note_at_the_end(patch: pytest.MonkeyPatch) -> None:
    remove = CommitLog.remove
    patch.setattr("firesteel.sinks.log._GIVEN_UP", "nothing")
    patch.setattr(CommitLog, "remove", lambda self, **_: remove(self))


def _look_before_the_claim(patch: pytest.MonkeyPatch) -> None:
    def begin(self: CommitLog, attempt: int, *, after_given_up: bool = False) -> None:
        self._store.make_directory(self.directory)
        if after_given_up:
            self._store.write(f"{self.directory}/given-up", b"")
        self.check_claim(attempt)
        self._store.write(self._begun(attempt), b"")

    patch.setattr(CommitLog, "begin", begin)
    # What is looked at right before the decision would hide it.
    check = CommitLog.check_claim
    patch.setattr(CommitLog, "check_claim", lambda s, a: check(s, a) if not s.has_begun(a) else None)


@pytest.mark.parametrize("break_it", [_no_claim, _no_note_at_the_end, _look_before_the_claim])
def test_suite_notices_a_claim_that_does_not_hold(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None]
) -> None:
    break_it(monkeypatch)
    if break_it is _look_before_the_claim and make_world is not MemoryWorld:
        pytest.skip("with real directories, a claim cannot be put where the clean-up was")
    with pytest.raises(AssertionError):
        check_rows_after_the_end(make_world, "append")
