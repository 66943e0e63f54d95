"""What a client wants of a cluster from beginning to end: it goes on asking until it knows, or is told to give up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firesteel.client.cluster import ClusterClient
from firesteel.client.job import JobClient
from firesteel.client.operations import RemoteOperation
from firesteel.types import JobID
from firesteel_chaos.history import History
from firesteel_chaos.workload.calls import RecordingClient, Told
from firesteel_chaos.workload.programs import digest_of

PAUSE_SECONDS = 0.1
WAIT_SECONDS = 10.0
"""For one question; the errand goes on after it."""
RESULT = ("status", "attempt", "restarts", "submitted_at", "ended_at", "stopped", "checkpoint")


@dataclass(slots=True)
class Planned:
    """A job of the load."""

    job: str
    load: str
    ends: str
    """The status that it must end with."""
    out: Path | None = None
    rows: int = 0
    diary: Path | None = None
    result: dict[str, Any] | None = None
    """As the cluster told it, once it had ended."""
    checked: bool = False
    """Its output was compared with what it should be."""


class LoadErrands:
    """Shared by all threads of a load."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.over = threading.Event()
        """Give up what is under way."""
        self._lock = threading.Lock()
        self._jobs: dict[str, Planned] = {}

    def jobs(self) -> list[Planned]:
        with self._lock:
            return list(self._jobs.values())

    def declare(self, planned: Planned, graph: dict[str, Any], **plan: Any) -> None:
        """Before its first submission: from now on it is meant to exist."""
        with self._lock:
            self._jobs[planned.job] = planned
        plan = {**plan, "ends": planned.ends}
        self.history.record("job", job=planned.job, load=planned.load, digest=digest_of(graph), plan=plan)

    def until_known(self, client: RecordingClient, once: Callable[[], Told]) -> Told:
        """Ask until somebody answers, each time at another node."""
        while True:
            told = once()
            if told.known or self.over.is_set():
                return told
            client.fresh()
            time.sleep(PAUSE_SECONDS)

    def submit(self, client: RecordingClient, job: str, graph: dict[str, Any], *, what: str = "submit") -> Told:
        args = {"digest": digest_of(graph)}
        return self.until_known(
            client, lambda: client.ask(what, job, lambda c: c.submit(graph, job_id=job).job_id, **args)
        )

    def operate(
        self,
        client: RecordingClient,
        what: str,
        operation: RemoteOperation,
        job: str,
        trigger: str,
        wish: dict[str, Any],
    ) -> Told:
        """Have an operation begun under an id of ours, then ask under that id what came of it, whoever leads by then."""

        def begin(c: ClusterClient) -> str:
            return c.trigger(operation, wish, job_id=JobID(job), trigger_id=trigger)

        def outcome(c: ClusterClient) -> dict[str, Any]:
            return c.outcome(operation, trigger, job_id=JobID(job), timeout=WAIT_SECONDS)

        begun = self.until_known(client, lambda: client.ask(what, job, begin, trigger=trigger))
        if not begun.ok:
            return begun
        return self.until_known(client, lambda: client.ask("operation", job, outcome, trigger=trigger, of=what))

    def wait(self, client: RecordingClient, planned: Planned) -> dict[str, Any] | None:
        """How the job ended; None when the load ended before it did, or the cluster does not know the job."""
        while not self.over.is_set():
            ended = client.quietly(lambda c: c.job(planned.job).wait(WAIT_SECONDS).status.value)
            if ended.outcome == "refused":
                break
            if ended.ok:
                return self.ask_result(client, planned)
            client.fresh()
            time.sleep(PAUSE_SECONDS)
        if not self.over.is_set():
            return self.ask_result(client, planned)  # so that it is written down that nobody knows it
        return None

    def ask_result(self, client: RecordingClient, planned: Planned) -> dict[str, Any] | None:
        told = self.until_known(
            client, lambda: client.ask("result", planned.job, lambda c: _result(c.job(planned.job)))
        )
        if told.ok:
            planned.result = told.value
        return planned.result if told.ok else None


def _result(job: JobClient) -> dict[str, Any]:
    details = job.details()
    shown = {key: details.get(key) for key in RESULT}
    if isinstance(details.get("graph"), dict):
        shown["digest"] = digest_of(details["graph"])
    return shown
