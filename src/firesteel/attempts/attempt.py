"""The files of one attempt: what a driver is told, and what it leaves behind.

Everything that the control plane must know after a crash of its own is in this directory: `spec.json` before the driver
starts, `driver.json` while it has the attempt (see `claim`), `output/events.jsonl` while it runs, `output/result.json` once,
whole, at its end. A driver that is gone without a result did not finish; a result is final.

There are two writers, and a directory for each (S44). In the directory itself are the files of the control plane, and
those that a driver writes before it runs any user code; a confined process can only read there. What a driver writes
while user code is in its process is in `output`: that code can write there as well, so what is read there is trusted
for this attempt only.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from firesteel.attempts import claim
from firesteel.attempts.claim import hold, holder
from firesteel.attempts.events import EventLog, EventTail, LineTail
from firesteel.engines.record import EngineRecord
from firesteel.errors import FiresteelError
from firesteel.failure import Failure
from firesteel.fs.files import NotAPlainFileError, open_plain, private_dir, read_json, write_json
from firesteel.jobgraph.model import JobGraph
from firesteel.processes import ProcessIdentity
from firesteel.spark_connect.settings import RESTRICTIONS, session_settings
from firesteel.types import AttemptId, JobID, SparkIds

__all__ = [
    "AttemptDirectory",
    "AttemptResult",
    "AttemptSpec",
    "AttemptState",
    "EventLog",
    "EventTail",
    "LineTail",
    "settings_of",
]

logger = logging.getLogger(__name__)

OUTPUT = "output"
"""The directory that a driver writes to, in the directory of its attempt."""
_RESULT, _RELEASED = "result.json", "session.released"
_MOST_OF_SESSIONS = 1 << 20
"""Bytes."""


class AttemptState(StrEnum):
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


@dataclass(frozen=True, slots=True)
class AttemptSpec:
    attempt: AttemptId
    graph: JobGraph
    engine: EngineRecord | None
    """None for a classic driver, which has a JVM of its own."""
    gateway: str | None = None
    """Directory of the JVM of a classic driver."""
    checkpoints: str = ""
    """Directory (or URL) under which each streaming sink has its checkpoint."""
    default_parallelism: int | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    """Spark settings of the cluster's configuration; the graph's own override them."""
    host: str = ""
    """The host on which the driver is started, which is the writer's own."""
    restricted: bool = False
    """The submitter is not an admin: queries name no files, and functions are those of uploaded modules (S39)."""
    owner: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that the driver sets for its program. They may be secret."""
    given_up: int = 0
    """The last attempt of the job that was given up without being seen to end, and may wake up again; 0 for none."""
    secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    """A secret of this attempt alone: its names on its engine are derived from it (S41)."""

    @property
    def ids(self) -> SparkIds:
        return SparkIds(self.attempt, self.owner, self.secret)

    def remote(self, session_id: str | None = None) -> str:
        """The Spark Connect URL of the attempt's session, or of another one that it has."""
        assert self.engine is not None
        return self.engine.remote(session_id or self.ids.session_id, self.ids.user_id)

    def to_json(self) -> dict[str, Any]:
        return {
            "job_id": self.attempt.job_id,
            "attempt": self.attempt.number,
            "graph": json.loads(self.graph.to_json()),
            "engine": self.engine.as_json() if self.engine else None,
            "gateway": self.gateway,
            "checkpoints": self.checkpoints,
            "default_parallelism": self.default_parallelism,
            "spark": dict(self.spark),
            "host": self.host,
            "restricted": self.restricted,
            "owner": self.owner,
            "environment": dict(self.environment),
            "given_up": self.given_up,
            "secret": self.secret,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> AttemptSpec:
        return AttemptSpec(
            attempt=AttemptId(JobID(data["job_id"]), data["attempt"]),
            graph=JobGraph.model_validate(data["graph"]),
            engine=EngineRecord.from_json(data["engine"]) if data["engine"] else None,
            gateway=data["gateway"],
            checkpoints=data["checkpoints"],
            default_parallelism=data["default_parallelism"],
            spark=data["spark"],
            host=data.get("host", ""),
            restricted=data.get("restricted", False),
            owner=data["owner"],
            environment=data.get("environment", {}),
            given_up=data.get("given_up", 0),
            secret=data["secret"],
        )


def settings_of(spec: AttemptSpec) -> dict[str, str]:
    """The settings of the attempt's Spark session."""
    cores = spec.engine.cores if spec.engine else 1
    settings = session_settings(spec.graph, cores=cores, default_parallelism=spec.default_parallelism, spark=spec.spark)
    return settings | RESTRICTIONS if spec.restricted else settings


@dataclass(frozen=True, slots=True)
class AttemptResult:
    state: AttemptState
    failure: Failure | None = None
    ended_at: float = 0.0
    rows: Mapping[str, int] = field(default_factory=dict)
    """Exact rows per vertex, where they were asked for."""
    stopped: bool = False
    """Whether a stream ended after its current batch because it was asked to."""
    batches: Mapping[str, int] = field(default_factory=dict)
    """The last committed batch per sink of a stream that ended by itself or was stopped; -1 when it had none."""
    given_up: bool = False
    """Nobody has seen its end: its host is lost, or out of reach. It may wake up (see `AttemptSpec.given_up`)."""
    note: str = ""
    """Why the control plane wrote this instead of the driver, where that needs saying."""

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state.value,
            "failure": self.failure.to_json() if self.failure else None,
            "ended_at": self.ended_at,
            "rows": dict(self.rows),
            "stopped": self.stopped,
            "batches": dict(self.batches),
            "given_up": self.given_up,
            "note": self.note,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> AttemptResult:
        failure = data.get("failure")
        return AttemptResult(
            AttemptState(data["state"]),
            Failure.from_json(failure) if failure else None,
            data["ended_at"],
            data.get("rows", {}),
            data.get("stopped", False),
            data.get("batches", {}),
            data.get("given_up", False),
            data.get("note", ""),
        )


@dataclass(frozen=True, slots=True)
class AttemptDirectory:
    """`<jobs>/<job id>/attempts/<number>`."""

    root: Path

    @property
    def jobs(self) -> Path:
        """The directory of all jobs."""
        return self.root.parents[2]

    @property
    def attempt(self) -> AttemptId:
        """The attempt that the directory's name stands for; ValueError when it stands for none."""
        return AttemptId(JobID(self.root.parents[1].name), int(self.root.name))

    @property
    def spec(self) -> Path:
        return self.root / "spec.json"

    @property
    def output(self) -> Path:
        """What the driver writes while user code may be in its process."""
        return self.root / OUTPUT

    @property
    def events(self) -> Path:
        return self.output / "events.jsonl"

    @property
    def driver(self) -> Path:
        """The process that runs the attempt; written by the driver once it has taken it, and before it is confined."""
        return self.root / "driver.json"

    @property
    def result(self) -> Path:
        """What the driver says of its end."""
        return self.output / _RESULT

    @property
    def verdict(self) -> Path:
        """What the control plane says of the end of a driver that did not."""
        return self.root / _RESULT

    @property
    def stop_request(self) -> Path:
        """The attempt is to end after its current batch."""
        return self.root / "stop.requested"

    @property
    def cancel_request(self) -> Path:
        """The attempt is called off: a driver that finds this does not begin."""
        return self.root / "cancel.requested"

    @property
    def dismissal(self) -> Path:
        """The driver is to end once it is done with the attempt, rather than to go on to another one."""
        return self.root / "driver.dismissed"

    @property
    def released(self) -> Path:
        """The engine has confirmed to the control plane that the attempt's session has ended and nothing of it runs there."""
        return self.root / _RELEASED

    @property
    def released_by_driver(self) -> Path:
        """It has confirmed it to the driver."""
        return self.output / _RELEASED

    @property
    def sessions(self) -> Path:
        """Further sessions that a program has made after it stopped its first, an id a line."""
        return self.output / "sessions.txt"

    @property
    def modules(self) -> Path:
        """The modules beside a script that it imports, as they go to Python workers."""
        return self.output / "modules.zip"

    @property
    def operators(self) -> Path:
        return self.output / "operators.json"

    @property
    def stdout(self) -> Path:
        return self.output / "stdout.log"

    @property
    def stderr(self) -> Path:
        return self.output / "stderr.log"

    def prepare(self, spec: AttemptSpec) -> None:
        private_dir(self.output)
        write_json(self.spec, spec.to_json())

    def read_spec(self) -> AttemptSpec:
        try:
            return AttemptSpec.from_json(read_json(self.spec))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FiresteelError(f"{self.spec} cannot be read, so the attempt cannot run: {error!r}") from error

    def host(self) -> str:
        """Where the driver of the attempt was to be started; empty when that is not known."""
        try:
            host = (read_json(self.spec) or {}).get("host", "")
        except (ValueError, AttributeError):
            return ""
        return host if isinstance(host, str) else ""

    def take(self, me: ProcessIdentity) -> bool:
        """In the driver: become the one that runs this attempt. False when there is nothing to run here."""
        if not hold(self.root, (self.driver, self.result, self.verdict)):
            return False
        if self.has_result or self.cancel_request.exists() or not self.spec.exists():
            return False
        # Another driver took it before us and died. The leader decides what follows, and another run would be one more
        # than the restart strategy knows of (I11).
        if self.driver.exists():
            return False
        write_json(self.driver, {"pid": me.pid, "started": me.started})
        return True

    def let_go(self) -> bool:
        """In the driver, after its result: stop being the driver of this attempt, and go on to another. False when
        another process counts on the end of this one.

        A process that is about to end the driver of an attempt first writes a mark and then looks up the driver; here
        it is the other way round. So one of the two sees the other, and no process is ended for an attempt that it is
        done with.
        """
        self.driver.unlink(missing_ok=True)
        if self.cancel_request.exists() or self.dismissal.exists():
            return False
        claim.let_go()
        return True

    def read_driver(self, *, claimed: bool = False) -> ProcessIdentity | None:
        """The process that took the attempt, alive or not; None when none has yet. `claimed`: the caller holds the
        claim."""
        try:
            data = read_json(self.driver)
            return ProcessIdentity(data["pid"], data["started"]) if data else None
        except (ValueError, KeyError, TypeError, AttributeError):
            logger.error("%s cannot be read; the process that holds the attempt is taken for its driver", self.driver)
            pid = None if claimed else holder(self.root)
            return ProcessIdentity.of(pid) if pid else None

    def note_session(self, session_id: str) -> None:
        """Record a session before it is made: a process that ends it on our behalf must know it."""
        with self.sessions.open("a") as f:
            f.write(f"{session_id}\n")

    def session_ids(self, ids: SparkIds) -> list[str]:
        """All sessions that the attempt may have on its engine. How many is what the program says; which, follows from the
        secret, so that it can name no others."""
        try:
            with open_plain(self.sessions, os.O_NOFOLLOW) as file:
                more = file.read(_MOST_OF_SESSIONS).count(b"\n")
        except (FileNotFoundError, NotAPlainFileError):
            more = 0
        return [ids.session_id, *(ids.further_session_id(number) for number in range(2, more + 2))]

    @property
    def has_result(self) -> bool:
        return self.verdict.exists() or self.result.exists()

    def write_result(self, result: AttemptResult) -> None:
        """In the driver."""
        write_json(self.result, result.to_json())

    def decide(self, result: AttemptResult) -> None:
        """In the control plane, of a driver that is gone. Not where the driver writes: a link that it left there would lead
        elsewhere."""
        write_json(self.verdict, result.to_json())

    def read_result(self) -> AttemptResult | None:
        """The result; None when there is none. One that cannot be read is moved aside and counts as none: the attempt
        ended in an unknown way; its sinks know themselves what they committed."""
        return self._result_in(self.verdict) or self._result_in(self.result)

    def _result_in(self, file: Path) -> AttemptResult | None:
        try:
            data = read_json(file, foreign=True)
            return AttemptResult.from_json(data) if data else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            aside = file.with_name("result.unreadable.json")
            logger.error("%s cannot be read and is moved aside as %s: %r", file, aside.name, error)
            file.replace(aside)
            return None

    def write_operators(self, operators: Mapping[str, Any]) -> None:
        write_json(self.operators, dict(operators), durable=False)

    def read_operators(self) -> dict[str, Any]:
        """The operators of a finished attempt; empty when they cannot be read, as they are only additional
        information."""
        try:
            found = read_json(self.operators, foreign=True)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
