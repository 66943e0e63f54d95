"""The operations of Flink's REST API, what each of them shows here, and how it differs. One row for each.

Rows of operations that are empty or refused by design also hold the answer, and are their only implementation: `fixed` makes
their routes. `docs/reference/flink-rest.md` is generated from this table (`coverage_page`), and tests compare it with the
contract and the routes.
"""

from __future__ import annotations

from firesteel.flink_rest.table import Asker, ContractRow, ContractSection, Fixed, How


def _yes(method: str, path: str, shows: str, differs: str = "", *, specified: bool = True) -> ContractRow:
    return ContractRow(method, path, How.IMPLEMENTED, shows, differs, specified)


def _empty(
    method: str, path: str, shows: str, answer: Fixed, differs: str = "", *, specified: bool = True
) -> ContractRow:
    return ContractRow(method, path, How.EMPTY, shows, differs, specified, answer)


def _no(
    method: str, path: str, shows: str, answer: Fixed | None, differs: str = "", *, specified: bool = True
) -> ContractRow:
    return ContractRow(method, path, How.REFUSED, shows, differs, specified, answer)


def _error(asker: Asker, status: int, message: str, *query: str) -> Fixed:
    return Fixed(asker, {"errors": [message]}, status, query)


_JOB = "/jobs/{jobid}"
_CHECKPOINT = f"{_JOB}/checkpoints/details/{{checkpointid}}"
_VERTEX = f"{_JOB}/vertices/{{vertexid}}"
_SUBTASK = f"{_VERTEX}/subtasks/{{subtaskindex}}"
_ATTEMPT = f"{_SUBTASK}/attempts/{{attempt}}"
_APPLICATION = "/applications/{applicationid}"
_ENGINE = "/taskmanagers/{taskmanagerid}"

_NO_ACCUMULATORS = "Spark's accumulators stay within Spark"
_NOT_ADAPTIVE = "404, as with Flink's Default scheduler: running jobs are not rescaled"
_AT_ONCE = (
    "An unknown job gets 404 and one in the wrong state 409, at once; Flink accepts both and lets the operation fail"
)
_LIVE = "live; Flink's answer may be 3 s old"
_NO_STACK = "404 instead of 500 for an unknown job"
_FIXED = "the parallelism of a running job is fixed: stop it with a savepoint and submit it from there"
_DEBUG = "for admins, and only with `security.rest.debug-endpoints` or Flink's dashboard enabled"
_DEBUG_DIFFERS = "403 unless it is enabled"
_NO_PROFILER = "404, as in Flink with the profiler off"
_PROGRAM = "of an uploaded program"
_PYTHON = "Programs are Python files and pipelines, not jars"
_PROGRAM_RUNS = (
    f"{_PYTHON}; 404 instead of 500 for an unknown one, 400 for a missing module; no code runs before the job starts, so "
    "errors in the code are failures of the job"
)
_NODE_LOGS = "for admins, and viewers of all owners"

NO_STOP_MODE = (
    'The termination mode "stop" has been removed. For an ungraceful shutdown, please use "cancel" instead. '
    'For a graceful shutdown, please use "jobs/:jobId/stop" instead.'
)
_NO_RESCALES = _error(
    Asker.SEES_JOB,
    404,
    "The job `{jobid}` has not enabled the `Adaptive` scheduler, or it has been enabled but the value of "
    "configuration option `web.adaptive-scheduler.rescale-history.size` has not been set to greater than `0`.",
)

JOBS: tuple[ContractRow, ...] = (
    _yes("GET", "/jobs", "the jobs that the caller may see, with their states"),
    _yes(
        "POST",
        "/jobs",
        "submits a Firesteel job graph, as JSON or YAML",
        "A Flink program (`flink run`) is refused with 400: a Java-serialised StreamGraph cannot run on Spark",
        specified=False,
    ),
    _yes("GET", "/jobs/metrics", "numRestarts, uptime and downtime of the jobs that have not ended"),
    _yes("GET", "/jobs/overview", "a row for each job that the caller may see, running or ended"),
    _yes(
        "GET",
        _JOB,
        f"the job with its vertices and plan, {_LIVE}",
        "schedulerType is always Default, so there is no `stream-graph`; a vertex has one subtask",
    ),
    _yes("PATCH", _JOB, "cancels the job; `mode=stop` is 308, as in Flink"),
    _yes("GET", f"{_JOB}/yarn-cancel", "cancels the job; refused to pages of other sites", specified=False),
    _no("GET", f"{_JOB}/yarn-stop", "308, as in Flink", _error(Asker.ANYBODY, 308, NO_STOP_MODE), specified=False),
    _yes("GET", f"{_JOB}/status", "the state of the job", _NO_STACK),
    _yes(
        "GET",
        f"{_JOB}/execution-result",
        "how the job ended; a failure with its cause, in a form that Flink's Java client can read",
    ),
    _empty(
        "GET",
        f"{_JOB}/accumulators",
        _NO_ACCUMULATORS,
        Fixed(
            Asker.SEES_JOB,
            {"job-accumulators": [], "user-task-accumulators": [], "serialized-user-task-accumulators": {}},
            query=("includeSerializedValue",),
        ),
    ),
    _yes("GET", f"{_JOB}/config", "restart strategy, parallelism, and the job's Spark settings with secrets masked"),
    _yes(
        "GET",
        f"{_JOB}/exceptions",
        "the failures of its attempts, newest first, with labels, vertex and engine where they are known; the stack shows "
        "only frames of user code",
    ),
    _yes(
        "GET",
        f"{_JOB}/plan",
        "the job graph; its edges are FORWARD, HASH, BROADCAST, REBALANCE, RANGE or GLOBAL as Spark plans them",
        "An edge is empty if this is unknown: before the first batch, for very short batch jobs, and where several vertices of "
        "a stream share a plan with an exchange",
    ),
    _yes("GET", f"{_JOB}/metrics", "restarts, times in states, and the checkpoints of a stream"),
    _yes("GET", f"{_JOB}/jobmanager/config", "as `/jobmanager/config`"),
    _yes(
        "GET",
        f"{_JOB}/jobmanager/environment",
        "as `/jobmanager/environment`",
        "It shows the node's Python; the lists of JVM options and of the class path are empty",
    ),
    _yes("GET", f"{_JOB}/jobmanager/log-url", "the URL of the node's logs in Flink's dashboard"),
    _yes("GET", f"{_JOB}/taskmanagers/{{taskmanagerid}}/log-url", "the URL of the engine's logs in Flink's dashboard"),
    _yes(
        "PATCH",
        f"{_JOB}/clientHeartbeat",
        "reports that the client is alive; the timeout is the one that the job was submitted with",
    ),
    _no(
        "POST",
        f"{_JOB}/coordinators/{{operatorUid}}",
        "400: jobs have no operator coordinators",
        _error(
            Asker.CHANGES_JOB,
            400,
            "Job {jobid} has no operator coordinators, as it runs on Spark; write the data to a sink instead",
        ),
        specified=False,
    ),
)

OPERATIONS: tuple[ContractRow, ...] = (
    _yes("POST", f"{_JOB}/savepoints", "takes a savepoint of a stream while it runs", _AT_ONCE),
    _yes("GET", f"{_JOB}/savepoints/{{triggerid}}", "the outcome of a savepoint or a stop"),
    _yes(
        "POST",
        f"{_JOB}/stop",
        'stops a stream after its current batch, with a savepoint, or without one with `"savepoint": false`',
        _AT_ONCE,
    ),
    _yes("POST", f"{_JOB}/checkpoints", "determines the last batch that is committed everywhere", _AT_ONCE),
    _yes(
        "GET",
        f"{_JOB}/checkpoints/{{triggerid}}",
        "the outcome: the number of the last committed batch",
        "404 for an unknown job, as its trigger was refused",
    ),
    _yes("POST", "/savepoint-disposal", "removes a savepoint; for admins"),
    _yes("GET", "/savepoint-disposal/{triggerid}", "the outcome of a disposal"),
)

CHECKPOINTS: tuple[ContractRow, ...] = (
    _yes(
        "GET",
        f"{_JOB}/checkpoints",
        "each committed batch is a checkpoint; counts and history continue across restarts and leaders, and `restored` is what "
        "the last attempt started from",
        "Only savepoints have a size, as Spark does not report that of a batch; savepoints have numbers above 4294967296",
    ),
    _yes(
        "GET",
        f"{_JOB}/checkpoints/config",
        "interval, guarantee, and the state store of the stream's session; the timeout is -1, as there is none",
    ),
    _yes("GET", _CHECKPOINT, "one of the last 50"),
    _yes("GET", f"{_CHECKPOINT}/subtasks/{{vertexid}}", "the same for a vertex and its one subtask"),
)

VERTICES: tuple[ContractRow, ...] = (
    _yes("GET", _VERTEX, "a vertex and its one subtask, whose attempts are the job's"),
    _yes(
        "GET",
        f"{_VERTEX}/subtasktimes",
        "the time at which it entered each state",
        "It has `host` too, which Flink's dashboard reads and Flink 2.3 does not send",
    ),
    _yes("GET", f"{_VERTEX}/taskmanagers", "the engine that the job is on"),
    _empty(
        "GET",
        f"{_VERTEX}/accumulators",
        _NO_ACCUMULATORS,
        Fixed(Asker.SEES_VERTEX, {"id": "{vertexid}", "user-accumulators": []}),
    ),
    _yes(
        "GET",
        f"{_VERTEX}/backpressure",
        "how busy the queries of the vertex were in the last minute",
        "A batch starts when the last one is done, so there is no back pressure and its ratio is 0",
    ),
    _empty(
        "GET",
        f"{_VERTEX}/flamegraph",
        "the answer for disabled flame graphs",
        Fixed(Asker.SEES_JOB, {"endTimestamp": -2}, query=("type", "subtaskindex")),
    ),
    _yes(
        "GET",
        f"{_VERTEX}/metrics",
        "records, bytes, rates, busy time, state rows and watermark, as far as they are known",
    ),
    _empty(
        "GET",
        f"{_VERTEX}/jm-operator-metrics",
        "there are no operator coordinators",
        Fixed(Asker.ANYBODY, [], query=("get",)),
    ),
    _yes("GET", f"{_VERTEX}/watermarks", "for a stream, the lowest watermark of the queries of the vertex"),
    _empty(
        "GET",
        f"{_VERTEX}/subtasks/accumulators",
        _NO_ACCUMULATORS,
        Fixed(
            Asker.SEES_VERTEX,
            {
                "id": "{vertexid}",
                "parallelism": "{parallelism}",
                "subtasks": [
                    {"subtask": 0, "attempt": "{attempt}", "endpoint": "{endpoint}", "user-accumulators": []},
                ],
            },
        ),
    ),
    _yes("GET", f"{_VERTEX}/subtasks/metrics", "the same over the one subtask"),
    _yes("GET", _SUBTASK, "the current attempt"),
    _yes("GET", f"{_SUBTASK}/metrics", "as for the vertex"),
    _yes("GET", _ATTEMPT, "one attempt: the current one or one of the 16 before it"),
    _empty(
        "GET",
        f"{_ATTEMPT}/accumulators",
        _NO_ACCUMULATORS,
        Fixed(
            Asker.SEES_ATTEMPT,
            {
                "subtask": 0,
                "attempt": "{attempt}",
                "id": "{jobid}_{vertexid}_0_{attempt}",
                "user-accumulators": [],
            },
        ),
    ),
)

RESCALING: tuple[ContractRow, ...] = (
    _yes(
        "GET",
        f"{_JOB}/resource-requirements",
        "the parallelism of each vertex, as both bounds",
        "Flink answers 500 unless the scheduler is Adaptive, and for an unknown job",
    ),
    _yes("PUT", f"{_JOB}/resource-requirements", "accepted if the parallelism is within the bounds, else 409", _FIXED),
    _no(
        "GET",
        f"{_JOB}/rescales/config",
        _NOT_ADAPTIVE,
        _error(Asker.SEES_JOB, 404, "AdaptiveScheduler is not enabled for this job ({jobid})."),
    ),
    _no("GET", f"{_JOB}/rescales/overview", _NOT_ADAPTIVE, _NO_RESCALES),
    _no("GET", f"{_JOB}/rescales/summary", _NOT_ADAPTIVE, _NO_RESCALES),
    _no("GET", f"{_JOB}/rescales/history", _NOT_ADAPTIVE, _NO_RESCALES),
    _no(
        "GET",
        f"{_JOB}/rescales/details/{{rescaleuuid}}",
        _NOT_ADAPTIVE,
        _error(Asker.SEES_JOB, 404, "Could not find rescale details of specified rescaleUuid {rescaleuuid}."),
        "There are none, with any scheduler",
    ),
    _no(
        "PATCH",
        f"{_JOB}/rescaling",
        _FIXED,
        _error(
            Asker.CHANGES_JOB,
            409,
            "Rescaling is disabled: the parallelism of a running job is fixed; stop the job with a savepoint and submit it "
            "from there with another parallelism",
            "parallelism",
        ),
        "409 instead of 503, which clients would retry",
    ),
    _no(
        "GET",
        f"{_JOB}/rescaling/{{triggerid}}",
        "404: there are no rescaling operations",
        _error(Asker.SEES_JOB, 404, "There is no rescaling operation with triggerId={triggerid} for job {jobid}."),
        "404 instead of 503, which clients would retry",
    ),
)

CLUSTER: tuple[ContractRow, ...] = (
    _yes(
        "GET",
        "/",
        "Firesteel's [dashboard](../operations/dashboard.md)",
        "Flink's own is below `/flink/`, where `web.flink-dashboard.dir` names its files",
        specified=False,
    ),
    _yes(
        "GET",
        "/config",
        "settings for dashboards",
        "It also has Firesteel's version; `flink-version` is that of the contract",
    ),
    _yes(
        "GET",
        "/overview",
        "engines, slots, and the number of jobs that the caller may see",
        "It also has Firesteel's version; `flink-version` is that of the contract",
    ),
    _yes("DELETE", "/cluster", "ends the leading node, for admins; jobs and engines keep running"),
    _yes(
        "GET",
        "/applications/overview",
        "in an application cluster its application; else one for each job, under the job's id",
    ),
    _yes("GET", _APPLICATION, "the application of a job"),
    _yes("POST", f"{_APPLICATION}/cancel", "cancels the job"),
    _yes(
        "GET",
        f"{_APPLICATION}/exceptions",
        "the failures of the job",
        "404 instead of 500 for an unknown one; an entry also has the job's id",
    ),
    _yes("GET", f"{_APPLICATION}/jobmanager/config", "as `/jobmanager/config`"),
    _empty("GET", "/datasets", "Spark has no data sets that outlive a job", Fixed(Asker.ANYBODY, {"dataSets": []})),
    _empty(
        "DELETE",
        "/datasets/{datasetid}",
        "there is none to delete, so every deletion succeeds",
        Fixed(Asker.DELETES_DATA_SET, {"request-id": "{drawn}"}, 202),
    ),
    _empty(
        "GET",
        "/datasets/delete/{triggerid}",
        "the outcome of such a deletion",
        Fixed(Asker.DELETED_DATA_SET, {"status": {"id": "COMPLETED"}, "operation": {}}),
        "The error for an unknown trigger names the trigger",
    ),
)

PROGRAMS: tuple[ContractRow, ...] = (
    _yes("GET", "/jars", "the uploaded programs that the caller may see", _PYTHON),
    _yes("POST", "/jars/upload", "a `.py`, `.zip` or `.whl` file, or a pipeline as `.yaml` or `.json`", _PYTHON),
    _yes(
        "DELETE",
        "/jars/{jarid}",
        "removes a program; its jobs continue",
        f"{_PYTHON}; the path of its file is not shown",
    ),
    _yes("GET", "/jars/{jarid}/plan", f"the graph {_PROGRAM}", _PROGRAM_RUNS, specified=False),
    _yes("POST", "/jars/{jarid}/plan", f"the graph {_PROGRAM}", _PROGRAM_RUNS),
    _yes(
        "POST",
        "/jars/{jarid}/run",
        "submits a program as a job; the arguments of a pipeline are its variables, as `name=value`",
        f"{_PROGRAM_RUNS}; flinkConfiguration takes `spark.*` keys and `pipeline.name`",
    ),
    _yes("POST", "/jars/{jarid}/run-application", "the same", _PROGRAM_RUNS),
)

NODES: tuple[ContractRow, ...] = (
    _yes("GET", "/jobmanager/config", "the configuration of the node, with secrets masked"),
    _yes(
        "GET",
        "/jobmanager/environment",
        "the Python that the node runs on",
        "The lists of JVM options and of the class path are empty",
    ),
    _yes(
        "GET",
        "/jobmanager/metrics",
        "slots, engines, jobs, the kernel's figures for the node's process, and the node's own metrics",
    ),
    _yes("GET", "/jobmanager/logs", f"the log files of the node, {_NODE_LOGS}"),
    _yes("GET", "/jobmanager/logs/{filename}", f"one of them, {_NODE_LOGS}", specified=False),
    _yes("GET", "/jobmanager/log", f"the log of the node, {_NODE_LOGS}", specified=False),
    _yes("GET", "/jobmanager/stdout", f"what the node printed, {_NODE_LOGS}", specified=False),
    _yes("GET", "/jobmanager/thread-dump", f"threads and tasks of the node, {_DEBUG}", _DEBUG_DIFFERS),
    _no("GET", "/jobmanager/profiler", _NO_PROFILER, None, _NO_PROFILER, specified=False),
    _no("POST", "/jobmanager/profiler", _NO_PROFILER, None, _NO_PROFILER, specified=False),
    _yes("GET", "/taskmanagers", "the engines: each is a task manager, and its slots are its slots"),
    _yes(
        "GET",
        _ENGINE,
        "one engine and the jobs on it",
        "404 instead of 500 for an unknown one; memory that Spark does not report separately is 0",
    ),
    _yes("GET", f"{_ENGINE}/metrics", "the engine's resources, and the kernel's figures for its process"),
    _yes(
        "GET",
        "/taskmanagers/metrics",
        "the same over all engines",
        "Load and used heap, which only Spark knows, are not included",
    ),
    _yes("GET", f"{_ENGINE}/logs", f"the log files of an engine, {_NODE_LOGS}"),
    _yes("GET", f"{_ENGINE}/logs/{{filename}}", f"one of them, {_NODE_LOGS}", specified=False),
    _yes("GET", f"{_ENGINE}/log", f"the log of an engine, {_NODE_LOGS}", specified=False),
    _empty(
        "GET",
        f"{_ENGINE}/stdout",
        "the output of an engine is in its log",
        Fixed(Asker.SEES_ENGINE, ""),
        specified=False,
    ),
    _yes("GET", f"{_ENGINE}/thread-dump", f"threads of an engine, {_DEBUG}", _DEBUG_DIFFERS),
    _no("GET", f"{_ENGINE}/profiler", _NO_PROFILER, None, _NO_PROFILER, specified=False),
    _no("POST", f"{_ENGINE}/profiler", _NO_PROFILER, None, _NO_PROFILER, specified=False),
)

SECTIONS: tuple[ContractSection, ...] = (
    ContractSection("Jobs", "jobs", JOBS),
    ContractSection("Savepoints, stops and checkpoints on demand", "operations", OPERATIONS),
    ContractSection("Checkpoints", "checkpoints", CHECKPOINTS),
    ContractSection("Vertices", "vertices", VERTICES),
    ContractSection("Rescaling", "rescaling", RESCALING),
    ContractSection("Cluster, applications and data sets", "cluster", CLUSTER),
    ContractSection("Programs", "jars", PROGRAMS),
    ContractSection("Nodes and engines", "taskmanagers", NODES),
)

ROWS: tuple[ContractRow, ...] = tuple(row for section in SECTIONS for row in section.rows)
