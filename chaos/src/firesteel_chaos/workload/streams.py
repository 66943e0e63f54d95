"""A stream that is fed for as long as the load lasts: now and then it is saved, or stopped and continued by another job."""

from __future__ import annotations

import random
import threading
import time
import uuid
from pathlib import Path

from firesteel.client.operations import CHECKPOINT, SAVEPOINT, STOP
from firesteel_chaos.workload.calls import RecordingClient
from firesteel_chaos.workload.errands import LoadErrands, Planned
from firesteel_chaos.workload.outputs import Feeder, compare, ids_in
from firesteel_chaos.workload.programs import stream_graph

PERIOD = (5.0, 12.0)
"""Seconds between two operations on a stream."""
FIRST = 10.0
"""The first one waits for the engine."""


class Stream:
    """A thread of its own. Its jobs read one input and write one output, which must come out as if they were one job."""

    def __init__(
        self, number: int, client: RecordingClient, errands: LoadErrands, root: Path, rng: random.Random
    ) -> None:
        self._client = client
        self._errands = errands
        self._rng = rng
        self._out = root / "out" / f"stream-{number}"
        self._feeder = Feeder(root / "in" / f"stream-{number}")
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"chaos-stream-{number}", daemon=True)
        self.job: Planned | None = None
        self.saved: list[tuple[str, str]] = []
        """Savepoints that were reported complete, with their jobs."""

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Feed no more, read to the end, stop. `join` waits for it."""
        self._end.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def close(self) -> None:
        self._end.set()
        self._feeder.stop()
        self._thread.join()
        self._client.close()

    def _work(self) -> None:
        self._submit(None)
        pause = FIRST
        while not self._end.wait(pause) and self.job is not None:
            pause = self._rng.uniform(*PERIOD)
            draw = self._rng.random()
            if draw < 0.2:
                self._operate("checkpoint")
            elif draw < 0.6:
                self._operate("savepoint")
            else:
                self._continue()
        self._feeder.stop()
        if self.job is not None:
            self._finish(self.job)

    def _submit(self, restore: str | None) -> None:
        graph = stream_graph(self._feeder.directory, self._out, restore=restore)
        planned = Planned(uuid.UUID(int=self._rng.getrandbits(128)).hex, "streaming", "FINISHED", self._out)
        self._errands.declare(planned, graph, restore=restore)
        self.job = planned if self._errands.submit(self._client, planned.job, graph).ok else None

    def _operate(self, what: str) -> None:
        assert self.job is not None
        trigger = uuid.UUID(int=self._rng.getrandbits(128)).hex
        operation, wish = (CHECKPOINT, {"checkpointType": "CONFIGURED"}) if what == "checkpoint" else (SAVEPOINT, {})
        told = self._errands.operate(self._client, what, operation, self.job.job, trigger, wish)
        if what == "savepoint" and told.ok:
            self.saved.append((self.job.job, told.value["location"]))

    def _stop(self, *, savepoint: bool) -> str | None:
        """The location of what another job can go on from; None when the stop was refused or failed."""
        assert self.job is not None
        trigger = uuid.UUID(int=self._rng.getrandbits(128)).hex
        wish = {"drain": False, "savepoint": savepoint}
        told = self._errands.operate(self._client, "stop", STOP, self.job.job, trigger, wish)
        return (told.value.get("location") or "") if told.ok else None

    def _continue(self) -> None:
        """Stop with a savepoint, and a new job that goes on from there."""
        assert self.job is not None
        location = self._stop(savepoint=True)
        if location is None:
            return  # refused: it is not RUNNING just now, or has gone on to run
        self.saved.append((self.job.job, location))
        if self._errands.wait(self._client, self.job) is not None:
            self._submit(location)

    def _finish(self, last: Planned) -> None:
        """All that was fed has to come out before the stream is stopped."""
        while len(self._ids()) < self._feeder.next and not self._errands.over.is_set() and not self._ended(last):
            time.sleep(0.3)
        while not self._errands.over.is_set() and self._stop(savepoint=False) is None and not self._ended(last):
            time.sleep(0.3)
        if self._errands.wait(self._client, last) is None:
            return
        count = compare(self._ids(), self._feeder.next)
        self._errands.history.record("output", job=last.job, **count.to_json())
        last.checked = True

    def _ended(self, planned: Planned) -> bool:
        told = self._client.quietly(lambda c: c.job(planned.job).status().terminal)
        return told.ok and bool(told.value)

    def _ids(self) -> list[int]:
        try:
            return ids_in(self._out)
        except OSError:
            return []  # a file between two names
