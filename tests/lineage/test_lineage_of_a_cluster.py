"""A cluster that tells of its jobs: in a file, and to an endpoint that is down for a while."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lineage.test_openlineage_events import check

from firesteel.failure import Failure, FailureKind
from firesteel.testing import FakeEngines, FakeExecutor, MiniCluster, fails, runs_on

GRAPH = {
    "name": "orders",
    "vertices": [
        {"kind": "source", "name": "raw", "format": "csv", "path": "/in/orders.csv", "schema": "id INT, amount DOUBLE"},
        {
            "kind": "sink",
            "name": "out",
            "input": "raw",
            "format": "noop",
            "mode": "overwrite",
            "options": {"url": "jdbc:postgresql://me:hunter2@host/shop", "dbtable": "t", "password": "hunter2"},
        },
    ],
}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def events(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_start_and_end_of_jobs_reach_the_file_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "lineage.jsonl"
    failing = FakeExecutor(fails(Failure(FailureKind.DATA, "password=hunter2 is wrong", vertex="raw")))
    with MiniCluster({"lineage.file": str(file)}, executor=failing, engines=FakeEngines()) as cluster:
        job = cluster.client.submit(GRAPH)
        job.wait(60)
        until(lambda: "FAIL" in [e["eventType"] for e in events(file)])
    for event in events(file):
        check(event)
        assert event["run"]["runId"].replace("-", "") == job.job_id
    assert {e["eventType"] for e in events(file)} >= {"FAIL"}
    assert "hunter2" not in file.read_text()
    last = events(file)[-1]
    assert last["outputs"][0]["namespace"] == "postgresql://host"
    assert list(last["outputs"][0]["facets"]["columnLineage"]["fields"]) == ["id", "amount"]


def test_end_is_told_after_a_change_of_leader_though_the_endpoint_was_down(tmp_path: Path) -> None:
    """The directory of the file is in the way at first; job and clean-up do not wait for it."""
    file = tmp_path / "dir" / "lineage.jsonl"
    (tmp_path / "dir").write_text("in the way")
    executor = FakeExecutor(runs_on)
    with MiniCluster({"lineage.file": str(file)}, executor=executor, engines=FakeEngines()) as cluster:
        job = cluster.client.submit(GRAPH)
        until(lambda: job.status().value == "RUNNING")
        job.cancel()
        assert job.wait(60).status.value == "CANCELED"
        cluster.fail_over()
        assert job.status().value == "CANCELED"
        (tmp_path / "dir").unlink()
        until(lambda: "ABORT" in [e["eventType"] for e in events(file)])
        check(events(file)[-1])
