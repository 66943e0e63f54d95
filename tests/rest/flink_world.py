"""A cluster with a job in every state in which the golden answers were taken, under the ids that they have there.

Ids of jobs, triggers and engines are chosen by others, so they can be the very same; `substitutions` has the rest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.rest import flink_cluster_world
from tests.rest.desk import Desk, FakeGateway, submission_of

from firesteel.attempts.committed import Committed, CommittedBatch, Origin
from firesteel.failure import Failure, FailureKind
from firesteel.flink_rest.checkpoint_stats import savepoint_number
from firesteel.jobgraph.admission import digest_of
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.machine import ExceptionEntry, JobState
from firesteel.jobmaster.past import Past, PastAttempt
from firesteel.resourcemanager.overview import EngineOverview, ResourceOverview
from firesteel.resourcemanager.state import EngineState
from firesteel.status import JobStatus
from firesteel.stores.job_results import JobResult
from firesteel.stores.operations import NO_JOB, Operation, OperationKind, OperationStatus
from firesteel.types import JobID, vertex_id

RUNNING = JobID("250186665e4a06fe35c0a6692c144a42")
FINISHED = JobID("65a1a995072e1feb05c644d92874ab56")
FAILED = JobID("d37d4da55b44649202da8bdbb78973ab")
CANCELED = JobID("b393eb6510c7151ee41adb7ff9cf1f04")
RESTARTING = JobID("ac1faf894c638f710af933d0286336ba")
STOPPED = JobID("8db6fbdd2f55e697caf02d5446f292f8")
FINISHED_STREAM = JobID("e169415d4152026edd394df46a03915f")
WAITING = JobID("258a02b2e45066c5d1404fc40b560e06")
ADAPTIVE = JobID("618c67ffba67a1fe791621e796f3470d")
"""In the golden answers, of another scheduler; here a running job like the others."""
FAILED_APPLICATION = JobID("ded01b131fcfbe7b5275744b4ad5f615")
RUNNING_APPLICATION = JobID("67a87c577e8a362da42b43c32b721982")
CANCELED_APPLICATION = JobID("a8fbef71a2536d3e1aa3fc2189868dea")
NOBODY = JobID("0" * 32)

ENGINE = "localhost:44539-86d329"
SECOND_ENGINE = "localhost:44273-aef793"
ADDRESS = "localhost:39721"

SOURCE, SINK = "src", "out"
GOLDEN_SOURCE, GOLDEN_SINK = "cbc357ccb763df2852fee8c4fc7d55f2", "90bea66de1c231edf33913ecd54406c1"

SAVEPOINT = "bcb2b35a335ad5d6d0ad7cab35185157"
CHECKPOINT = "d76f364176cafa3567336330f6a89335"
DISPOSAL = "fa7f01190d72f61b314017dbd3c2a090"
FAILED_SAVEPOINT = "c4934712cdc39fe7bdd939df67803032"
FAILED_CHECKPOINT_NUMBER = "362"

WATERMARK = "2026-11-15T06:00:00.000Z"


def batch_graph(name: str) -> JobGraph:
    return JobGraph.model_validate(
        {
            "name": name,
            "parallelism": 2,
            "vertices": [
                {"kind": "source", "name": SOURCE, "format": "csv", "path": "/data/in"},
                {"kind": "sql", "name": "agg", "query": "SELECT k, count(*) FROM src GROUP BY k", "inputs": [SOURCE]},
                {
                    "kind": "sink",
                    "name": SINK,
                    "input": "agg",
                    "format": "parquet",
                    "path": "/data/out",
                    "parallelism": 1,
                },
            ],
        }
    )


def stream_graph(name: str, **settings: Any) -> JobGraph:
    return JobGraph.model_validate(
        {
            "name": name,
            "mode": "streaming",
            "parallelism": 2,
            "settings": {"checkpoint_interval": "2 s", **settings},
            "vertices": [
                {"kind": "source", "name": SOURCE, "format": "rate"},
                {"kind": "sink", "name": SINK, "input": SOURCE, "format": "parquet", "path": "/data/out"},
            ],
        }
    )


def committed_batches(batch: int, at: float, *, origin: Origin | None = None) -> Committed:
    """Up to `batch`, one a second, 12 ms each; the last one at `at`."""
    log = Committed() if origin is None else Committed().going_on(origin)
    for number in range(log.last + 1, batch + 1):
        log = log.committing(CommittedBatch(number, at - (batch - number), 12))
    return log


def stream_progress(batch: int, at: float, *, origin: Origin | None = None) -> dict[str, Any]:
    return {
        "checkpoints": {SINK: committed_batches(batch, at, origin=origin).to_json()},
        "phase": "running",
        "updated_at": at,
        "result": None,
        "sinks": {
            SINK: {
                "state": "running",
                "query_id": "q",
                "run_id": "r",
                "batch": batch,
                "rows_per_second": 20.0,
                "duration_ms": 12,
                "state_rows": 5,
                "watermark": WATERMARK,
                "rows": 860,
                "output_rows": 850,
            }
        },
        "vertices": {},
        "query_runs": {SINK: "r"},
    }


def batch_progress(at: float) -> dict[str, Any]:
    told = {
        "state": "committed",
        "tasks": 4,
        "completed": 4,
        "running": 0,
        "stages": 2,
        "stages_done": 2,
        "bytes_read": 924,
    }
    return {"phase": "committing", "updated_at": at, "result": "FINISHED", "sinks": {SINK: told}, "vertices": {}}


class FlinkWorld:
    def __init__(self, tmp_path: Path, overrides: Mapping[str, str] | None = None) -> None:
        self.desk = Desk(tmp_path, dict(overrides or {}))
        self.now = self.started = 0.0
        self.reset()

    def reset(self) -> None:
        """As it was in the beginning: making an application takes longer than filling it."""
        self.now = time.time()
        self.started = self.now - 60
        gateway = self.desk.gateway = FakeGateway()
        gateway.resources = ResourceOverview((engine(ENGINE, self.started), engine(SECOND_ENGINE, self.started)), 0, 0)
        self.add_running(RUNNING, "golden-running")
        self.add_running(ADAPTIVE, "golden-adaptive")
        self.add_running(RUNNING_APPLICATION, "golden-application")
        self.add_ended(FINISHED, JobStatus.FINISHED, batch_graph("golden-finished"))
        self.add_ended(FINISHED_STREAM, JobStatus.FINISHED, stream_graph("golden-finished-stream"), batch=4)
        self.add_ended(STOPPED, JobStatus.FINISHED, stream_graph("golden-stopped"), batch=9, stopped=True)
        self.add_ended(CANCELED, JobStatus.CANCELED, stream_graph("golden-canceled"), batch=19)
        self.add_ended(CANCELED_APPLICATION, JobStatus.CANCELED, batch_graph("golden-canceled-batch"))
        self.add_ended(FAILED, JobStatus.FAILED, stream_graph("golden-failed"), batch=3)
        self.add_ended(FAILED_APPLICATION, JobStatus.FAILED, batch_graph("golden-failed-batch"))
        self.add_restarting()
        self.add_waiting()
        self._add_operations()
        flink_cluster_world.fill(self.desk, ENGINE)

    def add_running(self, job_id: JobID, name: str) -> None:
        graph = stream_graph(name)
        stamps = {"CREATED": self.started + 0.1, "RUNNING": self.started + 0.2}
        state = JobState(
            graph.settings.restart,
            attempt=1,
            deployed=True,
            engine_id=ENGINE,
            endpoint=ADDRESS,
            status=JobStatus.RUNNING,
            timestamps=stamps,
        )
        submission = submission_of(graph, job_id, submitted_at=self.started)
        self.desk.gateway.add(submission, state, progress=stream_progress(22, self.now - 1))

    def add_ended(
        self, job_id: JobID, status: JobStatus, graph: JobGraph, *, batch: int | None = None, stopped: bool = False
    ) -> None:
        submission = submission_of(graph, job_id, submitted_at=self.started)
        ended = self.now - 10
        failure = self.failure() if status is JobStatus.FAILED else None
        stamps = {"CREATED": self.started + 0.1, "RUNNING": self.started + 0.2, status.value: ended}
        entries = () if failure is None else (ExceptionEntry(failure, ended - 1, 1, {"type": "USER_ERROR"}),)
        state = JobState(
            graph.settings.restart, attempt=1, engine_id=ENGINE, status=status, timestamps=stamps, exceptions=entries
        )
        progress = batch_progress(ended) if batch is None else stream_progress(batch, ended)
        result = JobResult(
            job_id=job_id,
            name=graph.name,
            status=status,
            failure=failure,
            submitted_at=self.started,
            started_at=self.started + 0.2,
            ended_at=ended,
            attempts=1,
            restarts=0,
            digest=digest_of(graph),
            stopped=stopped,
            owner=submission.owner,
            mode=graph.mode.value,
            vertices=len(graph.vertices),
        )
        self.desk.gateway.add(submission, state, progress=progress, result=result)

    def add_restarting(self) -> None:
        graph = stream_graph("golden-restarting", restart={"type": "fixed-delay", "attempts": 5, "delay": "10 min"})
        stamps = {
            "CREATED": self.started + 20.1,
            "RUNNING": self.started + 20.2,
            "FAILING": self.now - 5.1,
            "RESTARTING": self.now - 5,
        }
        failed = ((1, self.started + 20), (2, self.now - 5))
        entries = tuple(ExceptionEntry(self.failure(), at, n, {"type": "USER_ERROR"}) for n, at in failed)
        first = PastAttempt(1, self.started + 0.2, self.started + 20, SECOND_ENGINE, "10.0.0.7:15002")
        second = PastAttempt(2, self.started + 20.2, self.now - 5, ENGINE, ADDRESS)
        went_on = Origin(3, self.started + 20.2)
        past = (
            Past()
            .after(first, stream_progress(3, self.started + 19))
            .after(second, stream_progress(7, self.now - 6, origin=went_on))
        )
        state = JobState(
            graph.settings.restart,
            attempt=2,
            engine_id=ENGINE,
            endpoint=ADDRESS,
            started_at=self.started + 20.2,
            past=past,
            status=JobStatus.RESTARTING,
            timestamps=stamps,
            exceptions=entries,
        )
        submission = submission_of(graph, RESTARTING, submitted_at=self.started)
        self.desk.gateway.add(submission, state, progress=stream_progress(7, self.now - 6, origin=went_on))

    def add_waiting(self) -> None:
        graph = batch_graph("golden-waiting")
        stamps = {"CREATED": self.started + 0.1}
        state = JobState(graph.settings.restart, status=JobStatus.CREATED, timestamps=stamps)
        self.desk.gateway.add(submission_of(graph, WAITING, submitted_at=self.started), state)

    def _add_operations(self) -> None:
        self.add_operation(
            RUNNING, SAVEPOINT, OperationKind.SAVEPOINT, {"location": "/sp/savepoint-250186-9c939776ca54"}
        )
        self.add_operation(RUNNING, CHECKPOINT, OperationKind.CHECKPOINT, {"batches": {SINK: 59}})
        self.add_operation(RUNNING, FAILED_SAVEPOINT, OperationKind.SAVEPOINT, error="/proc/nope cannot be written to")
        self.add_operation(NO_JOB, DISPOSAL, OperationKind.DISPOSAL, {})

    def add_operation(
        self,
        job_id: JobID,
        trigger_id: str,
        kind: OperationKind,
        result: dict[str, Any] | None = None,
        *,
        error: str = "",
    ) -> None:
        """Completed with `result`, failed with `error`, or under way with neither."""
        status = OperationStatus.FAILED if error else OperationStatus.IN_PROGRESS
        status = OperationStatus.COMPLETED if result is not None else status
        over = status is not OperationStatus.IN_PROGRESS
        self.desk.gateway.operations[job_id, trigger_id] = Operation(
            job_id,
            trigger_id,
            kind,
            started_at=self.now - 30,
            status=status,
            ended_at=self.now - 29 if over else None,
            result=result or {},
            error=error,
        )

    @staticmethod
    def failure() -> Failure:
        return Failure(
            FailureKind.USER_CODE,
            "division by zero",
            vertex=SINK,
            error_class="ZeroDivisionError",
            traceback='  File "job.py", line 3, in f\n    1 / 0\n',
        )


def engine(name: str, since: float) -> EngineOverview:
    return EngineOverview(
        engine_id=name,
        master="local[2]",
        memory="1g",
        cores=2,
        slots=8,
        free=7,
        state=EngineState.READY,
        since=since,
        address=ADDRESS,
        jobs=(RUNNING,),
    )


SUBSTITUTIONS: dict[str, str] = {
    **flink_cluster_world.SUBSTITUTIONS,
    GOLDEN_SOURCE: vertex_id(SOURCE),
    GOLDEN_SINK: vertex_id(SINK),
    f"/checkpoints/details/{FAILED_CHECKPOINT_NUMBER}": f"/checkpoints/details/{savepoint_number(FAILED_SAVEPOINT)}",
}
"""What stands in the golden requests, and what is asked here instead."""


def prepare(world: FlinkWorld, name: str) -> Mapping[str, Any] | None:
    """Bring the world into the state in which a golden answer was taken, where it is not the usual one.

    Returns the files of a form that is to be sent, for those that sent one.
    """
    match name:
        case "post_jobs_JOBID_stop_running":
            world.add_running(STOPPED, "golden-stopped")
        case "get_jobs_JOBID_savepoints_TRIGGERID_running-in-progress":
            world.add_operation(RUNNING, SAVEPOINT, OperationKind.SAVEPOINT)
        case "get_jobs_JOBID_checkpoints_TRIGGERID_running-configured-in-progress":
            world.add_operation(RUNNING, CHECKPOINT, OperationKind.CHECKPOINT)
        case "get_savepoint-disposal_TRIGGERID_ok-in-progress":
            world.add_operation(NO_JOB, DISPOSAL, OperationKind.DISPOSAL)
        case "get_jobs_JOBID_checkpoints_running":
            world.desk.gateway.operations.clear()
    return flink_cluster_world.files_of(world.desk, name)


OVERRIDES = {"security.rest.debug-endpoints": "true"}

PARAMETERS = {
    "jobid": RUNNING,
    "applicationid": RUNNING,
    "vertexid": vertex_id(SOURCE),
    "triggerid": SAVEPOINT,
    "checkpointid": "22",
    "subtaskindex": "0",
    "attempt": "0",
    "taskmanagerid": ENGINE,
    "rescaleuuid": "f" * 32,
    "datasetid": "f" * 32,
    "jarid": flink_cluster_world.PROGRAM,
}
"""Values for the parameters of paths."""

_BODIES: Mapping[tuple[str, str], Any] = {
    ("PATCH", "/jobs/{jobid}/clientHeartbeat"): {"expiredTimestamp": 1794726332623},
    ("POST", "/savepoint-disposal"): {"savepoint-path": "/sp/savepoint-250186-9c939776ca54"},
    ("PUT", "/jobs/{jobid}/resource-requirements"): {
        vertex_id(name): {"parallelism": {"lowerBound": 1, "upperBound": 2}} for name in (SOURCE, SINK)
    },
}


def request_for(world: FlinkWorld, method: str, path: str) -> dict[str, Any]:
    """A good request for an operation, as arguments of a client: `url`, and what else it needs."""
    values = dict(PARAMETERS)
    match path:
        case "/jobs/{jobid}/checkpoints/{triggerid}":
            values["triggerid"] = CHECKPOINT
        case "/savepoint-disposal/{triggerid}":
            values["triggerid"] = DISPOSAL
        case "/jobs/{jobid}/execution-result":
            values["jobid"] = FAILED
        case "/datasets/delete/{triggerid}":
            values["triggerid"] = flink_cluster_world.DATA_SET_TRIGGER
    request: dict[str, Any] = {"url": path.format(**values), **flink_cluster_world.request_for(method, path)}
    if path == "/jobs/{jobid}/rescaling":
        request["params"] = {"parallelism": 2}
    if method in ("POST", "PUT", "PATCH") and "files" not in request:
        request["json"] = _BODIES.get((method, path), {})
    return request
