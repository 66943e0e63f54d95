"""The load: streams that go on, and clients that submit one job after another and compare what comes out."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from firesteel_chaos.handle import ClusterHandle
from firesteel_chaos.history import History
from firesteel_chaos.workload.calls import RecordingClient
from firesteel_chaos.workload.errands import LoadErrands, Planned
from firesteel_chaos.workload.leftovers import look_at_savepoints, look_for_leftovers
from firesteel_chaos.workload.outputs import compare, ids_in, read_diary
from firesteel_chaos.workload.programs import PROGRAM, PROGRAM_DIGEST, ScriptPlan, batch_graph, script_graph
from firesteel_chaos.workload.streams import Stream

CLIENTS = 2
PRESSURE_SECONDS = 5.0
MOST_CLIENTS = 12
PACE = (0.2, 1.0)
"""Seconds between two jobs of one client."""


class Workload:
    """A load on a cluster, drawn from a seed.

    `start` it, let it run, `settle` it (which asks for the end of everything and compares all outputs), `close` it.

    Args:
        root: where inputs and outputs are; every engine must see it as the same path.
        streams: how many streaming jobs run for as long as the load lasts.
        scripts: whether programs are submitted beside batch graphs; they need the right to upload files.
    """

    def __init__(
        self,
        cluster: ClusterHandle,
        history: History,
        seed: int,
        *,
        root: Path,
        streams: int = 2,
        scripts: bool = True,
        clients: int = CLIENTS,
    ) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)  # noqa: S311 - chance, not a secret
        self._root = root
        self._scripts = scripts
        self._errands = LoadErrands(history)
        self._history = history
        self._ending = threading.Event()
        self._pressed_until = 0.0
        self._threads: list[threading.Thread] = []
        self._clients = clients
        for name in ("in", "out", "diaries"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self._program = root / "diary.py"
        self._program.write_text(PROGRAM)
        self._streams = [
            Stream(n, self._client(f"stream-{n}"), self._errands, root, self._random()) for n in range(streams)
        ]

    def _random(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))  # noqa: S311 - chance, not a secret

    def _client(self, name: str) -> RecordingClient:
        return RecordingClient(name, self._cluster, self._history, self._random())

    @property
    def jobs(self) -> list[Planned]:
        return self._errands.jobs()

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for stream in self._streams:
            stream.start()
        for n in range(self._clients):
            self._run_client(f"client-{n}", lambda: True)

    def pressure(self, factor: int, seconds: float = PRESSURE_SECONDS) -> None:
        """For a while, or until it is called with 1, so many times as many clients submit (F23)."""
        self._pressed_until = time.monotonic() + seconds if factor > 1 else 0.0
        for n in range(min(MOST_CLIENTS, (factor - 1) * self._clients)):
            self._run_client(f"extra-{n}", lambda: time.monotonic() < self._pressed_until)

    def settle(self, timeout: float) -> None:
        """Submit no more, wait until every job has ended, compare the outputs and look for what is left.

        Returns when that is done, or after about `timeout` seconds; what is open then is written down.
        """
        deadline = time.monotonic() + timeout
        self._ending.set()
        for stream in self._streams:
            stream.end()
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        for stream in self._streams:
            stream.join(max(0.1, deadline - time.monotonic()))
        client = self._client("settle")
        try:
            self._settle(client, deadline)
        finally:
            client.close()

    def _settle(self, client: RecordingClient, deadline: float) -> None:
        giving_up = threading.Timer(max(1.0, deadline - time.monotonic()), self._errands.over.set)
        giving_up.start()
        try:
            for planned in self.jobs:
                self._errands.ask_result(client, planned)
            self._errands.until_known(
                client, lambda: client.ask("list", None, lambda c: [[j.job_id, j.status.value] for j in c.jobs()])
            )
        finally:
            giving_up.cancel()
            giving_up.join()
        jobs = self.jobs
        late = self._errands.over.is_set()
        look_for_leftovers(self._history, self._cluster.sites(), jobs, lambda: late)
        look_at_savepoints(self._history, [s for stream in self._streams for s in stream.saved])
        still_open = [j.job for j in jobs if j.result is None or j.result.get("ended_at") is None]
        self._history.record("settled", open=still_open)

    def close(self) -> None:
        """End all threads. Jobs that have not ended are left to the cluster."""
        self._ending.set()
        self._errands.over.set()
        for stream in self._streams:
            stream.close()
        for thread in self._threads:
            thread.join()

    # -- clients --------------------------------------------------------------------------------------------------

    def _run_client(self, name: str, goes_on: Callable[[], bool]) -> None:
        client, rng = self._client(name), self._random()

        def work() -> None:
            try:
                while not self._ending.is_set() and goes_on():
                    self._one_job(client, rng)
                    self._ending.wait(rng.uniform(*PACE))
            finally:
                client.close()

        thread = threading.Thread(target=work, name=f"chaos-{name}", daemon=True)
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()

    def _one_job(self, client: RecordingClient, rng: random.Random) -> None:
        draw = rng.random()
        if not self._scripts or draw < 0.5:
            self._batch(client, rng)
        elif draw < 0.7:
            self._script(client, rng, ScriptPlan(seconds=rng.choice((0.2, 2.0))))
        elif draw < 0.85:
            # Some are given up after the last restart, some end well just before.
            plan = rng.choice((ScriptPlan(failures=2, restarts=3), ScriptPlan(failures=9, restarts=1)))
            self._script(client, rng, plan)
        else:
            self._script(client, rng, ScriptPlan(seconds=60.0, cancel=True))

    def _batch(self, client: RecordingClient, rng: random.Random) -> None:
        job = uuid.UUID(int=rng.getrandbits(128)).hex
        planned = Planned(job, "batch", "FINISHED", self._root / "out" / job, rng.choice((20, 60, 150)))
        assert planned.out is not None
        graph = batch_graph(planned.out, planned.rows)
        self._errands.declare(planned, graph, rows=planned.rows)
        if not self._errands.submit(client, job, graph).ok:
            return
        again = rng.random()
        if again < 0.2:
            client.fresh()
            self._errands.submit(client, job, graph)
        elif again < 0.35:
            other = batch_graph(planned.out.with_name(f"{job}-other"), planned.rows)
            self._errands.submit(client, job, other, what="submit-other")
        ended = self._errands.wait(client, planned)
        if ended is not None and ended["status"] == "FINISHED":
            self._history.record("output", job=job, **compare(ids_in(planned.out), planned.rows).to_json())
            planned.checked = True

    def _script(self, client: RecordingClient, rng: random.Random, plan: ScriptPlan) -> None:
        job = uuid.UUID(int=rng.getrandbits(128)).hex
        planned = Planned(job, "script", plan.ends, diary=self._root / "diaries" / f"{job}.jsonl")
        assert planned.diary is not None
        uploaded = self._errands.until_known(
            client, lambda: client.ask("upload", None, lambda c: str(c.upload(self._program, "diary.py")))
        )
        if not uploaded.ok:
            return
        graph = script_graph(uploaded.value, planned.diary, plan)
        self._errands.declare(planned, graph, program=PROGRAM_DIGEST, **plan.to_json())
        if not self._errands.submit(client, job, graph).ok:
            return
        if plan.cancel:
            # Before, in, or after its start.
            self._ending.wait(rng.choice((0.0, 0.3, 1.5, 3.0)))
            self._errands.until_known(client, lambda: client.ask("cancel", job, lambda c: c.job(job).cancel()))
        if self._errands.wait(client, planned) is not None:
            self._note_runs(planned)

    def _note_runs(self, planned: Planned) -> None:
        assert planned.diary is not None
        for number, run in enumerate(read_diary(planned.diary), 1):
            self._history.record(
                "run",
                job=planned.job,
                number=number,
                pid=run.pid,
                began=self._history.at(run.began),
                ended=None if run.ended is None else self._history.at(run.ended),
                how=run.how,
                digest=run.digest,
            )
        planned.checked = True
