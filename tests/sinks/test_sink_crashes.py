"""Exactly once, whatever dies and whenever: the sink is stopped at each of its file system calls in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

import pytest
from tests.support.marks import samples

from firesteel.errors import CommitConflictError
from firesteel.sinks import StagedFileSink
from firesteel.sinks.log import CommitLog
from firesteel.sinks.record import CommitRecord

if TYPE_CHECKING:
    from tests.sinks.sink_model import (
        NEW,
        OLD,
        OTHER,
        OTHER_JOB,
        Crash,
        MemoryWorld,
        World,
        contains,
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
        Crash,
        MemoryWorld,
        World,
        contains,
        expected,
        ours,
        rows_in,
        rows_of,
        run,
        sink_of,
        spark_writes,
    )

MODES = ["append", "overwrite", "dynamic"]
RECOVERIES = ["same attempt", "new attempt", "abandon"]
MakeWorld = Callable[[], World]


class Life:
    """A job with one sink, and what of it survives the death of its process."""

    def __init__(self, world: World, mode: str, old: Mapping[str, str] = OLD) -> None:
        self.world = world
        self.mode = mode
        self.recorded: bool | None = None
        """The job's recorded result: whether its rows are in place."""
        for name, text in old.items():
            world.put(name, text)

    def sink(self) -> StagedFileSink:
        return sink_of(self.world, self.mode)

    def run(self, attempt: int) -> None:
        sink = self.sink()
        if self.recorded is None:
            run(self.world, sink, attempt)
            self.recorded = True
        sink.cleanup()

    def abandon(self) -> None:
        sink = self.sink()
        if self.recorded is None:
            self.recorded = sink.abandon() is not None
        sink.cleanup()

    def recover(self, how: str) -> None:
        match how:
            case "same attempt":
                self.run(1)
            case "new attempt":
                self.run(2)
            case _:
                self.abandon()

    def check_unfinished(self) -> None:
        """What must hold at any moment: old rows go only after a decision, and never before all new ones are there."""
        files = self.world.files()
        rows = rows_in(files)
        if not any(name.endswith(("/commit.json", "/done")) for name in files) and self.recorded is None:
            assert rows == rows_in(OLD)
        assert contains(rows, rows_in(OLD)) or contains(rows, expected(self.mode))
        assert contains(sorted(rows_in(OLD) + rows_in(NEW)), rows)

    def check_finished(self) -> None:
        assert rows_of(self.world) == (expected(self.mode) if self.recorded else rows_in(OLD))
        assert ours(self.world) == set()
        assert ("k=2/.old-2.csv.crc" in self.world.files()) == ("k=2/old-2.csv" in self.world.files())


def exhaust(make_world: MakeWorld, mode: str, recovery: str) -> int:
    """Crash a job at its n-th call for every n, recover, check. Returns how many crashes that were."""
    for n in count(1):
        life = Life(make_world(), mode)
        try:
            with life.world.trip.armed(n):
                life.run(1)
            life.check_finished()
            return n - 1
        except Crash:
            life.check_unfinished()
            life.recover(recovery)
            life.check_finished()
    raise AssertionError("a job that never ends")


@pytest.mark.parametrize("mode", samples(MODES))
@pytest.mark.parametrize("recovery", samples(RECOVERIES, quick=2))
def test_crash_at_every_call_then_recovery_has_rows_exactly_once(
    make_world: MakeWorld, mode: str, recovery: str
) -> None:
    assert exhaust(make_world, mode, recovery) > 25


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("first", RECOVERIES)
def test_crash_again_at_every_call_of_the_recovery_has_rows_exactly_once(
    make_world: MakeWorld, mode: str, first: str
) -> None:
    """The second recovery is another one than the first: an abandon that dies may be followed by nothing but itself."""
    second = {"same attempt": "new attempt", "new attempt": "abandon", "abandon": "abandon"}[first]
    for n in range(1, exhaust(make_world, mode, first), 7):
        for m in count(1 + n % 5, 5):
            life = Life(make_world(), mode)
            with pytest.raises(Crash), life.world.trip.armed(n):
                life.run(1)
            try:
                with life.world.trip.armed(m):
                    life.recover(first)
                break
            except Crash:
                life.check_unfinished()
                life.recover(second)
                life.check_finished()


def test_crash_with_parallel_moves_has_rows_exactly_once() -> None:
    assert exhaust(lambda: MemoryWorld(workers=4), "overwrite", "new attempt") > 25


def staged(world: World, mode: str, rows: Mapping[str, str] = NEW) -> StagedFileSink:
    """A sink over the old rows whose attempt 1 is written and waits for its commit."""
    for name, text in OLD.items():
        world.put(name, text)
    sink = sink_of(world, mode)
    sink.begin(1)
    spark_writes(world, sink.staging_path(1), rows)
    return sink


def interrupted(world: World, n: int, call: Callable[[], object], act: Callable[[], object]) -> bool:
    """Pause `call` at its n-th file system call, let `act` happen there, resume; False when there is no such call."""
    acted = []
    with world.trip.armed(n, lambda: acted.append(act())):
        try:
            call()
        except CommitConflictError:
            pass  # loud is right for a zombie; the rows tell whether it was harmless
    return bool(acted)


def interleave(
    make_world: MakeWorld, mode: str, act: Callable[[World, StagedFileSink], object], rows: Mapping[str, str] = NEW
) -> Iterator[World]:
    """Interrupt `commit` of attempt 1 at each of its calls by `act`. The worlds that come out."""
    for n in count(1):
        world = make_world()
        sink = staged(world, mode, rows)
        if not interrupted(world, n, lambda: sink.commit(1), lambda: act(world, sink_of(world, mode))):  # noqa: B023
            return
        yield world


@pytest.mark.parametrize("mode", samples(MODES))
def test_zombie_that_resumes_anywhere_in_its_commit_after_another_attempt_committed(
    make_world: MakeWorld, mode: str
) -> None:
    def other_attempt(world: World, sink: StagedFileSink) -> None:
        run(world, sink, attempt=2)

    for world in interleave(make_world, mode, other_attempt):
        assert rows_of(world) == expected(mode)
        sink_of(world, mode).cleanup()
        assert ours(world) == set()


@pytest.mark.parametrize("mode", samples(MODES))
def test_zombie_that_resumes_anywhere_in_its_commit_after_the_job_was_cleaned_up(
    make_world: MakeWorld, mode: str
) -> None:
    def other_attempt_to_the_end(world: World, sink: StagedFileSink) -> None:
        run(world, sink, attempt=2)
        sink.cleanup()

    for world in interleave(make_world, mode, other_attempt_to_the_end):
        assert rows_of(world) == expected(mode)
        assert {name.rpartition("/")[2] for name in ours(world)} <= {"done"}
        sink_of(world, mode).cleanup()
        assert ours(world) == set()


@pytest.mark.parametrize("mode", samples(MODES))
def test_zombie_that_resumes_anywhere_in_its_commit_after_an_abandon(make_world: MakeWorld, mode: str) -> None:
    outcomes = set()

    def abandon(world: World, sink: StagedFileSink) -> None:
        committed = sink.abandon() is not None
        outcomes.add(committed)
        world.put(".committed", str(committed))
        sink.cleanup()

    for world in interleave(make_world, mode, abandon):
        committed = world.files()[".committed"] == "True"
        assert rows_of(world) == (expected(mode) if committed else rows_in(OLD))
    assert outcomes == {True, False}


@pytest.mark.parametrize("mode", samples(MODES))
def test_abandon_that_is_overtaken_anywhere_by_a_late_commit(make_world: MakeWorld, mode: str) -> None:
    for n in count(1):
        world = make_world()
        sink = staged(world, mode)
        committed: list[bool] = []

        def abandon(sink: StagedFileSink = sink, committed: list[bool] = committed) -> None:
            committed.append(sink.abandon() is not None)

        def late_commit(world: World = world) -> None:
            with suppress(CommitConflictError):
                sink_of(world, mode).commit(1)

        if not interrupted(world, n, abandon, late_commit):
            return
        assert rows_of(world) == (expected(mode) if committed[0] else rows_in(OLD))
        sink.cleanup()
        assert ours(world) == set()


def test_commit_that_is_interrupted_anywhere_by_an_abandon_that_dies_is_whole_or_nothing(
    make_world: MakeWorld,
) -> None:
    for m in range(1, 30, 4):

        def half_an_abandon(world: World, sink: StagedFileSink, m: int = m) -> None:
            with suppress(Crash), world.trip.armed(m):
                sink.abandon()

        for world in interleave(make_world, "overwrite", half_an_abandon):
            committed = sink_of(world, "overwrite").abandon() is not None
            assert rows_of(world) == (rows_in(NEW) if committed else rows_in(OLD))


def test_zombie_with_no_rows_cannot_empty_the_target_after_an_abandon(make_world: MakeWorld) -> None:
    """An empty partitioned DataFrame stages no file at all, so nothing would be missed when it is applied too late."""
    kept: list[bool] = []

    def abandon(world: World, sink: StagedFileSink) -> None:
        kept.append(sink.abandon() is None)
        sink.cleanup()

    for world in interleave(make_world, "overwrite", abandon, rows={}):
        assert rows_of(world) == (rows_in(OLD) if kept[-1] else [])
    assert set(kept) == {True, False}


@pytest.mark.parametrize("mode", samples(MODES))
def test_append_of_another_job_at_any_moment_of_a_commit_is_whole_or_wholly_replaced(
    make_world: MakeWorld, mode: str
) -> None:
    def other_job(world: World, _: StagedFileSink) -> None:
        sink = sink_of(world, job_id=OTHER_JOB)
        run(world, sink, rows=OTHER)
        sink.cleanup()

    for world in interleave(make_world, mode, other_job):
        whole = sorted(expected(mode) + rows_in(OTHER))
        # A dynamic overwrite that comes second replaces what it touches, also of the other job.
        replaced = expected(mode, {**OLD, **OTHER}) if mode != "append" else whole
        assert rows_of(world) in (whole, replaced)


@pytest.mark.parametrize("other_mode", ["append", "overwrite"])
def test_overwrite_after_another_job_died_in_its_commit_puts_it_wholly_before_or_after(
    make_world: MakeWorld, other_mode: str
) -> None:
    for n in count(1):
        world = make_world()
        for name, text in OLD.items():
            world.put(name, text)
        try:
            with world.trip.armed(n):
                run(world, sink_of(world, other_mode, job_id=OTHER_JOB), rows=OTHER)
            break
        except Crash:
            sink = sink_of(world, "overwrite")
            run(world, sink)
            sink.cleanup()
            assert rows_of(world) == rows_in(NEW)
            other = sink_of(world, other_mode, job_id=OTHER_JOB)
            decided = any(name.endswith("/commit.json") for name in world.files())
            run(world, other, attempt=2, rows=OTHER)
            other.cleanup()
            after = expected(other_mode, NEW, OTHER)
            assert rows_of(world) == (rows_in(NEW) if decided else after)
            assert ours(world) == set()


def _skip_the_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLog, "decide", lambda _, record: record)


def _remove_before_the_move(patch: pytest.MonkeyPatch) -> None:
    move, remove = CommitLog._move, CommitLog._remove
    patch.setattr(CommitLog, "_move", lambda self, record: (remove(self, record), move(self, record)))
    patch.setattr(CommitLog, "_remove", lambda self, record: None)


def _done_before_the_move(patch: pytest.MonkeyPatch) -> None:
    from firesteel.sinks.record import encode_done

    move = CommitLog._move

    def early(self: CommitLog, record: CommitRecord) -> None:
        self._store.write(f"{self.directory}/done", encode_done(record.committed))
        move(self, record)

    patch.setattr(CommitLog, "_move", early)


def _forget_to_move_again(patch: pytest.MonkeyPatch) -> None:
    """Roll forward as if a record meant that its files are in place."""
    patch.setattr(StagedFileSink, "_finish", lambda self, record, attempt=None: record.committed)


def _abandon_without_a_decision(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StagedFileSink, "_settle_or_abandon", StagedFileSink._settle)


def _ignore_begun(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLog, "has_begun", lambda self, attempt: True)


def _ignore_other_commits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StagedFileSink, "_finish_others", lambda self: False)


def _keep_checksums(patch: pytest.MonkeyPatch) -> None:
    from firesteel.sinks import plan

    real = plan.replaced_files
    patch.setattr(plan, "replaced_files", lambda *a: tuple(p for p in real(*a) if not p.endswith(".crc")))


def _crash_suite(make_world: MakeWorld) -> None:
    for mode in ["overwrite", "append"]:
        for recovery in RECOVERIES:
            exhaust(make_world, mode, recovery)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[MakeWorld], None]]] = [
    (_skip_the_record, _crash_suite),
    (_remove_before_the_move, _crash_suite),
    (_done_before_the_move, _crash_suite),
    (_forget_to_move_again, _crash_suite),
    (_keep_checksums, _crash_suite),
    (_abandon_without_a_decision, lambda w: test_abandon_that_is_overtaken_anywhere_by_a_late_commit(w, "append")),
    (_ignore_begun, test_zombie_with_no_rows_cannot_empty_the_target_after_an_abandon),
    (
        _ignore_other_commits,
        lambda w: test_overwrite_after_another_job_died_in_its_commit_puts_it_wholly_before_or_after(w, "append"),
    ),
]


@pytest.mark.parametrize(("break_it", "suite"), MUTANTS, ids=[m[0].__name__.strip("_") for m in MUTANTS])
def test_suite_notices_a_broken_protocol(
    make_world: MakeWorld,
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[pytest.MonkeyPatch], None],
    suite: Callable[[MakeWorld], None],
) -> None:
    break_it(monkeypatch)
    if break_it is _ignore_begun and make_world is not MemoryWorld:
        pytest.skip("with real directories, a record cannot be put where the clean-up was")
    with pytest.raises((AssertionError, CommitConflictError)):
        suite(make_world)
