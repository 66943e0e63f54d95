"""kill -9 of the control plane, again and again, while batch and streaming jobs run on a real engine (F1, I1, I2, I5, I8).

    python -m tests.chaos.kill_rounds --rounds 50 --report report.json

Everything is judged from outside the control plane: rows in the outputs, pids and start marks of drivers and engine, run ids of
the streaming queries, acknowledgements as the client heard them.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.client import NodeError, NodeGoneError, NodeProcess, eventually
from tests.support.engine_shape import SHAPE

from firesteel.engines.launcher import stop_engine
from firesteel.engines.record import EngineDirectory
from firesteel.processes import ProcessIdentity

ROWS = 150
"""Per batch job; with 20 ms each on two cores it runs for a second and a half, and for longer when it shares them."""


@dataclass
class Report:
    rounds: int = 0
    batch_jobs: int = 0
    streaming_jobs: int = 0
    rows_batch: int = 0
    rows_streamed: int = 0
    running_at_kill: int = 0
    """Attempts that ran at the moment of a kill, summed over the rounds."""
    submissions_cut_off: int = 0
    """Submissions whose node died before it answered, and that were repeated."""
    restarts: int = 0
    lost_jobs: int = 0
    wrong_outputs: list[str] = field(default_factory=list)
    changed_processes: list[str] = field(default_factory=list)
    not_clean: list[str] = field(default_factory=list)
    seconds_until_leading: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return not (self.restarts or self.lost_jobs or self.wrong_outputs or self.changed_processes or self.not_clean)

    def to_json(self) -> dict[str, Any]:
        times = sorted(self.seconds_until_leading)
        return {
            **{k: v for k, v in self.__dict__.items() if k != "seconds_until_leading"},
            "seconds_until_leading": {
                "p50": round(statistics.median(times), 2) if times else None,
                "max": round(times[-1], 2) if times else None,
            },
            "good": self.good,
        }


def batch_graph(out: Path) -> dict[str, Any]:
    query = f"SELECT id FROM range(0, {ROWS}, 1, 2) WHERE coalesce(reflect('java.lang.Thread', 'sleep', 20L), 'slept') <> ''"
    return {
        "name": "batch",
        "vertices": [
            {"kind": "sql", "name": "numbers", "query": query},
            {"kind": "sink", "name": "o", "input": "numbers", "format": "parquet", "path": str(out)},
        ],
    }


def stream_graph(source: Path, out: Path) -> dict[str, Any]:
    return {
        "name": "stream",
        "mode": "streaming",
        "vertices": [
            {"kind": "source", "name": "i", "format": "json", "path": str(source), "schema": "id BIGINT"},
            {
                "kind": "sink",
                "name": "o",
                "input": "i",
                "format": "parquet",
                "path": str(out),
                "trigger": "300 ms",
                "output_mode": "append",
            },
        ],
    }


class Feeder:
    """Writes files of numbers that a stream reads, each whole or not at all."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.next = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def _feed(self) -> None:
        while not self._stop.wait(0.4):
            self.write()

    def write(self) -> None:
        rows = range(self.next, self.next + 10)
        hidden = self.directory / f".{self.next}"
        hidden.write_text("".join(json.dumps({"id": i}) + "\n" for i in rows))
        hidden.rename(self.directory / f"{self.next:08}.json")
        self.next += 10

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def ids_in(directory: Path) -> list[int]:
    """The rows of a file output: those files that a commit made visible."""
    import pyarrow.parquet as pq

    log = directory / "_spark_metadata"
    if log.is_dir():
        named: dict[str, bool] = {}
        # A compacted entry holds all before it.
        for entry in sorted((e for e in log.iterdir() if not e.name.startswith(".")), key=lambda e: int(e.stem)):
            for line in entry.read_text().splitlines()[1:]:
                named[json.loads(line)["path"].removeprefix("file://")] = True
        files = [Path(f) for f in named]
    else:
        files = list(directory.glob("*.parquet"))
    return sorted(i for f in files for i in pq.read_table(f).column("id").to_pylist())


class Rounds:
    def __init__(self, root: Path, *, rounds: int, streams: int, seed: int, say: Callable[[str], None]) -> None:
        self.root = root
        self.rounds = rounds
        self.streams = streams
        self.random = random.Random(seed)
        self.say = say
        self.report = Report()
        self.options = {
            **SHAPE,
            "data.dir": str(root / "data"),
            "engine.max": "1",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.retainedJobs": "200",
        }
        self.jobs: dict[str, Path] = {}
        self.stream_jobs: dict[str, tuple[Feeder, Path]] = {}
        self.drivers: dict[str, ProcessIdentity] = {}
        self.runs: dict[str, dict[str, str]] = {}
        # Directories that are made beside that of the cluster while an engine runs are closed to it.
        for place in ("in", "out"):
            (root / place).mkdir(parents=True, exist_ok=True)
        self.node = self._start()

    def _start(self) -> NodeProcess:
        return NodeProcess(self.options, self.root / "node.log")

    @property
    def engines(self) -> EngineDirectory:
        return EngineDirectory(self.root / "data" / "clusters" / "default")

    # -- jobs -----------------------------------------------------------------------------------------------------

    def submit(self, graph: dict[str, Any]) -> str:
        """Until it is acknowledged, under one id, as a client should."""
        job_id, at = uuid.UUID(int=self.random.getrandbits(128)).hex, time.time()

        def once() -> bool:
            try:
                self.node.ask("submit", job_id=job_id, graph=graph, at=at)
            except NodeGoneError:
                self.report.submissions_cut_off += 1
                raise
            return True

        eventually(once, timeout=60, what=f"job {job_id} was not accepted")
        return job_id

    def submit_batch(self) -> None:
        out = self.root / "out" / f"batch-{len(self.jobs)}"
        self.jobs[self.submit(batch_graph(out))] = out
        self.report.batch_jobs += 1

    def submit_stream(self) -> None:
        n = len(self.stream_jobs)
        feeder, out = Feeder(self.root / "in" / f"stream-{n}"), self.root / "out" / f"stream-{n}"
        self.stream_jobs[self.submit(stream_graph(feeder.directory, out))] = (feeder, out)
        self.report.streaming_jobs += 1

    # -- watching -------------------------------------------------------------------------------------------------

    def look(self) -> int:
        """Note the driver of every running attempt; one that changed its process is a restart nobody asked for."""
        alive = 0
        for job_id in [*self.jobs, *self.stream_jobs]:
            attempts = self.root / "data" / "clusters" / "default" / "jobs" / job_id / "attempts"
            for directory in attempts.iterdir() if attempts.is_dir() else []:
                file = directory / "driver.json"
                if not file.exists():
                    continue
                try:
                    found = json.loads(file.read_text())
                except ValueError:
                    continue
                driver = ProcessIdentity(found["pid"], found["started"])
                alive += driver.alive
                key = f"{job_id}/{directory.name}"
                if self.drivers.setdefault(key, driver) != driver:
                    self.report.changed_processes.append(f"driver of {key}")
                if directory.name != "1":
                    self.report.restarts += 1
        return alive

    def check_runs(self) -> None:
        """The run id of a streaming query is drawn when it starts: the same one means that it never stopped."""
        for job_id in self.stream_jobs:
            runs = self.node.ask("job", job_id=job_id)["progress"].get("query_runs") or {}
            if runs and self.runs.setdefault(job_id, runs) != runs:
                self.report.changed_processes.append(f"query of {job_id}: {self.runs[job_id]} became {runs}")

    # -- the whole ------------------------------------------------------------------------------------------------

    def play(self) -> Report:
        began = time.monotonic()
        self.node.wait_until_leading()
        for _ in range(self.streams):
            self.submit_stream()
        self.submit_batch()
        eventually(self._all_stream, timeout=120, what="the streams do not run")
        [engine] = self.engines.alive()
        for number in range(1, self.rounds + 1):
            self._round(number)
        self._finish()
        if [e.process for e in self.engines.alive()] != [engine.process]:
            self.report.changed_processes.append("the engine")
        self._judge()
        self.report.seconds = round(time.monotonic() - began, 1)
        return self.report

    def _all_stream(self) -> bool | None:
        self.check_runs()
        return (
            True if len(self.runs) == self.streams and all(ids_ready(o) for _, o in self.stream_jobs.values()) else None
        )

    def _round(self, number: int) -> None:
        """Work beside a clock that kills at a random moment: before, in or after a submission, or while jobs end."""
        victim = self.node
        timer = threading.Timer(self.random.random() * 2.5, victim.process.kill)
        if self.random.random() < 0.4:
            # Some of the kills strike within the milliseconds of a submission.
            timer = threading.Timer(self.random.random() * 0.006, victim.process.kill)
            timer.start()
            self._submit_beside_the_clock()
        else:
            timer.start()
        while victim.process.poll() is None:
            open_jobs = sum(not (o / "_SUCCESS").exists() for o in self.jobs.values())
            if open_jobs < 3:
                self._submit_beside_the_clock()
            else:
                time.sleep(0.05)
        timer.join()
        self.report.running_at_kill += self.look()
        victim.kill()
        if self.random.random() < 0.3:
            time.sleep(self.random.random() * 2)  # jobs end while nobody watches
        self.node = self._start()
        self.report.seconds_until_leading.append(self.node.wait_until_leading())
        self.check_runs()
        self.report.rounds = number
        self.say(f"round {number}: {self.report.batch_jobs} batch jobs, {self.look()} drivers alive")

    def _submit_beside_the_clock(self) -> None:
        job_id, at = uuid.UUID(int=self.random.getrandbits(128)).hex, time.time()
        out = self.root / "out" / f"batch-{len(self.jobs)}"
        self.jobs[job_id] = out
        self.report.batch_jobs += 1
        graph = batch_graph(out)
        try:
            self.node.ask("submit", job_id=job_id, graph=graph, at=at)
            return
        except NodeGoneError:
            self.report.submissions_cut_off += 1
        # Whether it was stored nobody knows; a retry after the restart settles it (I4).
        threading.Thread(target=self._submit_again, args=(job_id, graph, at), daemon=True).start()

    def _submit_again(self, job_id: str, graph: dict[str, Any], at: float) -> None:
        def once() -> bool:
            self.node.ask("submit", job_id=job_id, graph=graph, at=at)
            return True

        eventually(once, timeout=120, what=f"job {job_id} was not accepted")

    def _finish(self) -> None:
        for feeder, _ in self.stream_jobs.values():
            feeder.stop()

        def read(out: Path, wanted: int) -> bool | None:
            return True if len(ids_in(out)) >= wanted else None

        for feeder, out in self.stream_jobs.values():
            eventually(lambda f=feeder, o=out: read(o, f.next), timeout=90, what=f"{out} has not all rows")  # type: ignore[misc]
        for job_id in self.stream_jobs:
            self.node.ask("stop", job_id=job_id, trigger="end")
        for job_id in [*self.jobs, *self.stream_jobs]:
            try:
                result = self.node.ask("result", job_id=job_id, timeout=180)
            except NodeError as error:
                self.report.lost_jobs += 1
                self.say(f"job {job_id}: {error}")
                continue
            self.report.restarts += result["restarts"]
            if result["status"] != "FINISHED" or result["attempts"] != 1:
                self.report.wrong_outputs.append(f"job {job_id}: {result}")

        def clean() -> bool | None:
            jobs = [*self.jobs, *self.stream_jobs]
            return True if not any(self.node.ask("result", job_id=j)["dirty"] for j in jobs) else None

        try:
            eventually(clean, timeout=60, what="dirty results are left")
        except AssertionError as error:
            self.report.not_clean.append(str(error))
        self.node.end()

    def _judge(self) -> None:
        for job_id, out in self.jobs.items():
            found = ids_in(out)
            self.report.rows_batch += len(found)
            if found != list(range(ROWS)):
                self.report.wrong_outputs.append(f"batch {job_id}: {len(found)} rows, {len(set(found))} different ones")
        for job_id, (feeder, out) in self.stream_jobs.items():
            found = ids_in(out)
            self.report.rows_streamed += len(found)
            if found != list(range(feeder.next)):
                self.report.wrong_outputs.append(f"stream {job_id}: {len(found)} rows of {feeder.next}")

    def close(self) -> None:
        for feeder, _ in self.stream_jobs.values():
            feeder.stop()
        if self.node.process.poll() is None:
            self.node.kill()
        for driver in self.drivers.values():
            driver.signal(9)
        for record in self.engines.all():
            stop_engine(self.engines, record, grace=5)


def ids_ready(out: Path) -> bool:
    return (out / "_spark_metadata").is_dir()


def play(root: Path, *, rounds: int, streams: int, seed: int, say: Callable[[str], None]) -> Report:
    game = Rounds(root, rounds=rounds, streams=streams, seed=seed, say=say)
    try:
        return game.play()
    finally:
        game.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="firesteel-kill-") as root:
        report = play(
            Path(root), rounds=args.rounds, streams=args.streams, seed=args.seed, say=lambda t: print(t, flush=True)
        )
    text = json.dumps(report.to_json(), indent=1)
    print(text)
    if args.report:
        args.report.write_text(text + "\n")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
