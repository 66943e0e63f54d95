"""A cluster that notifies, whatever its targets and leaders do."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.notifications.hook import receiving

from firesteel.failure import Failure, FailureKind
from firesteel.testing import FakeEngines, FakeExecutor, MiniCluster, fails

VERTICES = [
    {"kind": "sql", "name": "one", "query": "SELECT 1 AS x"},
    {"kind": "sink", "name": "out", "input": "one", "format": "noop", "mode": "overwrite"},
]
BAD_ROW = fails(Failure(FailureKind.DATA, "row 7 is no number", vertex="one"))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_failure_reaches_the_cluster_s_target_and_the_one_that_the_job_names() -> None:
    with receiving() as ops, receiving() as team:
        options = {
            "notifications.targets": f"ops={ops.url} team={team.url}",
            "notifications.to": "ops",
            "notifications.job-targets": "team",
            "notifications.secret": "s3cret",
        }
        with MiniCluster(options, executor=FakeExecutor(BAD_ROW), engines=FakeEngines()) as cluster:
            quiet = cluster.client.submit({"name": "quiet", "vertices": VERTICES})
            loud = cluster.client.submit(
                {"name": "loud", "vertices": VERTICES, "settings": {"notify": [{"to": "team"}, {"to": "nobody"}]}}
            )
            quiet.wait(60)
            loud.wait(60)
            until(lambda: len(ops.requests) == 2 and len(team.requests) == 1)
        assert {e["job"]["name"] for e in ops.events} == {"quiet", "loud"}
        assert [e["job"]["name"] for e in team.events] == ["loud"]
        assert team.events[0]["failure"]["message"] == "row 7 is no number"
        assert all("firesteel-signature" in headers for headers, _ in ops.requests)


def test_target_that_was_down_is_told_by_the_next_leader_under_the_same_id() -> None:
    with receiving() as ops:
        ops.status = 503
        options = {"notifications.targets": f"ops={ops.url}"}
        with MiniCluster(options, executor=FakeExecutor(BAD_ROW), engines=FakeEngines()) as cluster:
            cluster.client.submit({"name": "j", "vertices": VERTICES}).wait(60)
            until(lambda: len(ops.requests) >= 1)
            cluster.fail_over()
            seen = len(ops.requests)
            ops.status = 200
            until(lambda: len(ops.requests) > seen)
        assert len({e["id"] for e in ops.events}) == 1


def test_restart_loop_is_told() -> None:
    graph = {
        "name": "loop",
        "vertices": VERTICES,
        "settings": {"restart": {"type": "fixed-delay", "attempts": 4, "delay": "10 ms"}},
    }
    with receiving() as ops:
        options = {"notifications.targets": f"ops={ops.url}", "notifications.on": "restart-loop"}
        with MiniCluster(options, executor=FakeExecutor(BAD_ROW), engines=FakeEngines()) as cluster:
            cluster.client.submit(graph).wait(60)
            until(lambda: len(ops.requests) >= 1)
        assert {e["event"] for e in ops.events} == {"restart-loop"}
