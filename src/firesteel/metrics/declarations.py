"""Every metric that there is. The reference page is made of this table (`make docs`)."""

from __future__ import annotations

from typing import Any

from firesteel.metrics.metric import FAST, SLOW, Group, Kind, Metric

_declared: list[Metric] = []


def _declare(group: Group, name: str, kind: Kind, description: str, **more: Any) -> Metric:
    metric = Metric(group=group, name=name, kind=kind, description=description, **more)
    _declared.append(metric)
    return metric


def _counter(group: Group, name: str, description: str, **more: Any) -> Metric:
    return _declare(group, name, Kind.COUNTER, description, **more)


def _gauge(group: Group, name: str, description: str, **more: Any) -> Metric:
    return _declare(group, name, Kind.GAUGE, description, **more)


def _times(group: Group, name: str, description: str, **more: Any) -> Metric:
    return _declare(group, name, Kind.HISTOGRAM, description, unit="seconds", **more)


# -- the node: its process and its event loop ---------------------------------------------------------------------

LOOP_LAG = _times(
    Group.NODE, "event_loop_lag", "How late the event loop was when it was looked at, twice a second.", buckets=FAST
)
CPU = _counter(
    Group.NODE,
    "cpu",
    "Processor time that the node's process has used.",
    unit="seconds",
    flink="Status.JVM.CPU.Time",
    flink_factor=1_000_000_000,
)
THREADS = _gauge(Group.NODE, "threads", "Threads of the node's process.", flink="Status.JVM.Threads.Count")
RESIDENT = _gauge(
    Group.NODE,
    "resident_memory",
    "Resident memory of the node's process.",
    unit="bytes",
    flink="Status.Process.Memory.Resident",
)
DESCRIPTORS = _gauge(
    Group.NODE, "file_descriptors", "File descriptors that are open.", flink="Status.JVM.FileDescriptor.Open"
)
MAX_DESCRIPTORS = _gauge(
    Group.NODE, "max_file_descriptors", "File descriptors that may be open.", flink="Status.JVM.FileDescriptor.Max"
)
STARTED = _gauge(Group.NODE, "started", "When the node started, in seconds since 1970.", unit="seconds")
SERIES_REFUSED = _counter(
    Group.NODE, "series_refused", "Values that were not kept because their metric had too many series already."
)
COLLECTIONS_FAILED = _counter(
    Group.NODE, "collections_failed", "Times that something could not be measured when a report was due."
)
REPORTS = _counter(
    Group.NODE,
    "reports",
    "Reports of metric reporters, by reporter and outcome (`sent`, `failed`).",
    labels=("reporter", "outcome"),
)

# -- cluster and election -----------------------------------------------------------------------------------------

INFO = _gauge(Group.CLUSTER, "info", "Always 1; which version serves which cluster.", labels=("cluster_id", "version"))
LEADING = _gauge(Group.ELECTION, "leading", "1 while this node leads, 0 while it does not.")
EPOCH = _gauge(Group.ELECTION, "epoch", "The newest epoch in which this node has led; 0 before the first.")
GRANTS = _counter(Group.ELECTION, "grants", "Times that this node was granted leadership.")
REVOCATIONS = _counter(
    Group.ELECTION, "revocations", "Times that leadership was taken from this node, or was in doubt."
)
FENCED = _counter(Group.ELECTION, "fenced", "Times that something was refused because this node no longer led.")

# -- store --------------------------------------------------------------------------------------------------------

STORE_SECONDS = _times(
    Group.STORE,
    "operation",
    "Time of operations on the store, by operation (`get`, `list`, `paths`, `put`, `delete`).",
    labels=("operation",),
    buckets=FAST,
)
STORE_ERRORS = _counter(
    Group.STORE,
    "errors",
    "Operations on the store that failed, by operation and reason (`fenced`, `conflict`, `unavailable`, `other`).",
    labels=("operation", "reason"),
    known=tuple(
        (operation, reason)
        for operation in ("get", "list", "paths", "put", "delete")
        for reason in ("fenced", "conflict", "unavailable", "other")
    ),
)

# -- dispatcher ---------------------------------------------------------------------------------------------------

SUBMISSIONS = _declare(
    Group.DISPATCHER,
    "submissions",
    Kind.METER,
    "Submissions, by outcome (`accepted`, `refused`).",
    labels=("outcome",),
    known=(("accepted",), ("refused",)),
)
SUBMISSION_SECONDS = _times(
    Group.DISPATCHER, "submission", "Time until an accepted submission was durable.", buckets=FAST
)
JOBS = _gauge(Group.DISPATCHER, "jobs", "Jobs that are known, by state.", labels=("state",))
UNFINISHED_JOBS = _gauge(
    Group.DISPATCHER, "unfinished_jobs", "Jobs that have not ended, whether they run or wait.", flink="numRunningJobs"
)
ENDED_JOBS = _counter(
    Group.DISPATCHER,
    "ended_jobs",
    "Jobs that ended while this node led, by state.",
    labels=("state",),
    known=(("FINISHED",), ("FAILED",), ("CANCELED",)),
)
RECOVERY = _times(
    Group.DISPATCHER,
    "recovery",
    "Time from the grant of leadership until the Dispatcher serves.",
    buckets=SLOW,
)
RECOVERED_JOBS = _gauge(Group.DISPATCHER, "recovered_jobs", "Jobs that were found when this leadership began.")
TAKE_OVER = _times(
    Group.DISPATCHER,
    "take_over",
    "Time until it was known of all jobs of earlier leaders what became of them.",
    buckets=SLOW,
)
ATTEMPTS = _counter(Group.DISPATCHER, "attempts_started", "Attempts that were started.")
ATTEMPTS_FAILED = _counter(
    Group.DISPATCHER, "attempts_failed", "Attempts that failed, by kind of failure.", labels=("kind",)
)
RESTARTS = _counter(Group.DISPATCHER, "restarts", "Restarts of jobs after a failure.")
SAVEPOINTS = _counter(
    Group.DISPATCHER,
    "savepoints",
    "Savepoints that were asked for, alone or by a stop, by outcome (`completed`, `failed`).",
    labels=("outcome",),
    known=(("completed",), ("failed",)),
)
SAVEPOINT_SECONDS = _times(
    Group.DISPATCHER, "savepoint", "Time from the wish for a savepoint until it was complete.", buckets=SLOW
)

# -- resource manager and engines ---------------------------------------------------------------------------------

SLOTS = _gauge(Group.RESOURCE_MANAGER, "slots", "Slots of engines that are ready.", flink="taskSlotsTotal")
FREE_SLOTS = _gauge(
    Group.RESOURCE_MANAGER, "free_slots", "Slots that a job could have at once.", flink="taskSlotsAvailable"
)
ENGINES = _gauge(
    Group.RESOURCE_MANAGER, "engines", "Engines that are ready for jobs.", flink="numRegisteredTaskManagers"
)
STARTING_ENGINES = _gauge(Group.RESOURCE_MANAGER, "starting_engines", "Engines that are being started or taken over.")
CLASSIC_DRIVERS = _gauge(Group.RESOURCE_MANAGER, "classic_drivers", "Classic drivers, each in the room of an engine.")
WAITING = _gauge(Group.RESOURCE_MANAGER, "waiting_requests", "Jobs that wait for a slot.", flink="numWaitingJobs")
SLOT_WAIT = _times(Group.RESOURCE_MANAGER, "slot_wait", "How long jobs waited until they had a slot.", buckets=SLOW)
ENGINES_STARTED = _counter(Group.RESOURCE_MANAGER, "engines_started", "Engines that were started and answered.")
ENGINE_START = _times(Group.RESOURCE_MANAGER, "engine_start", "How long engines took to start.", buckets=SLOW)
ENGINES_NOT_STARTED = _counter(Group.RESOURCE_MANAGER, "engine_starts_failed", "Engines that did not start.")
ENGINES_LOST = _counter(
    Group.RESOURCE_MANAGER, "engines_lost", "Engines that were lost: ended, or silent for too long."
)

_ENGINE = ("engine_id",)
ENGINE_SLOTS = _gauge(Group.ENGINE, "slots", "Slots of the engine.", labels=_ENGINE, flink="Status.Slots.Total")
ENGINE_FREE = _gauge(
    Group.ENGINE, "free_slots", "Slots of the engine that are free.", labels=_ENGINE, flink="Status.Slots.Available"
)
ENGINE_CORES = _gauge(
    Group.ENGINE, "cores", "Cores of the engine; 0 where that is not known.", labels=_ENGINE, flink="Status.Cores"
)
ENGINE_HEAP = _gauge(
    Group.ENGINE,
    "max_heap",
    "Heap that the engine was given; 0 where that is not known.",
    unit="bytes",
    labels=_ENGINE,
    flink="Status.JVM.Memory.Heap.Max",
)
ENGINE_CPU = _counter(
    Group.ENGINE,
    "cpu",
    "Processor time of the engine's process.",
    unit="seconds",
    labels=_ENGINE,
    flink="Status.JVM.CPU.Time",
    flink_factor=1_000_000_000,
)
ENGINE_THREADS = _gauge(
    Group.ENGINE, "threads", "Threads of the engine's process.", labels=_ENGINE, flink="Status.JVM.Threads.Count"
)
ENGINE_RESIDENT = _gauge(
    Group.ENGINE,
    "resident_memory",
    "Resident memory of the engine's process.",
    unit="bytes",
    labels=_ENGINE,
    flink="Status.Process.Memory.Resident",
)
ENGINE_DESCRIPTORS = _gauge(
    Group.ENGINE,
    "file_descriptors",
    "File descriptors that the engine's process has open.",
    labels=_ENGINE,
    flink="Status.JVM.FileDescriptor.Open",
)

# -- jobs ---------------------------------------------------------------------------------------------------------

_JOB = ("job_id", "job_name", "owner")
JOB_STATE = _gauge(
    Group.JOB, "state", "Always 1; the state that a job is in which has not ended.", labels=(*_JOB, "state")
)
JOB_RESTARTS = _counter(Group.JOB, "restarts", "Restarts of the job so far.", labels=_JOB, flink="numRestarts")
JOB_UPTIME = _gauge(
    Group.JOB,
    "uptime",
    "How long the job has been running without a break; 0 while it does not.",
    unit="seconds",
    labels=_JOB,
    flink="uptime",
    flink_factor=1000,
)
JOB_DOWNTIME = _gauge(
    Group.JOB,
    "downtime",
    "How long the job has been waiting for its restart; 0 while it is not.",
    unit="seconds",
    labels=_JOB,
    flink="downtime",
    flink_factor=1000,
)

_VERTEX = (*_JOB, "vertex")
RECORDS_IN = _counter(
    Group.VERTEX,
    "records_in",
    "Rows that went into the vertex, over all attempts.",
    labels=_VERTEX,
    flink="numRecordsIn",
)
RECORDS_OUT = _counter(
    Group.VERTEX, "records_out", "Rows that came out of it, over all attempts.", labels=_VERTEX, flink="numRecordsOut"
)
BYTES_IN = _counter(Group.VERTEX, "bytes_in", "Bytes that it has read.", labels=_VERTEX, flink="numBytesIn")
BYTES_OUT = _counter(Group.VERTEX, "bytes_out", "Bytes that it has written.", labels=_VERTEX, flink="numBytesOut")

_STREAM = (*_JOB, "sink")
INPUT_RATE = _gauge(
    Group.STREAM,
    "input_rows_per_second",
    "Rows per second that the query worked off in its last batch.",
    labels=_STREAM,
    flink="numRecordsInPerSecond",
)
BATCH_SECONDS = _gauge(Group.STREAM, "batch_duration", "How long the last batch took.", unit="seconds", labels=_STREAM)
BATCHES = _counter(Group.STREAM, "batches", "Batches that the query has committed.", labels=_STREAM)
BUSY = _gauge(
    Group.STREAM,
    "busy_ratio",
    "Share of the last minute in which the query was at a batch, from 0 to 1.",
    labels=_STREAM,
    flink="busyTimeMsPerSecond",
    flink_factor=1000,
)
STATE_ROWS = _gauge(Group.STREAM, "state_rows", "Rows in the query's state.", labels=_STREAM, flink="stateRows")
WATERMARK_LAG = _gauge(
    Group.STREAM, "watermark_lag", "How far the watermark is behind the clock.", unit="seconds", labels=_STREAM
)
LAST_BATCH_AGE = _gauge(
    Group.STREAM, "last_batch_age", "How long ago the last batch was committed.", unit="seconds", labels=_STREAM
)

USER_VALUE = _gauge(
    Group.USER,
    "value",
    "What the code of a job counts itself, by the name that it chose.",
    labels=(*_JOB, "name"),
)

# -- REST ---------------------------------------------------------------------------------------------------------

REQUESTS = _times(
    Group.REST,
    "request",
    "Requests that were answered, by class (`submit`, `read`, `change`, `stream`, `page`, `probe`) and status (`2xx` …).",
    labels=("class", "status"),
    buckets=FAST,
)
OPEN_REQUESTS = _gauge(Group.REST, "open_requests", "Requests that are being answered.")

DECLARED = tuple(_declared)
