"""Real nodes, a real engine, real signals."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos import kill_rounds
from tests.chaos.client import NodeError, NodeGoneError, NodeProcess, eventually
from tests.chaos.kill_rounds import Feeder, batch_graph, ids_in, stream_graph
from tests.support.engine_shape import SHAPE

from firesteel.engines.launcher import stop_engine
from firesteel.engines.record import EngineDirectory
from firesteel.hosts import this_user
from firesteel.sandbox.owners import below

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("chaos")]

LEASE = 6.0


class RealCluster:
    """Nodes over one data directory; the engine that they share outlives them, and ends with the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.nodes: list[NodeProcess] = []
        self.engines = EngineDirectory(root / "data" / "clusters" / "default")

    def start(self, **options: str) -> NodeProcess:
        node = NodeProcess(
            {
                **SHAPE,
                "data.dir": str(self.root / "data"),
                "engine.max": "1",
                "spark.sql.shuffle.partitions": "2",
                "high-availability.lease-duration": f"{LEASE:g} s",
                **options,
            },
            self.root / f"node-{len(self.nodes)}.log",
        )
        self.nodes.append(node)
        return node

    def attempts(self, job_id: str) -> Path:
        return self.root / "data" / "clusters" / "default" / "jobs" / job_id / "attempts"

    def close(self) -> None:
        for node in self.nodes:
            if node.process.poll() is None:
                os.kill(node.pid, signal.SIGCONT)
                node.kill()
        for record in self.engines.all():
            stop_engine(self.engines, record, grace=5)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealCluster]:
    made = RealCluster(tmp_path)
    yield made
    made.close()


def submit(node: NodeProcess, graph: dict[str, object]) -> str:
    job_id = uuid.uuid4().hex
    node.ask("submit", job_id=job_id, graph=graph, at=time.time())
    return job_id


def test_kill_rounds(tmp_path: Path) -> None:
    """I8: the control plane dies six times, and no job notices. `python -m tests.chaos.kill_rounds` plays many more."""
    said: list[str] = []
    report = kill_rounds.play(tmp_path, rounds=6, streams=1, seed=11, say=said.append)
    assert report.good, (report.to_json(), said)
    assert report.rounds == 6
    assert report.running_at_kill >= 6
    assert report.batch_jobs >= 3


def test_leader_that_was_stopped_past_its_lease_does_nothing(real: RealCluster, tmp_path: Path) -> None:
    """F4, I7: another node leads and runs the jobs; the old one wakes up, and is no leader."""
    first = real.start()
    first.wait_until_leading()
    feeder = Feeder(tmp_path / "in")
    try:
        stream = submit(first, stream_graph(feeder.directory, tmp_path / "stream"))
        running = eventually(
            lambda: first.ask("job", job_id=stream)["progress"].get("query_runs") or None,
            timeout=90,
            what="the stream does not run",
        )
        batch = submit(first, batch_graph(tmp_path / "batch"))
        second = real.start()
        eventually(
            lambda: True if (real.attempts(batch) / "1" / "driver.json").exists() else None,
            timeout=30,
            what="no driver",
        )
        os.kill(first.pid, signal.SIGSTOP)
        second.wait_until_leading(60)
        assert second.ask("result", job_id=batch)["attempts"] == 1
        other = submit(second, batch_graph(tmp_path / "other"))
        os.kill(first.pid, signal.SIGCONT)
        with pytest.raises(NodeGoneError):
            first.ask("submit", job_id=uuid.uuid4().hex, graph=batch_graph(tmp_path / "never"), at=time.time())
        assert second.ask("result", job_id=other)["attempts"] == 1
        # The query is the one that the first leader started, and so is its attempt.
        assert second.ask("job", job_id=stream)["progress"]["query_runs"] == running
        assert [d.name for d in real.attempts(stream).iterdir()] == ["1"]
        feeder.stop()
        eventually(
            lambda: True if len(ids_in(tmp_path / "stream")) >= feeder.next else None,
            timeout=60,
            what="rows are missing",
        )
        second.ask("stop", job_id=stream, trigger="t")
        assert second.ask("result", job_id=stream)["stopped"] is True
        assert ids_in(tmp_path / "stream") == list(range(feeder.next))
    finally:
        feeder.stop()
    assert not (tmp_path / "never").exists()
    assert ids_in(tmp_path / "batch") == ids_in(tmp_path / "other") == list(range(kill_rounds.ROWS))
    assert len(real.engines.alive()) == 1


def test_life_of_jobs_on_a_real_engine(real: RealCluster, tmp_path: Path) -> None:
    """Cancel within 10 s and for good (I10), checkpoint, restart after a killed driver, nothing left behind (I12)."""
    node = real.start()
    node.wait_until_leading()
    feeder = Feeder(tmp_path / "in")
    try:
        stream = submit(node, stream_graph(feeder.directory, tmp_path / "stream"))
        eventually(lambda: ids_in(tmp_path / "stream") or None, timeout=240, what="no output")
        node.ask("checkpoint", job_id=stream, trigger="c1")
        done = eventually(
            lambda: o if (o := node.ask("operation", job_id=stream, trigger="c1"))["status"] != "IN_PROGRESS" else None,
            timeout=30,
            what="the checkpoint does not end",
        )
        assert done["status"] == "COMPLETED"
        assert done["result"]["batches"]["o"] >= 0
        began = time.monotonic()
        node.ask("cancel", job_id=stream)
        assert node.ask("result", job_id=stream)["status"] == "CANCELED"
        assert time.monotonic() - began < 10
    finally:
        feeder.stop()
    with pytest.raises(NodeError, match="CANCELED"):
        node.ask("cancel", job_id=stream)

    graph = batch_graph(tmp_path / "batch")
    graph["settings"] = {"restart": {"type": "fixed-delay", "attempts": 1, "delay": "10 ms"}}
    batch = submit(node, graph)
    driver = eventually(
        lambda: json.loads(p.read_text()) if (p := real.attempts(batch) / "1" / "driver.json").exists() else None,
        timeout=30,
        what="no driver",
    )
    os.kill(driver["pid"], signal.SIGKILL)
    result = node.ask("result", job_id=batch)
    assert (result["status"], result["attempts"]) == ("FINISHED", 2)
    assert ids_in(tmp_path / "batch") == list(range(kill_rounds.ROWS))
    shown = node.ask("job", job_id=batch)
    assert [(e["attempt"], e["labels"]["type"]) for e in shown["exceptions"]] == [(1, "KILLED")]

    [engine] = real.engines.alive()
    assert engine.process is not None
    lost = submit(node, graph | {"name": "lost", "vertices": batch_graph(tmp_path / "lost")["vertices"]})
    eventually(
        lambda: True if (real.attempts(lost) / "1" / "driver.json").exists() else None, timeout=30, what="no driver"
    )
    os.kill(engine.process.pid, signal.SIGKILL)
    result = node.ask("result", job_id=lost, timeout=120)
    assert (result["status"], result["attempts"]) == ("FINISHED", 2)
    assert ids_in(tmp_path / "lost") == list(range(kill_rounds.ROWS))
    assert [e["labels"]["type"] for e in node.ask("job", job_id=lost)["exceptions"]] == ["ENGINE_LOST"]

    def clean() -> bool | None:
        return True if not any(node.ask("result", job_id=j)["dirty"] for j in (stream, batch, lost)) else None

    eventually(clean, timeout=30, what="dirty results are left")
    checkpoints = Path(below(str(tmp_path / "data" / "checkpoints"), this_user()))
    assert [p.name for p in checkpoints.iterdir()] == [stream], "what a stream has is kept (I30)"
    for job_id in (stream, batch, lost):
        for attempt in real.attempts(job_id).iterdir():
            # It holds the engine's token.
            assert not (attempt / "spec.json").exists()
    assert not [p for out in ("batch", "lost") for p in (tmp_path / out).iterdir() if "staging" in p.name.lower()]
    assert node.end() == 0
