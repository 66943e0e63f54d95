"""A leader and its workers: registration, commands, ends, failover, silence. Without processes, hosts or HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fleet.fleet_desk import HEARTBEAT, FakeWorker, FleetDesk, Leadership, eventually

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.errors import FencingError, WorkerLostError, WorkerStateError
from firesteel.failure import FailureKind
from firesteel.fleet.view import Standing
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.executor import Deployment, Presence
from firesteel.processes import ProcessIdentity
from firesteel.rpc.calls import deployment_args, deployment_of
from firesteel.rpc.messages import Command, CommandAnswer, Heard, WorkerReport, plain, raw
from firesteel.types import AttemptId, new_job_id

GRAPH = JobGraph.model_validate(
    {
        "name": "nothing",
        "vertices": [
            {"name": "one", "kind": "sql", "query": "SELECT 1"},
            {"name": "out", "kind": "sink", "input": "one", "format": "noop", "delivery": "at-least-once"},
        ],
    }
)
FINISHED = AttemptResult(AttemptState.FINISHED, ended_at=1.0)


Scene = Callable[..., Coroutine[Any, Any, None]]


def scene(play: Scene) -> Callable[..., None]:
    """A test that is played in an event loop of its own, with a desk."""

    def test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async def whole() -> None:
            desk = FleetDesk(tmp_path)
            try:
                await (play(desk, monkeypatch) if "monkeypatch" in signature(play).parameters else play(desk))
            finally:
                await desk.close()

        asyncio.run(whole(), debug=True)

    test.__name__, test.__doc__ = play.__name__, play.__doc__
    return test


async def started(leader: Leadership, worker: FakeWorker) -> AttemptId:
    attempt = AttemptId(new_job_id(), 1)
    leader.executor.place(attempt, worker.id)
    await leader.executor.start(Deployment(attempt, GRAPH, None, owner="somebody"))
    return attempt


def standing(leader: Leadership, worker: FakeWorker) -> Standing | None:
    return next((view.standing for view in leader.fleet.workers() if view.worker == worker.id), None)


@scene
async def test_an_attempt_is_started_on_its_worker(desk: FleetDesk) -> None:
    leader, worker = await desk.elect(), await desk.worker()
    attempt = await started(leader, worker)
    assert [d.attempt for d in worker.executor.started] == [attempt]
    assert worker.executor.started[0].graph == GRAPH


def test_a_deployment_is_the_same_on_the_other_side_of_the_wire() -> None:
    engine = EngineRecord("e1", EngineSpec("local[2]"), "localhost", 15002, token="t", process=ProcessIdentity(1, "2"))
    sent = Deployment(
        AttemptId(new_job_id(), 3), GRAPH, engine, owner="ann", restricted=True, environment={"TOKEN": "x"}, given_up=2
    )
    assert deployment_of(plain(raw(deployment_args(sent)))) == sent
    assert {f.name for f in fields(Deployment)} == {
        "attempt",
        "graph",
        "engine",
        "owner",
        "restricted",
        "environment",
        "given_up",
    }


@scene
async def test_the_end_of_an_attempt_is_told(desk: FleetDesk) -> None:
    leader, worker = await desk.elect(), await desk.worker()
    attempt = await started(leader, worker)
    waiting = asyncio.ensure_future(leader.executor.wait(attempt))
    worker.executor.end(attempt.job_id, FINISHED)
    assert await waiting == FINISHED


@scene
async def test_attempts_of_a_worker_that_lives_are_adopted_by_the_next_leader(desk: FleetDesk) -> None:
    """I8: nothing restarts, and an end that nobody watched is told."""
    leader, worker = await desk.elect(), await desk.worker()
    running, ended = await started(leader, worker), await started(leader, worker)
    await desk.depose()
    worker.executor.end(ended.job_id, FINISHED)
    leader = await desk.elect()
    for attempt in (running, ended):
        leader.executor.place(attempt, worker.id)
    assert await leader.executor.find(running) is Presence.RUNNING
    assert await leader.executor.find(ended) is Presence.ENDED
    assert await leader.executor.wait(ended) == FINISHED
    assert len(worker.executor.started) == 2


@scene
async def test_a_worker_process_that_is_started_again_has_what_the_one_before_it_had(desk: FleetDesk) -> None:
    leader, worker = await desk.elect(), await desk.worker()
    attempt = await started(leader, worker)
    waiting = asyncio.ensure_future(leader.executor.wait(attempt))
    await worker.kill()
    await worker.start()
    await eventually(lambda: standing(leader, worker) is Standing.CONNECTED)
    worker.executor.end(attempt.job_id, FINISHED)
    assert await waiting == FINISHED
    assert len(worker.executor.started) == 1


@scene
async def test_a_result_is_kept_until_a_leader_has_heard_it(desk: FleetDesk) -> None:
    leader, worker = await desk.elect(), await desk.worker()
    attempt = await started(leader, worker)
    waiting = asyncio.ensure_future(leader.executor.wait(attempt))
    worker.line.break_off()
    worker.executor.end(attempt.job_id, FINISHED)
    await asyncio.sleep(3 * HEARTBEAT)
    assert not waiting.done()
    worker.line.heal()
    assert await waiting == FINISHED


@scene
async def test_an_answer_that_was_lost_is_given_again_and_nothing_is_done_twice(desk: FleetDesk) -> None:
    """The command arrives, its answer does not; the same process is asked again."""
    leader, worker = await desk.elect(), await desk.worker()
    assert worker.service is not None
    await eventually(lambda: standing(leader, worker) is Standing.CONNECTED)
    worker.line.up = False  # commands still come; reports do not go
    attempt = AttemptId(new_job_id(), 1)
    leader.executor.place(attempt, worker.id)
    starting = asyncio.ensure_future(leader.engines.start(EngineSpec("local[1]"), worker.id))
    await eventually(lambda: len(worker.engines.started) == 1)
    worker.line.break_off()
    worker.line.heal()
    record = await starting
    assert record.worker == worker.id
    assert len(worker.engines.started) == 1


@scene
async def test_a_worker_obeys_no_leader_of_an_earlier_epoch_also_after_its_restart(
    desk: FleetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I28."""
    await desk.elect()
    worker = await desk.worker()
    first = desk.current
    assert first is not None
    await eventually(lambda: standing(first, worker) is Standing.CONNECTED)
    second = await desk.elect()
    await eventually(lambda: standing(second, worker) is Standing.CONNECTED)
    await worker.kill()
    await worker.start()
    assert worker.service is not None
    await eventually(lambda: standing(second, worker) is Standing.CONNECTED)
    late = Command(77, 1, worker.service.info.incarnation, "start_engine", raw({"spec": {"master": "local[1]"}}))
    told: list[CommandAnswer] = []

    def heard(_: str, report: WorkerReport) -> Heard:
        told.extend(report.answers)
        return Heard(2)

    monkeypatch.setattr(desk.leader, "report", heard)
    worker.service.receive(late)
    await eventually(lambda: [a.id for a in told] == [77])
    assert told[0].failure is not None
    assert told[0].failure.kind == "FencingError"
    assert worker.engines.started == []


@scene
async def test_a_leader_takes_no_worker_that_has_obeyed_a_later_one(desk: FleetDesk) -> None:
    leader, worker = await desk.elect(), await desk.worker()
    await eventually(lambda: standing(leader, worker) is Standing.CONNECTED)
    assert worker.service is not None
    registration = await worker.service.registration()
    with pytest.raises(FencingError, match="has obeyed epoch 9"):
        await leader.fleet.register(replace(registration, obeyed=9))


@scene
async def test_a_leader_that_is_not_certain_to_lead_answers_no_worker(desk: FleetDesk) -> None:
    """I7: the answer would let the worker run on, while the next leader waits for its end."""
    leader, worker = await desk.elect(), await desk.worker()
    await eventually(lambda: standing(leader, worker) is Standing.CONNECTED)
    assert worker.service is not None
    leader.guarded.append(FencingError("the lease may be over"))
    with pytest.raises(FencingError):
        leader.fleet.report(worker.id, WorkerReport(worker.service.info.incarnation, 1))


@scene
async def test_a_silent_worker_is_given_no_job_and_is_not_given_up_before_its_time(desk: FleetDesk) -> None:
    leader, worker = await desk.elect(), await desk.worker(seconds=60.0)
    attempt = await started(leader, worker)
    waiting = asyncio.ensure_future(leader.executor.wait(attempt))
    worker.line.break_off()
    await eventually(lambda: not leader.resources.offers[worker.id].accepting)
    assert standing(leader, worker) is Standing.SILENT
    assert not waiting.done()
    assert leader.resources.lost == {}
    waiting.cancel()


@scene
async def test_a_worker_that_is_cut_off_ends_everything_before_its_leader_gives_it_up(
    desk: FleetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I27."""
    monkeypatch.setattr("firesteel.fleet.contact.MARGIN_SECONDS", 0.3)
    leader, worker = await desk.elect(), await desk.worker(seconds=0.6)
    attempt = await started(leader, worker)
    record = await leader.engines.start(EngineSpec("local[1]"), worker.id)
    waiting = asyncio.ensure_future(leader.executor.wait(attempt))
    worker.line.break_off(down=True)
    stopped_at: list[float] = []
    ended = worker.executor.wait(attempt)

    async def note() -> None:
        await ended
        stopped_at.append(time.monotonic())

    noting = asyncio.ensure_future(note())
    result = await waiting
    given_up_at = time.monotonic()
    await noting
    assert stopped_at[0] < given_up_at
    assert worker.engines.alive == ()
    assert worker.held.isolated == [attempt]
    assert result.failure is not None
    assert result.failure.kind is FailureKind.WORKER_LOST
    assert worker.id in leader.resources.lost
    fenced = await leader.executor.fence(attempt, guard=leader.guard)
    assert fenced.state is AttemptState.CANCELED
    assert fenced.given_up
    with pytest.raises(WorkerLostError):
        await leader.fleet.call(worker.id, "engine_health", {"record": record.as_json()})


@scene
async def test_a_worker_whose_reports_arrive_but_are_not_answered_stops_too(
    desk: FleetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A one-way partition (F28): the leader hears it, and it does not hear the leader."""
    monkeypatch.setattr("firesteel.fleet.contact.MARGIN_SECONDS", 0.3)
    leader, worker = await desk.elect(), await desk.worker(seconds=0.5)
    attempt = await started(leader, worker)
    worker.line.break_off(up=True, down=False)
    result = await worker.executor.wait(attempt)
    assert result.state is AttemptState.CANCELED
    await leader.executor.wait(attempt)


@scene
async def test_a_worker_that_runs_on_is_given_up_only_when_somebody_says_so(desk: FleetDesk) -> None:
    leader, worker = await desk.elect(), await desk.worker(policy="run-on", seconds=0.2)
    attempt = await started(leader, worker)
    with pytest.raises(WorkerStateError, match="is connected and well"):
        await leader.fleet.declare_lost(worker.id, "admin")
    worker.line.break_off()
    await eventually(lambda: standing(leader, worker) is Standing.SILENT)
    await asyncio.sleep(0.5)
    assert await worker.executor.find(attempt) is Presence.RUNNING
    assert standing(leader, worker) is Standing.SILENT
    await leader.fleet.declare_lost(worker.id, "admin")
    assert (await leader.executor.wait(attempt)).failure is not None
    # The next leader believes it too.
    leader = await desk.elect()
    assert standing(leader, worker) is Standing.LOST


@scene
async def test_what_a_worker_still_runs_when_it_comes_back_after_it_was_given_up_is_ended(desk: FleetDesk) -> None:
    leader, worker = await desk.elect(), await desk.worker(policy="run-on")
    attempt = await started(leader, worker)
    leader.fleet.recovered(lambda _: True)
    worker.line.break_off()
    await eventually(lambda: standing(leader, worker) is Standing.SILENT)
    await leader.fleet.declare_lost(worker.id, "admin")
    worker.line.heal()
    assert (await worker.executor.wait(attempt)).state is AttemptState.CANCELED
    assert (await leader.executor.wait(attempt)).state is AttemptState.FAILED


@scene
async def test_a_new_leader_waits_for_a_worker_from_its_own_election_on(
    desk: FleetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader before it may have answered the worker until the last moment."""
    monkeypatch.setattr("firesteel.fleet.contact.MARGIN_SECONDS", 0.1)
    leader, worker = await desk.elect(), await desk.worker(seconds=0.5)
    attempt = await started(leader, worker)
    await worker.kill()
    began = time.monotonic()
    leader = await desk.elect()
    leader.executor.place(attempt, worker.id)
    assert standing(leader, worker) is Standing.EXPECTED
    assert await leader.executor.find(attempt) is Presence.ENDED
    assert time.monotonic() - began >= 0.6
    assert (await leader.executor.wait(attempt)).state is AttemptState.FAILED


@scene
async def test_files_of_forgotten_jobs_are_removed_when_a_worker_comes_back(desk: FleetDesk) -> None:
    """I12."""
    leader, worker = await desk.elect(), await desk.worker()
    kept, forgotten = await started(leader, worker), await started(leader, worker)
    for attempt in (kept, forgotten):
        worker.executor.end(attempt.job_id, FINISHED)
        await leader.executor.wait(attempt)
    leader = await desk.elect()
    leader.fleet.recovered(lambda job_id: job_id == kept.job_id)
    await eventually(lambda: worker.held.removed == [forgotten.job_id])


@scene
async def test_a_draining_worker_takes_nothing_new_also_under_the_next_leader(desk: FleetDesk) -> None:
    leader, worker = await desk.elect(), await desk.worker()
    await eventually(lambda: worker.id in leader.resources.offers and leader.resources.offers[worker.id].accepting)
    await leader.fleet.drain(worker.id)
    assert not leader.resources.offers[worker.id].accepting
    leader = await desk.elect()
    await eventually(lambda: standing(leader, worker) is Standing.CONNECTED)
    assert not leader.resources.offers[worker.id].accepting
    await leader.fleet.undrain(worker.id)
    assert leader.resources.offers[worker.id].accepting
