"""`error` and `ignore`: a sink that writes only where nobody else has, and is still one sink for all attempts of its job."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from firesteel.errors import InvalidPipelineError
from firesteel.sinks import Begin

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sinks import sink_model as model
    from tests.sinks.sink_model import World
else:
    import sink_model as model

    World = model.World


def seed(world: World) -> None:
    for name, text in model.OLD.items():
        world.put(name, text)


def test_error_refuses_output_of_another_job_and_says_what_to_write(world: World) -> None:
    model.run(world, model.sink_of(world, "error", job_id=model.OTHER_JOB))
    before = world.files()
    with pytest.raises(InvalidPipelineError) as refused:
        model.sink_of(world, "error").begin(1)
    [problem] = refused.value.problems
    assert problem.vertex == model.VERTEX
    assert "already has output of another job" in problem.message
    for word in ("mode: append", "mode: overwrite", "mode: ignore"):
        assert word in problem.fix
    assert world.files() == before


def test_error_refuses_when_another_job_was_faster(world: World) -> None:
    """Both began while nothing was there."""
    sink = model.sink_of(world, "error")
    assert sink.begin(1) is Begin.RUN
    model.spark_writes(world, sink.staging_path(1))
    model.run(world, model.sink_of(world, "error", job_id=model.OTHER_JOB), rows=model.OTHER)
    with pytest.raises(InvalidPipelineError, match="output of another job"):
        sink.commit(1)
    sink.abandon()
    sink.cleanup()
    assert model.rows_of(world) == model.rows_in(model.OTHER)


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_directory_without_rows_is_written_to(world: World, mode: str) -> None:
    world.put("_temporary/0/x", "another Spark job")
    world.put(".hidden", "x")
    world.put("_SUCCESS", "")
    model.run(world, model.sink_of(world, mode))
    assert model.rows_of(world) == model.rows_in(model.NEW)


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_next_attempt_of_the_same_job_finds_its_own_rows_and_is_done(world: World, mode: str) -> None:
    model.run(world, model.sink_of(world, mode), attempt=1)
    assert model.sink_of(world, mode).begin(2) is Begin.ALREADY_COMMITTED


def test_ignore_leaves_what_is_there_and_writes_nothing(world: World) -> None:
    seed(world)
    sink = model.sink_of(world, "ignore")
    assert sink.begin(1) is Begin.IGNORED
    sink.cleanup()
    assert model.rows_of(world) == model.rows_in(model.OLD)
    assert model.ours(world) == set()


def test_ignore_leaves_what_came_while_spark_wrote(world: World) -> None:
    sink = model.sink_of(world, "ignore")
    assert sink.begin(1) is Begin.RUN
    model.spark_writes(world, sink.staging_path(1))
    model.run(world, model.sink_of(world, job_id=model.OTHER_JOB), rows=model.OTHER)
    assert sink.commit(1).files == 0
    sink.cleanup()
    assert model.rows_of(world) == model.rows_in(model.OTHER)


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_crash_at_every_call_then_a_new_attempt_has_rows_exactly_once(
    make_world: Callable[[], World], mode: str
) -> None:
    for n in count(1):
        world = make_world()
        try:
            with world.trip.armed(n):
                model.run(world, model.sink_of(world, mode), attempt=1)
            break
        except model.Crash:
            model.run(world, model.sink_of(world, mode), attempt=2)
        assert model.rows_of(world) == model.rows_in(model.NEW)
    assert n > 10
