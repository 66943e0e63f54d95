"""How long hand-overs take under load: `python -m tests.entrypoint.measure_handover sqlite|zookeeper|postgresql [tries]`."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
from pathlib import Path

from tests.entrypoint.node_cluster import NodeCluster, submitting
from tests.support.postgresql import servers
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer


def options(backend: str, directory: Path, opened: contextlib.ExitStack) -> dict[str, str]:
    if backend == "zookeeper":
        (directory / "zookeeper").mkdir()
        server = opened.enter_context(ZooKeeperServer(directory / "zookeeper", tick_ms=2000))
        return {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": server.hosts,
            "high-availability.storageDir": str(directory / "storage"),
        }
    if backend == "postgresql":
        return {"high-availability.sql.url": opened.enter_context(servers()).url}
    return {}


def main(backend: str, tries: int) -> None:
    with contextlib.ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        cluster = NodeCluster(directory, options(backend, directory, opened))
        opened.callback(cluster.close)
        for _ in range(3):
            cluster.start()
        cluster.leader()
        seconds = []
        with submitting(cluster) as seen, cluster.client() as client:
            for _ in range(tries):
                enough = len(seen.acknowledged) + 5
                until(lambda enough=enough: len(seen.acknowledged) >= enough, lambda: "no progress")  # type: ignore[misc]
                seconds.append(client.hand_over().seconds)
        with cluster.client() as client:
            jobs = [j.job_id for j in client.jobs()]
        kept = "all" if sorted(jobs) == sorted(seen.acknowledged) else "NOT ALL"
        shown = " ".join(f"{s:.2f}" for s in seconds)
        print(f"{backend}: {shown} s; median {statistics.median(seconds):.2f}, load average {os.getloadavg()[0]:.0f}")
        print(
            f"{len(seen.acknowledged)} submissions, {kept} there once; {len(seen.errors)} errors; "
            f"slowest request {seen.slowest:.2f} s"
        )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10)
