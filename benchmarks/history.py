"""`python -m benchmarks.history`: a history server with 100,000 archived jobs.

It makes the archives, then starts the server twice: the first time it indexes them, the second time it has the index. Measured
are the first index, the second start from nothing (a new process, until it answers the first page), pages from the newest to
the oldest, a search that has to look at all jobs, the details of jobs all over the archive, and a refresh that finds nothing
new. Pages and details are asked for over HTTP, with a token, one after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from benchmarks.harness import Sample, console, say

from firesteel.client.local_token import ask_for_token
from firesteel.history.archives import ArchivedJobs
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.execution_graph import execution_graph
from firesteel.jobmaster.machine import JobState
from firesteel.status import JobStatus
from firesteel.stores.history import pack
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.types import JobID

JOBS = 100_000
PAGES = 40
START_BUDGET, PAGE_BUDGET = 5.0, 0.2
GRAPH = {
    "name": "orders",
    "vertices": [
        {"kind": "source", "name": f"in{n}", "format": "parquet", "path": f"/data/in{n}", "schema": "id INT, v DOUBLE"}
        for n in range(4)
    ]
    + [
        {"kind": "sql", "name": "joined", "query": "SELECT in0.id, in1.v FROM in0 JOIN in1 ON in0.id = in1.id"},
        {"kind": "sql", "name": "more", "query": "SELECT in2.id, in3.v FROM in2 JOIN in3 ON in2.id = in3.id"},
        {"kind": "sql", "name": "all", "query": "SELECT * FROM joined UNION ALL SELECT * FROM more"},
        {"kind": "sink", "name": "out", "input": "all", "format": "parquet", "path": "/data/out", "mode": "overwrite"},
    ],
}


def archive(number: int, graph: JobGraph) -> tuple[JobID, bytes]:
    job_id = JobID(f"{random.Random(number).getrandbits(128):032x}")
    at, owner = 1_700_000_000.0 + number * 3, f"team{number % 50}"
    status = JobStatus.FAILED if number % 20 == 0 else JobStatus.FINISHED
    submission = Submission(job_id, graph, at - 60, "digest", owner=owner)
    result = JobResult(job_id, f"orders {number}", status, None, at - 60, at - 59, at, 1, 0, "digest", owner=owner)
    details = execution_graph(submission, JobState(graph.settings.restart, attempt=1), {}, now=at, result=result)
    return job_id, pack(job_id, {**details, "name": result.name, "operations": []})


def make(directory: Path, count: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    graph = JobGraph.model_validate(GRAPH)
    for number in range(count):
        job_id, raw = archive(number, graph)
        (directory / f"{job_id}.json.gz").write_bytes(raw)


@contextlib.contextmanager
def server(root: Path, archives: Path) -> Iterator[tuple[str, float]]:
    """A history server in a process of its own: its address, and when it was started."""
    settings = {
        "data.dir": str(root / "data"),
        "historyserver.archive.fs.dir": str(archives),
        "historyserver.archive.fs.refresh-interval": "1 h",
        "historyserver.web.port": "0",
    }
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "firesteel.history", "--definitions-from-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(root)},
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(settings))
        process.stdin.close()
        said = process.stdout.readline().strip()
        yield said.rpartition(" ")[2].rstrip("."), began
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def client(root: Path, address: str) -> Iterator[httpx.Client]:
    announced = json.loads((root / "data" / "history-server" / "default" / "rest.json").read_text())
    token = ask_for_token(announced["socket"])
    with httpx.Client(
        base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=60, trust_env=False
    ) as asking:
        yield asking


def timed(asking: httpx.Client, path: str) -> tuple[float, httpx.Response]:
    began = time.monotonic()
    answer = asking.get(path)
    took = time.monotonic() - began
    assert answer.status_code == 200, (path, answer.text)
    return took, answer


def p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


async def refresh(root: Path, archives: Path) -> float:
    jobs = ArchivedJobs([str(archives)], root / "data" / "history-server" / "default")
    try:
        await jobs.open()
        began = time.monotonic()
        await jobs.refresh()
        return time.monotonic() - began
    finally:
        await jobs.close()


def main() -> None:
    import asyncio

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        archives = root / "archive"
        say(f"making {args.jobs} archives")
        make(archives, args.jobs)
        size = sum(f.stat().st_size for f in os.scandir(archives))
        say("first index")
        with server(root, archives) as (address, began), client(root, address) as asking:
            while asking.get("/jobs/overview").content.count(b'"jid"') < min(args.jobs, 10_000) or not _whole(
                asking, args.jobs
            ):
                time.sleep(0.2)
            first = time.monotonic() - began
        starts, pages, searches, details = [], [], [], []
        for round_ in range(args.rounds):
            say(f"round {round_ + 1}")
            with server(root, archives) as (address, began), client(root, address) as asking:
                timed(asking, "/history?limit=100")
                starts.append(time.monotonic() - began)
                before: int | None = None
                for _ in range(PAGES):
                    path = "/history?limit=100" + ("" if before is None else f"&before={before}")
                    took, answer = timed(asking, path)
                    pages.append(took)
                    rows = answer.json()["jobs"]
                    before = answer.json()["next"]
                    if not rows:
                        break
                    took, _ = timed(asking, f"/jobs/{rows[0]['jid']}")
                    details.append(took)
                    if before is not None:
                        before -= args.jobs // PAGES * 3000  # all over the archive
                words = ("99", "orders 1", "nothing is called so")
                searches += [timed(asking, f"/history?limit=100&search={w}")[0] for w in words]
        nothing_new = asyncio.run(refresh(root, archives))
    console.print(f"{args.jobs} archives, {size / args.jobs:.0f} bytes each on average")
    console.print(f"first index: {first:.1f} s")
    verdict = "holds" if max(starts) <= START_BUDGET else "DOES NOT HOLD"
    console.print(
        f"start with the index, to the first page: {Sample.of(starts).show(' s')} (budget {START_BUDGET:g} s: {verdict})"
    )
    verdict = "holds" if p99(pages) <= PAGE_BUDGET else "DOES NOT HOLD"
    console.print(
        f"a page of 100: median {statistics.median(pages) * 1000:.0f} ms, p99 {p99(pages) * 1000:.0f} ms "
        f"(budget {PAGE_BUDGET * 1000:g} ms: {verdict})"
    )
    console.print(f"a search through all: {Sample.of(searches).show(' ms', 0, 1000)}")
    console.print(f"a job: median {statistics.median(details) * 1000:.0f} ms, p99 {p99(details) * 1000:.0f} ms")
    console.print(f"a refresh that finds nothing new: {nothing_new:.2f} s")


def _whole(asking: httpx.Client, count: int) -> bool:
    overview = asking.get("/overview").json()
    return int(overview["jobs-finished"]) + int(overview["jobs-failed"]) >= count


if __name__ == "__main__":
    main()
