"""The answers of a cluster, as values. Times are seconds since 1970 and durations seconds, whatever the wire has.

Fields that a newer node adds are ignored; a field that an answer lacks is a ClusterError and never a KeyError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from firesteel.client.errors import ClusterError
from firesteel.failure import Failure, FailureKind
from firesteel.status import JobStatus
from firesteel.types import JobID


class Answer:
    """A JSON object that must hold certain fields."""

    def __init__(self, data: object, what: str) -> None:
        if not isinstance(data, Mapping):
            raise ClusterError(f"{what} is not a JSON object; is there a Firesteel node at this address?")
        self._data: Mapping[str, Any] = data
        self._what = what

    def text(self, key: str, default: str | None = None) -> str:
        value = self._data.get(key, default)
        if not isinstance(value, str):
            raise self._lacks(key)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._data.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._lacks(key)
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        return int(self.number(key, default))

    def mapping(self, key: str) -> dict[str, Any]:
        value = self._data.get(key)
        return dict(value) if isinstance(value, Mapping) else {}

    def objects(self, key: str, what: str) -> list[Answer]:
        value = self._data.get(key)
        if not isinstance(value, list):
            raise self._lacks(key)
        return [Answer(v, what) for v in value]

    def get(self, key: str) -> Any:
        return self._data.get(key)

    def _lacks(self, key: str) -> ClusterError:
        return ClusterError(f"{self._what} lacks a valid '{key}'; is there a Firesteel node at this address?")


def status_of(value: object) -> JobStatus:
    try:
        return JobStatus(value)  # type: ignore[arg-type]  # anything else is the ValueError below
    except ValueError:
        raise ClusterError(f"{value!r} is not a job status that this version knows; update the client") from None


def failure_of(data: object) -> Failure | None:
    if not isinstance(data, Mapping):
        return None
    try:
        return Failure.from_json({"message": "", **data})
    except (KeyError, ValueError, TypeError):
        # Of a kind that this version does not know: what it says is worth more than a complaint about it.
        return Failure(FailureKind.INTERNAL, f"{data.get('kind')}: {data.get('message')}")


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One line in a list of jobs."""

    job_id: JobID
    name: str
    status: JobStatus
    mode: str
    """`batch` or `streaming`."""
    started_at: float
    ended_at: float | None
    duration: float
    changed_at: float
    """When it entered its current state."""
    kind: str = ""
    """What it is to users: its mode, or `script` or `interactive`."""

    @staticmethod
    def of(row: Answer) -> JobSummary:
        """From a row of the list of jobs."""
        mode = str(row.get("mode") or "batch")
        ended = row.get("ended")
        return JobSummary(
            job_id=JobID(row.text("id")),
            name=row.text("name"),
            status=status_of(row.get("status")),
            mode=mode,
            started_at=row.number("submitted") / 1000,
            ended_at=None if ended is None else row.number("ended") / 1000,
            duration=row.number("duration", 0) / 1000,
            changed_at=row.number("changed", row.number("submitted")) / 1000,
            kind=str(row.get("kind") or mode),
        )

    @staticmethod
    def of_history(row: Answer) -> JobSummary:
        """From a row of the history, which has Flink's names."""
        mode = str(row.get("jobType") or "batch").lower()
        ended = row.number("end-time", -1)
        return JobSummary(
            job_id=JobID(row.text("jid")),
            name=row.text("name"),
            status=status_of(row.get("state")),
            mode=mode,
            started_at=row.number("start-time") / 1000,
            ended_at=ended / 1000 if ended >= 0 else None,
            duration=row.number("duration", 0) / 1000,
            changed_at=row.number("last-modification", row.number("start-time")) / 1000,
            kind=str(row.get("kind") or mode),
        )

    @staticmethod
    def all_of(data: object) -> tuple[JobSummary, ...]:
        return tuple(
            JobSummary.of(row) for row in Answer(data, "the list of jobs").objects("jobs", "a job in the list")
        )


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Ended jobs, newest first."""

    jobs: tuple[JobSummary, ...]
    next: int | None
    """The `before` of the next page; None on the last one."""

    @staticmethod
    def of(data: object) -> HistoryPage:
        answer = Answer(data, "the history")
        jobs = tuple(JobSummary.of_history(row) for row in answer.objects("jobs", "a job in the history"))
        following = answer.get("next")
        return HistoryPage(jobs, None if following is None else int(following))


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """The numbers of jobs, slots and engines."""

    engines: int
    slots: int
    free_slots: int
    running: int
    finished: int
    canceled: int
    failed: int

    @staticmethod
    def of(data: object) -> ClusterOverview:
        a = Answer(data, "the overview")
        return ClusterOverview(
            engines=a.integer("taskmanagers"),
            slots=a.integer("slots-total"),
            free_slots=a.integer("slots-available"),
            running=a.integer("jobs-running"),
            finished=a.integer("jobs-finished"),
            canceled=a.integer("jobs-cancelled"),
            failed=a.integer("jobs-failed"),
        )


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """A Spark application that runs jobs."""

    engine_id: str
    master: str
    memory: str
    cores: int
    """0 when unknown."""
    slots: int
    free: int
    state: str
    since: float
    """When it was started; 0 for one that was attached."""
    address: str
    foreign: bool
    """Whether it was started outside of the cluster, which then never stops it."""
    worker: str = ""
    """The name of the worker that has it."""

    @staticmethod
    def all_of(data: object) -> tuple[EngineInfo, ...]:
        return tuple(
            EngineInfo(
                engine_id=row.text("id"),
                master=row.text("master"),
                memory=row.text("memory", ""),
                cores=row.integer("cores", 0),
                slots=row.integer("slots", 0),
                free=row.integer("free", 0),
                state=row.text("state"),
                since=row.number("since", 0) / 1000,
                address=str(row.get("address") or ""),
                foreign=bool(row.get("foreign")),
                worker=row.text("worker_name", ""),
            )
            for row in Answer(data, "the list of engines").objects("engines", "an engine in the list")
        )


@dataclass(frozen=True, slots=True)
class WorkerSummary:
    """A host that jobs run on, as the leader sees it."""

    worker_id: str
    name: str
    standing: str
    """`EXPECTED`, `CONNECTED`, `SILENT` or `LOST`."""
    draining: bool
    revoked: bool
    embedded: bool
    """Whether it is part of a node."""
    cores: int
    memory: str
    labels: Mapping[str, str]
    sandbox: str
    policy: str
    """What it does when it hears from no node: `stop` or `run-on`."""
    max_engines: int
    engines: int
    attempts: int
    since: float
    last_heard: float | None
    gone_at: float | None
    """When nothing of a silent worker runs any more; None when nobody can say."""
    host: str
    """Empty for those who are not admin, and so are the two below."""
    address: str
    incarnation: str

    @staticmethod
    def of(data: object) -> WorkerSummary:
        row = Answer(data, "a worker")
        heard, gone = row.get("last_heard"), row.get("gone_at")
        return WorkerSummary(
            worker_id=row.text("id"),
            name=row.text("name"),
            standing=row.text("standing"),
            draining=bool(row.get("draining")),
            revoked=bool(row.get("revoked")),
            embedded=bool(row.get("embedded")),
            cores=row.integer("cores", 0),
            memory=row.text("memory", ""),
            labels={str(k): str(v) for k, v in row.mapping("labels").items()},
            sandbox=row.text("sandbox", ""),
            policy=row.text("policy", ""),
            max_engines=row.integer("max_engines", 0),
            engines=row.integer("engines", 0),
            attempts=row.integer("attempts", 0),
            since=row.number("since", 0) / 1000,
            last_heard=None if heard is None else row.number("last_heard") / 1000,
            gone_at=None if gone is None else row.number("gone_at") / 1000,
            host=str(row.get("host") or ""),
            address=str(row.get("address") or ""),
            incarnation=str(row.get("incarnation") or ""),
        )

    @staticmethod
    def all_of(data: object) -> tuple[WorkerSummary, ...]:
        found = Answer(data, "the list of workers").get("workers")
        if not isinstance(found, list):
            raise ClusterError(
                "the list of workers lacks a valid 'workers'; is there a Firesteel node at this address?"
            )
        return tuple(WorkerSummary.of(row) for row in found)


@dataclass(frozen=True, slots=True)
class WorkerToken:
    """A token with which one worker may join."""

    token: str
    """A secret. The cluster shows it this once."""
    token_id: str
    name: str
    """The worker that it is for; empty: any."""
    expires_at: float

    @staticmethod
    def of(data: object) -> WorkerToken:
        a = Answer(data, "the answer to a wish for a join token")
        return WorkerToken(a.text("token"), a.text("id"), a.text("name", ""), a.number("expires") / 1000)


@dataclass(frozen=True, slots=True)
class QueuedJob:
    job_id: JobID
    name: str
    since: float
    waits_for: str | None = None
    """The workers without which it cannot run; None when it waits for a slot, or for room for an engine."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Jobs that wait for a slot."""

    waiting: int
    jobs: tuple[QueuedJob, ...]

    @staticmethod
    def of(data: object) -> Queue:
        a = Answer(data, "the queue")
        rows = a.objects("jobs", "a job in the queue")
        return Queue(
            a.integer("waiting"),
            tuple(
                QueuedJob(
                    JobID(row.text("job_id")),
                    row.text("name", ""),
                    row.number("since", 0) / 1000,
                    row.get("waits_for"),
                )
                for row in rows
            ),
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller's identity, as the cluster sees it."""

    name: str
    role: str
    owner: str

    @staticmethod
    def of(data: object) -> Identity:
        a = Answer(data, "the answer to who am I")
        return Identity(a.text("name"), a.text("role"), a.text("owner"))


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    cluster_id: str
    version: str
    leader: str | None
    """Address of the node that leads; None while there is none."""
    epoch: int | None
    high_availability: Any
    node: Mapping[str, Any] = field(default_factory=dict)
    """What the node that answered says about itself."""
    degraded: bool = False
    """Whether that node knows of no leader; running jobs continue, and nothing else happens until there is one."""
    reason: str | None = None
    since: float | None = None
    """Since when it is degraded, in seconds since 1970."""
    last_leader: str | None = None

    @staticmethod
    def of(data: object) -> ClusterStatus:
        a = Answer(data, "the status of the cluster")
        leader = a.mapping("leader")
        return ClusterStatus(
            cluster_id=a.text("cluster_id"),
            version=a.text("version"),
            leader=leader.get("address"),
            epoch=leader.get("epoch"),
            high_availability=a.get("high-availability"),
            node=a.mapping("node"),
            degraded=bool(a.get("degraded")),
            reason=a.get("reason"),
            since=a.get("since") / 1000 if a.get("since") is not None else None,
            last_leader=a.mapping("lastLeader").get("address"),
        )


@dataclass(frozen=True, slots=True)
class JobResult:
    """The final result of a job."""

    job_id: JobID
    name: str
    status: JobStatus
    """FINISHED, FAILED or CANCELED."""
    failure: Failure | None
    submitted_at: float
    ended_at: float
    duration: float
    attempts: int
    restarts: int
    stopped: bool = False
    """Whether it was asked to stop, and did so after its current batch."""
    streaming: bool = False
    checkpoint: str = ""
    """Where the checkpoint of a stream is kept, from which `resume` continues. Empty when it is not kept."""
    savepoint: str = ""
    """The last savepoint of the job; empty when there is none."""

    @property
    def resumable(self) -> bool:
        return self.streaming and bool(self.checkpoint or self.savepoint)

    @staticmethod
    def of(details: object) -> JobResult:
        """Read it from the execution graph of an ended job, or from its final event."""
        a = Answer(details, "the result of the job")
        submitted, ended = a.number("submitted_at"), a.number("ended_at")
        return JobResult(
            job_id=JobID(a.text("job_id")),
            name=a.text("name"),
            status=status_of(a.get("status")),
            failure=failure_of(a.get("failure")),
            submitted_at=submitted,
            ended_at=ended,
            duration=ended - submitted,
            attempts=a.integer("attempt", 0),
            restarts=a.integer("restarts", 0),
            stopped=bool(a.get("stopped")),
            streaming=a.get("mode") == "streaming",
            checkpoint=str(a.get("checkpoint") or ""),
            savepoint=str(a.get("savepoint") or ""),
        )


@dataclass(frozen=True, slots=True)
class JobException:
    """A failure in the history of a job, newest first in a list."""

    name: str
    text: str
    """The message with its traceback."""
    at: float
    task: str | None
    labels: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def all_of(data: object) -> tuple[JobException, ...]:
        history = Answer(Answer(data, "the exceptions").get("exceptionHistory"), "the exception history")
        return tuple(
            JobException(
                name=row.text("exceptionName"),
                text=row.text("stacktrace", ""),
                at=row.number("timestamp", 0) / 1000,
                task=row.get("taskName"),
                labels=row.mapping("failureLabels"),
            )
            for row in history.objects("entries", "an exception")
        )


@dataclass(frozen=True, slots=True)
class LogInfo:
    """A log that is kept."""

    name: str
    size: int
    modified_at: float


@dataclass(frozen=True, slots=True)
class AttemptInfo:
    """One attempt at running a job, and what is kept of it."""

    number: int
    logs: tuple[LogInfo, ...]

    @staticmethod
    def all_of(data: object) -> tuple[AttemptInfo, ...]:
        return tuple(
            AttemptInfo(
                attempt.integer("attempt"),
                tuple(
                    LogInfo(log.text("name"), log.integer("size"), log.number("modified") / 1000)
                    for log in attempt.objects("logs", "a log in the list")
                ),
            )
            for attempt in Answer(data, "the list of attempts").objects("attempts", "an attempt in the list")
        )
