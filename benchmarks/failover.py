"""What running jobs notice of a leader that dies, is paused, or gives its place away: `python -m benchmarks.failover`.

Three real nodes, a real store, and streaming jobs on real engines. Then kill -9 of the leader, several times; an ordered
hand-over under the load of clients that retry; and, with --pause, a leader that is stopped for three leases and wakes up.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
from benchmarks.failover_cluster import BACKENDS, Life, Nodes, store
from benchmarks.harness import Sample, machine, say, table

from firesteel.client.errors import JobCanceledError
from firesteel.errors import FiresteelError, JobStateError
from firesteel.types import new_job_id

READERS, SUBMITTERS = 3, 1
BUDGET_ADOPTED, BUDGET_ANSWER, BUDGET_HANDOVER = 2.0, 1.0, 1.5
SETTLE_SECONDS = 2.0
WAKE_SECONDS = 8.0
"""How long a leader that wakes up is watched."""

TRIVIAL = {
    "name": "trivial",
    "vertices": [
        {"kind": "sql", "name": "one", "query": "SELECT 1 AS x"},
        {"kind": "sink", "name": "nowhere", "input": "one", "format": "noop", "mode": "overwrite"},
    ],
}


def stream(number: int, trigger: float, *, restarts: bool = False) -> dict[str, Any]:
    return {
        "name": f"stream-{number}",
        "mode": "streaming",
        "settings": {"restart": {"type": "fixed-delay", "attempts": 3, "delay": "1 s"}} if restarts else {},
        "vertices": [
            {"kind": "source", "name": "i", "format": "rate", "options": {"rowsPerSecond": "1"}},
            {"kind": "sink", "name": "o", "input": "i", "format": "noop", "trigger": f"{trigger:g} s"},
        ],
    }


@dataclass
class Failover:
    """One kill of a leader; times in seconds after it, unless they say otherwise."""

    elected: float
    first_answer: float
    """The first answer of another node to a question about jobs."""
    all_running: float
    """All jobs RUNNING, as another node tells."""
    seen_reconciling: int
    """The most jobs that were told as RECONCILING at once."""
    adopted_after_election: float
    changed: list[str]
    """Processes, queries or attempts that are not the ones of before: must be empty."""


@dataclass
class Handover:
    without_service: float
    """The longest that any call of a client took."""
    control: float
    """The same for as long without a hand-over: what the machine itself makes of it."""
    reads: int
    submissions: int
    errors: list[str] = field(default_factory=list)
    lost_or_twice: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


@dataclass
class Pause:
    paused: float
    written: list[str]
    """Paths that changed in the store after the old leader woke up, which nobody had a reason to change."""
    started: list[str]
    """Spark job groups, drivers or engines that appeared after it woke up."""
    changed: list[str]


def differences(before: Life, after: Life, *, but: frozenset[str] = frozenset()) -> list[str]:
    found: list[str] = []
    for what in ("drivers", "runs", "attempts", "engines"):
        old, new = getattr(before, what), getattr(after, what)
        keys = {k for k in {*old, *new} if k.partition("/")[0] not in but}
        found += [f"{what} {k}: {old.get(k)} became {new.get(k)}" for k in sorted(keys) if old.get(k) != new.get(k)]
    return found


class Measurement:
    def __init__(self, nodes: Nodes, *, jobs: int, trigger: float, lease: float) -> None:
        self.nodes = nodes
        self.count = jobs
        self.trigger = trigger
        self.lease = lease
        self.jobs: set[str] = set()

    # -- jobs -----------------------------------------------------------------------------------------------------

    def submit(self) -> None:
        leader = self.nodes.leader()
        with self.nodes.client() as client:
            for number in range(self.count):
                # Spread, so that their batches do not fall on the same second.
                graph = stream(number, self.trigger + number % 7)
                self.jobs.add(client.submit(graph, upload=False).job_id)
        say(f"{self.count} streams submitted to node {leader}")
        last = -1

        def all_query() -> bool:
            nonlocal last
            runs = len(self.nodes.life(self.jobs).runs)
            if runs != last and runs % 10 == 0:
                say(f"{runs} queries run")
            last = runs
            time.sleep(0.5)
            if ended := [j for j in self.nodes.get(leader, "/jobs/overview")["jobs"] if j["end-time"] > 0]:
                raise RuntimeError(f"{len(ended)} streams ended before anything was measured: {ended[0]}")
            return runs == self.count

        self.nodes.until(all_query, "not all queries run", 60 + 20 * self.count)

    def running(self, number: int) -> tuple[int, int] | None:
        """How many of the jobs are RUNNING and RECONCILING, as a node tells; None when it does not answer."""
        answer = self.nodes.get(number, "/jobs/overview")
        if answer is None:
            return None
        states = [j["state"] for j in answer["jobs"] if j["jid"] in self.jobs]
        return states.count("RUNNING"), states.count("RECONCILING")

    # -- kill -9 --------------------------------------------------------------------------------------------------

    def kill(self) -> Failover:
        nodes = self.nodes
        leader = nodes.leader()
        before, epoch = nodes.life(self.jobs), max(nodes.granted())
        others = [n for n in range(len(nodes.ports)) if n != leader]
        process = nodes.process(leader)
        killed_at, killed = time.time(), time.monotonic()
        process.kill()
        first = all_running = 0.0
        reconciling = 0
        while not all_running:
            for number in others:
                if (told := self.running(number)) is not None:
                    first = first or time.monotonic() - killed
                    reconciling = max(reconciling, told[1])
                    if told[0] == self.count:
                        all_running = time.monotonic() - killed
                        break
            if time.monotonic() - killed > 120:
                raise TimeoutError("the jobs were not taken over")
            time.sleep(0.01)
        granted = nodes.granted()[epoch + 1][1]
        nodes.restart(leader)
        time.sleep(SETTLE_SECONDS)
        return Failover(
            elected=granted - killed_at,
            first_answer=first,
            all_running=all_running,
            seen_reconciling=reconciling,
            adopted_after_election=all_running - (granted - killed_at),
            changed=differences(before, nodes.life(self.jobs)),
        )

    # -- hand-over ------------------------------------------------------------------------------------------------

    def hand_over(self, way: str) -> Handover:
        nodes = self.nodes
        leader = nodes.leader()
        before = nodes.life(self.jobs)
        load = Load(nodes)
        with load:
            time.sleep(SETTLE_SECONDS)
            load.begin()
            time.sleep(2 * SETTLE_SECONDS)
            control = load.begin()
            if way == "SIGTERM":
                nodes.process(leader).send_signal(signal.SIGTERM)
            else:
                nodes.http.post(f"{nodes.address(leader)}/cluster/handover").raise_for_status()
            nodes.until(lambda: nodes.leader() != leader, "nobody else leads")
            time.sleep(SETTLE_SECONDS)
        if way == "SIGTERM":
            nodes.restart(leader)
        with nodes.client() as client:
            wanted = load.submitted
            listed = [str(j.job_id) for j in client.jobs() if j.job_id in wanted]
            wrong = [f"{j}: listed {listed.count(j)} times" for j in wanted if listed.count(j) != 1]
            # Not waited for: among a hundred streams they take their time.
            attempts = nodes.life(set(wanted)).attempts
            wrong += [f"{j}: {count} attempts" for j, count in attempts.items() if count != 1]
            for job_id in wanted:
                with contextlib.suppress(JobStateError):
                    client.job(job_id).cancel()
        changed = differences(before, nodes.life(self.jobs))
        return Handover(load.longest, control, load.reads, len(wanted), load.errors, wrong, changed)

    # -- a leader that is stopped ---------------------------------------------------------------------------------

    def pause(self) -> Pause:
        """While it is stopped, the driver of one job dies: an old leader that wakes up has reason to act, and must not."""
        nodes = self.nodes
        with nodes.client() as client:
            bait = client.submit(stream(self.count, self.trigger, restarts=True), upload=False).job_id
        nodes.until(lambda: nodes.life({bait}).runs, "the bait does not run")
        # Jobs of the load that are still being cleaned up would be written to by whoever leads.
        left = {f"graphs/{job}" for job in self.jobs | {bait}}
        nodes.until(lambda: {p for p in nodes.stored() if p.startswith("graphs/")} <= left, "other jobs do not end")
        leader = nodes.leader()
        before, epoch = nodes.life(self.jobs), max(nodes.granted())
        paused_at = time.monotonic()
        nodes.process(leader).send_signal(signal.SIGSTOP)
        driver = nodes.life({bait}).drivers[f"{bait}/1"]
        assert driver is not None
        driver.signal(signal.SIGKILL)
        nodes.until(lambda: epoch + 1 in nodes.granted(), "nobody else was elected")
        nodes.until(lambda: nodes.life({bait}).attempts.get(bait) == 2, "the bait was not restarted")
        nodes.until(lambda: len(nodes.life({bait}).runs) == 2, "the bait does not run again")
        time.sleep(max(0.0, 3 * self.lease - (time.monotonic() - paused_at)))
        stored, groups, everything = nodes.stored(), nodes.groups(), nodes.life(self.jobs | {bait})
        paused = time.monotonic() - paused_at
        nodes.process(leader).send_signal(signal.SIGCONT)
        time.sleep(WAKE_SECONDS)
        after = nodes.stored()
        written = [p for p in sorted({*stored, *after}) if stored.get(p) != after.get(p)]
        # A stream that had not come to its first batch is no operation of the old leader's.
        runs = {f"{e}/{run}" for e in everything.engines for run in everything.runs.values()}
        started = sorted(nodes.groups() - groups - runs)
        again = nodes.life(self.jobs | {bait})
        started += differences(everything, again)
        with nodes.client() as client:
            client.job(bait).cancel()
            with contextlib.suppress(JobCanceledError):
                client.job(bait).result(timeout=60)
        return Pause(paused, written, started, differences(before, nodes.life(self.jobs)))


class Load:
    """Clients that know all nodes and go on asking: readers, and one that submits jobs."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.longest = 0.0
        self.reads = 0
        self.submitted: list[str] = []
        self.errors: list[str] = []
        self._threads = [threading.Thread(target=self._read) for _ in range(READERS)]
        self._threads += [threading.Thread(target=self._submit) for _ in range(SUBMITTERS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(120)

    def begin(self) -> float:
        """Forget the longest call so far, which is returned; the first calls of a client make connections."""
        with self._lock:
            longest, self.longest = self.longest, 0.0
            return longest

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except FiresteelError as error:
            with self._lock:
                self.errors.append(str(error))
        finally:
            with self._lock:
                self.longest = max(self.longest, time.monotonic() - began)

    def _read(self) -> None:
        with self._nodes.client() as client:
            while not self._over.wait(0.05):
                with self._call():
                    client.jobs()
                    self.reads += 1

    def _submit(self) -> None:
        with self._nodes.client() as client:
            while not self._over.wait(0.25):
                job_id = new_job_id()
                with self._call():
                    client.submit(TRIVIAL, job_id=job_id, upload=False)
                self.submitted.append(job_id)


# -- reporting --------------------------------------------------------------------------------------------------------


def report(kills: list[Failover], handovers: dict[str, Handover], pause: Pause | None, lease: float) -> None:
    rows: list[list[str]] = []
    if kills:

        def show(name: str, values: list[float], budget: float | None = None) -> None:
            sample = Sample.of(values)
            verdict = f"<= {budget:g} s: {sample.verdict(budget)}" if budget is not None else ""
            rows.append([name, sample.show(" s"), verdict])

        show("kill -9 to the new leader's epoch", [k.elected for k in kills])
        show("kill -9 to the first answer", [k.first_answer for k in kills], lease + BUDGET_ANSWER)
        show("kill -9 to all jobs RUNNING", [k.all_running for k in kills])
        show("election to all jobs RUNNING", [k.adopted_after_election for k in kills], BUDGET_ADOPTED)
        rows.append(["most jobs seen RECONCILING", str(max(k.seen_reconciling for k in kills)), ""])
        changed = sum(len(k.changed) for k in kills)
        rows.append(["restarts, new drivers, queries, engines", str(changed), "= 0"])
    for way, handover in handovers.items():
        rows.append(
            [f"hand-over by {way}: longest call", f"{handover.without_service:.2f} s", f"<= {BUDGET_HANDOVER:g} s"]
        )
        rows.append(["… control: the same without one", f"{handover.control:.2f} s", ""])
        calls = f"of {handover.reads} reads, {handover.submissions} submissions"
        rows.append([f"… errors ({calls})", str(len(handover.errors)), "= 0"])
        rows.append(["… jobs lost, or run twice", str(len(handover.lost_or_twice)), "= 0"])
        rows.append(["… restarts, new drivers, queries, engines", str(len(handover.changed)), "= 0"])
    if pause is not None:
        rows.append(
            [f"leader stopped for {pause.paused:.0f} s: writes after it woke up", str(len(pause.written)), "= 0"]
        )
        rows.append(["… Spark operations and processes that it started", str(len(pause.started)), "= 0"])
        rows.append(["… restarts of other jobs", str(len(pause.changed)), "= 0"])
    table("leaders that die, and what their jobs notice", ["what", "measured", "budget"], rows, f"lease {lease:g} s")


@click.command(context_settings={"max_content_width": 120})
@click.option("--backend", type=click.Choice(BACKENDS), default="zookeeper", show_default=True)
@click.option("--jobs", default=100, show_default=True, help="Streaming jobs that run all the time.")
@click.option("--engines", default=3, show_default=True, help="Engines to spread them over.")
@click.option("--trigger", default=30.0, show_default=True, help="Seconds between two batches of a stream.")
@click.option("--lease", default=10.0, show_default=True, help="Session timeout, or duration of the lease, in seconds.")
@click.option("--kills", default=3, show_default=True, help="How often the leader is killed.")
@click.option("--handover", "ways", multiple=True, type=click.Choice(["SIGTERM", "REST"]), help="[SIGTERM]")
@click.option("--pause", is_flag=True, help="Also stop the leader for three leases and let it wake up.")
@click.option("--keep", is_flag=True, help="Keep the directory with logs and attempts.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write every measurement to this file.")
def main(
    backend: str,
    jobs: int,
    engines: int,
    trigger: float,
    lease: float,
    kills: int,
    ways: tuple[str, ...],
    pause: bool,
    keep: bool,
    json_file: Path | None,
) -> None:
    """Kill, stop and replace the leader of a real cluster, and tell what its jobs noticed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: everything that was started is ended
    root = Path(tempfile.mkdtemp(prefix="firesteel-failover-"))
    say(f"{root}; {machine()}")
    options = {
        "engine.master": f"local[{os.cpu_count() or 2}]",
        "engine.slots": str(-(-(jobs + 4) // engines)),
        "engine.max": str(engines),
    }
    failovers: list[Failover] = []
    handovers: dict[str, Handover] = {}
    paused: Pause | None = None
    try:
        with store(backend, root, lease) as where, Nodes(root, {**options, **where}) as nodes:
            measurement = Measurement(nodes, jobs=jobs, trigger=trigger, lease=lease)
            measurement.submit()
            for number in range(kills):
                failovers.append(measurement.kill())
                say(f"kill {number + 1}: {failovers[-1]}")
            for way in ways or ("SIGTERM",):
                handovers[way] = measurement.hand_over(way)
                say(f"hand-over by {way}: {handovers[way]}")
            if pause:
                paused = measurement.pause()
                say(f"pause: {paused}")
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)
    report(failovers, handovers, paused, lease)
    if json_file:
        content = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "machine": machine(),
            "backend": backend,
            "jobs": jobs,
            "engines": engines,
            "lease": lease,
            "kills": [asdict(k) for k in failovers],
            "handovers": {way: asdict(h) for way, h in handovers.items()},
            "pause": asdict(paused) if paused else None,
        }
        json_file.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
