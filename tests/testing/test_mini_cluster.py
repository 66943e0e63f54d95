"""A control plane in the process of a test, without Spark: what can be put in, and the levers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.waiting import until

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.client.errors import JobFailedError
from firesteel.errors import EngineStartError, ServiceStartError
from firesteel.failure import Failure, FailureKind
from firesteel.ha.memory import MemoryHighAvailabilityServices
from firesteel.jobmaster.executor import Deployment
from firesteel.status import JobStatus
from firesteel.testing import FakeEngines, FakeExecutor, MiniCluster, fails, runs_on

GRAPH = {
    "name": "one",
    "vertices": [
        {"kind": "sql", "name": "one", "query": "SELECT 1 AS x"},
        {"kind": "sink", "name": "out", "input": "one", "format": "noop", "mode": "overwrite"},
    ],
}
AGAIN = {**GRAPH, "settings": {"restart": {"type": "fixed-delay", "attempts": 1, "delay": "10 ms"}}}
BAD_ROW = Failure(FailureKind.DATA, "row 7 is no number", vertex="one")


def test_job_runs_from_rest_to_its_result_on_fakes() -> None:
    executor, engines = FakeExecutor(), FakeEngines()
    with MiniCluster(executor=executor, engines=engines) as cluster:
        result = cluster.client.submit(GRAPH).result(30)
        assert (result.status, result.attempts) == (JobStatus.FINISHED, 1)
        assert [engine.spec.master for engine in engines.started] == ["local[2]"]
    assert [deployment.attempt.job_id for deployment in executor.started] == [result.job_id]


def test_failover_adopts_what_runs() -> None:
    executor = FakeExecutor(runs_on)
    with MiniCluster(executor=executor, engines=FakeEngines()) as cluster:
        job = cluster.client.submit(GRAPH)
        until(lambda: job.status() is JobStatus.RUNNING, "it does not run")
        epoch = cluster.client.cluster_status().epoch
        cluster.fail_over()
        assert cluster.client.cluster_status().epoch == (epoch or 0) + 1
        until(lambda: job.status() is JobStatus.RUNNING, "it is not adopted")
        cluster.call(executor.end, job.job_id, AttemptResult(AttemptState.FINISHED, ended_at=time.time()))
        assert job.result(30).attempts == 1
    assert len(executor.started) == 1


def test_enricher_labels_the_failures_of_a_job() -> None:
    def team(failure: Failure) -> Mapping[str, str]:
        return {"team": "orders" if failure.vertex == "one" else "nobody"}

    with MiniCluster(executor=FakeExecutor(fails(BAD_ROW)), engines=FakeEngines(), enrichers=(team,)) as cluster:
        job = cluster.client.submit(GRAPH)
        with pytest.raises(JobFailedError, match="row 7 is no number"):
            job.result(30)
        [exception] = job.exceptions()
        assert exception.labels == {"type": "DATA_ERROR", "team": "orders"}


def test_outcome_may_depend_on_the_attempt() -> None:
    def first_fails(deployment: Deployment) -> AttemptResult:
        if deployment.attempt.number == 1:
            return AttemptResult(AttemptState.FAILED, BAD_ROW, time.time())
        return AttemptResult(AttemptState.FINISHED, ended_at=time.time())

    with MiniCluster(executor=FakeExecutor(first_fails), engines=FakeEngines()) as cluster:
        result = cluster.client.submit(AGAIN).result(30)
        assert (result.attempts, result.restarts) == (2, 1)


def test_engine_that_is_lost_costs_an_attempt() -> None:
    engines = FakeEngines()
    executor = FakeExecutor(lambda deployment: None if deployment.attempt.number == 1 else finished())
    options = {"heartbeat.interval": "50 ms", "heartbeat.timeout": "200 ms"}
    with MiniCluster(options, executor=executor, engines=engines) as cluster:
        job = cluster.client.submit(AGAIN)
        until(lambda: executor.started, "it does not run")
        cluster.call(engines.lose, engines.started[0].engine_id)
        assert job.result(30).attempts == 2
        assert len(engines.started) == 2


def finished() -> AttemptResult:
    return AttemptResult(AttemptState.FINISHED, ended_at=time.time())


def test_engine_that_does_not_start_is_told() -> None:
    engines = FakeEngines()
    engines.start_errors = [EngineStartError("no memory is left")] * 10
    with MiniCluster(executor=FakeExecutor(), engines=engines) as cluster:
        result = cluster.client.submit(GRAPH).wait(30)
        assert result.failure is not None
        assert (result.failure.kind, result.status) == (FailureKind.ENGINE_START, JobStatus.FAILED)
        assert "no memory is left" in result.failure.message


def test_jobs_that_still_run_are_cancelled_when_the_cluster_is_closed() -> None:
    executor = FakeExecutor(runs_on)
    with MiniCluster(executor=executor, engines=FakeEngines()) as cluster:
        job = cluster.client.submit(GRAPH)
        until(lambda: executor.started, "it does not run")
    assert not cluster.scratch.exists()
    [fake] = executor._attempts.values()
    assert fake.ended.result().state is AttemptState.CANCELED
    assert fake.deployment.attempt.job_id == job.job_id


def test_user_s_own_settings_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRESTEEL_ENGINE_SLOTS", "3")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "firesteel").mkdir()
    (tmp_path / "firesteel" / "config.yaml").write_text("engine.slots: 4\n")
    for options, slots in (({}, 8), ({"engine.slots": "5"}, 5)):
        with contextlib.closing(MiniCluster(options)) as cluster:
            assert cluster.configuration.engine.slots == slots


def test_part_that_cannot_start_is_named() -> None:
    with pytest.raises(ServiceStartError, match="high-availability services"):
        MiniCluster({"high-availability.type": "no_such_module:open_backend"}).start()


def test_error_that_is_fatal_to_the_node_is_raised_when_it_is_closed() -> None:
    cluster = MiniCluster(executor=FakeExecutor(), engines=FakeEngines())
    cluster.start()
    assert cluster._node is not None
    cluster.call(cluster._node.on_fatal, RuntimeError("the store lied"))
    with pytest.raises(RuntimeError, match="the store lied"):
        cluster.close()


def test_backend_without_levers_says_so() -> None:
    backend = MemoryHighAvailabilityServices()
    with contextlib.closing(MiniCluster(ha=backend)) as cluster, pytest.raises(TypeError, match="cannot be controlled"):
        _ = cluster.ha
