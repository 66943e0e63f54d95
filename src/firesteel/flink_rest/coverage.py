"""Which operations of Flink's REST API there are here, what they show, and where they differ. One row for each.

The rows of what is empty or refused by design hold the answer too, and are all that there is of those operations: `fixed` makes
their routes. `docs/reference/flink-rest.md` is made from this (`coverage_page`), and tests compare it with the contract and
with the routes.
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
_NOT_ADAPTIVE = "404, as with Flink's Default scheduler: nothing is rescaled while it runs"
_AT_ONCE = (
    "An unknown job is 404 and one that cannot do it 409, at once; Flink accepts both and lets the operation fail"
)
_LIVE = "live; Flink's may be 3 s old"
_NO_STACK = "404 in place of 500 for an unknown job"
_FIXED = "the parallelism of a running job is fixed: stop it with a savepoint and submit it from there"
_DEBUG = "for admins, and only with `security.rest.debug-endpoints` or Flink's dashboard"
_DEBUG_DIFFERS = "403 unless it is switched on"
_NO_PROFILER = "404, as in Flink where the profiler is off"
_PROGRAM = "of an uploaded program"
_PYTHON = "Programs are Python files and pipelines, not jars"
_PROGRAM_RUNS = (
    f"{_PYTHON}; 404 in place of 500 for an unknown one, 400 for a module that it lacks; no code runs before the job does, so "
    "what is wrong with it is the job's failure"
)
_NODE_LOGS = "for admins, and viewers of everybody's jobs"

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
    _yes("GET", "/jobs", "the jobs that the caller sees, with their states"),
    _yes(
        "POST",
        "/jobs",
        "submits a Firesteel job graph, as JSON or YAML",
        "A Flink program (`flink run`) is refused with 400: a Java-serialised StreamGraph cannot run on Spark",
        specified=False,
    ),
    _yes("GET", "/jobs/metrics", "numRestarts, uptime and downtime over the jobs that have not ended"),
    _yes("GET", "/jobs/overview", "a line for each job that the caller sees, running or ended"),
    _yes(
        "GET",
        _JOB,
        f"the job with its vertices and plan, {_LIVE}",
        "schedulerType is always Default, so there is no `stream-graph`; a vertex has one subtask",
    ),
    _yes("PATCH", _JOB, "cancels the job; `mode=stop` is 308, as in Flink"),
    _yes("GET", f"{_JOB}/yarn-cancel", "cancels the job; pages of other sites cannot", specified=False),
    _no("GET", f"{_JOB}/yarn-stop", "308, as in Flink", _error(Asker.ANYBODY, 308, NO_STOP_MODE), specified=False),
    _yes("GET", f"{_JOB}/status", "the state of the job", _NO_STACK),
    _yes(
        "GET",
        f"{_JOB}/execution-result",
        "how the job ended, once it has; a failure with its cause, which Flink's Java client can read",
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
        "the failures of its attempts, newest first, with their labels, vertex and engine where they are known; the stack is "
        "the user's own frames",
    ),
    _yes(
        "GET",
        f"{_JOB}/plan",
        "the job graph; its edges are FORWARD, HASH, BROADCAST, REBALANCE, RANGE or GLOBAL as Spark plans them",
        "An edge is empty where that is not known: before the first batch, of batch jobs that are over in a moment, and where "
        "several vertices of a stream share a plan that moves rows",
    ),
    _yes("GET", f"{_JOB}/metrics", "restarts, times in states, and of a stream its checkpoints"),
    _yes("GET", f"{_JOB}/jobmanager/config", "as `/jobmanager/config`"),
    _yes(
        "GET",
        f"{_JOB}/jobmanager/environment",
        "as `/jobmanager/environment`",
        "It shows the Python that the node runs on; the lists of JVM options and of the class path are empty",
    ),
    _yes("GET", f"{_JOB}/jobmanager/log-url", "where Flink's dashboard has the node's logs"),
    _yes("GET", f"{_JOB}/taskmanagers/{{taskmanagerid}}/log-url", "where Flink's dashboard has the engine's logs"),
    _yes(
        "PATCH",
        f"{_JOB}/clientHeartbeat",
        "the client is there; the time that counts is the timeout with which the job was submitted",
    ),
    _no(
        "POST",
        f"{_JOB}/coordinators/{{operatorUid}}",
        "400: jobs have no operator coordinators",
        _error(
            Asker.CHANGES_JOB,
            400,
            "Job {jobid} has no operator coordinators: it runs on Spark; write what you want to read to a sink",
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
        'ends a stream after its batch, with a savepoint; `"savepoint": false` goes without',
        _AT_ONCE,
    ),
    _yes("POST", f"{_JOB}/checkpoints", "finds out up to which batch everything is committed", _AT_ONCE),
    _yes(
        "GET",
        f"{_JOB}/checkpoints/{{triggerid}}",
        "the outcome: the number of the last committed batch",
        "404 for an unknown job, whose trigger was refused",
    ),
    _yes("POST", "/savepoint-disposal", "removes a savepoint; for admins"),
    _yes("GET", "/savepoint-disposal/{triggerid}", "the outcome of a disposal"),
)

CHECKPOINTS: tuple[ContractRow, ...] = (
    _yes(
        "GET",
        f"{_JOB}/checkpoints",
        "each committed batch is a checkpoint; counts and history go on over restarts and leaders, and `restored` is what the "
        "last attempt went on from",
        "Only savepoints have a size, as Spark does not tell that of a batch; savepoints have numbers above 4294967296",
    ),
    _yes(
        "GET",
        f"{_JOB}/checkpoints/config",
        "interval, guarantee, and the state store that the stream's session has; the timeout is -1, as there is none",
    ),
    _yes("GET", _CHECKPOINT, "one of the last 50"),
    _yes("GET", f"{_CHECKPOINT}/subtasks/{{vertexid}}", "the same for a vertex and its one subtask"),
)

VERTICES: tuple[ContractRow, ...] = (
    _yes("GET", _VERTEX, "a vertex and its one subtask, whose attempts are the job's"),
    _yes(
        "GET",
        f"{_VERTEX}/subtasktimes",
        "when it entered which state",
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
        "how busy the queries that the vertex is in were in the last minute",
        "A batch begins when the last one is done, so nothing presses back: the ratio of back pressure is 0",
    ),
    _empty(
        "GET",
        f"{_VERTEX}/flamegraph",
        "the answer of flame graphs that are disabled",
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
    _yes("GET", f"{_VERTEX}/watermarks", "of a stream, the lowest watermark of the queries that the vertex is in"),
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
        "the parallelism that each vertex has, as both bounds",
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
        "409 in place of 503, which clients would try again",
    ),
    _no(
        "GET",
        f"{_JOB}/rescaling/{{triggerid}}",
        "404: there are no such operations",
        _error(Asker.SEES_JOB, 404, "There is no rescaling operation with triggerId={triggerid} for job {jobid}."),
        "404 in place of 503, which clients would try again",
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
        "GET", "/config", "settings for dashboards", "It has our version too; `flink-version` is that of the contract"
    ),
    _yes(
        "GET",
        "/overview",
        "engines, slots, and how many jobs the caller sees",
        "It has our version too; `flink-version` is that of the contract",
    ),
    _yes("DELETE", "/cluster", "ends the leading node, for admins; jobs and engines run on"),
    _yes("GET", "/applications/overview", "one application for each job, under the job's id"),
    _yes("GET", _APPLICATION, "the application of a job"),
    _yes("POST", f"{_APPLICATION}/cancel", "cancels the job"),
    _yes(
        "GET",
        f"{_APPLICATION}/exceptions",
        "the failures of the job",
        "404 in place of 500 for an unknown one; an entry has the job's id too",
    ),
    _yes("GET", f"{_APPLICATION}/jobmanager/config", "as `/jobmanager/config`"),
    _empty("GET", "/datasets", "Spark has no data sets that outlive a job", Fixed(Asker.ANYBODY, {"dataSets": []})),
    _empty(
        "DELETE",
        "/datasets/{datasetid}",
        "there is none to delete, so every deletion has succeeded",
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
    _yes("GET", "/jars", "the uploaded programs that the caller sees", _PYTHON),
    _yes("POST", "/jars/upload", "a `.py`, `.zip` or `.whl` file, or a pipeline as `.yaml` or `.json`", _PYTHON),
    _yes("DELETE", "/jars/{jarid}", "forgets a program; its jobs go on", f"{_PYTHON}; where its file was is not told"),
    _yes("GET", "/jars/{jarid}/plan", f"the graph {_PROGRAM}", _PROGRAM_RUNS, specified=False),
    _yes("POST", "/jars/{jarid}/plan", f"the graph {_PROGRAM}", _PROGRAM_RUNS),
    _yes(
        "POST",
        "/jars/{jarid}/run",
        "submits a program as a job; of a pipeline, the arguments are its variables, as `name=value`",
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
        "slots, engines, jobs, what the kernel tells of the node's process, and what the node counts",
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
        "404 in place of 500 for an unknown one; memory that Spark does not tell apart is 0",
    ),
    _yes("GET", f"{_ENGINE}/metrics", "what the engine was given, and what the kernel tells of its process"),
    _yes(
        "GET",
        "/taskmanagers/metrics",
        "the same over all engines",
        "Load and used heap, which only Spark knows, are not among them",
    ),
    _yes("GET", f"{_ENGINE}/logs", f"the log files of an engine, {_NODE_LOGS}"),
    _yes("GET", f"{_ENGINE}/logs/{{filename}}", f"one of them, {_NODE_LOGS}", specified=False),
    _yes("GET", f"{_ENGINE}/log", f"the log of an engine, {_NODE_LOGS}", specified=False),
    _empty(
        "GET",
        f"{_ENGINE}/stdout",
        "what an engine prints is in its log",
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
