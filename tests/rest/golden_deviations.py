"""Where our answers differ from Flink's on purpose, and why.

Every entry must be needed by some golden answer, and what it says is also said, for users, in the row of the operation in
`firesteel.flink_rest.coverage`; the conformance test sees to both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Deviation:
    goldens: str
    """Names of golden answers, as a pattern."""
    difference: str
    """A regular expression that the whole difference matches."""
    why: str

    def covers(self, golden: str, difference: str) -> bool:
        return fnmatchcase(golden, self.goldens) and re.fullmatch(self.difference, difference) is not None


_ANY_SHAPE = r"\$.*: (is missing|is not in the contract|is no error|is empty)"

DEVIATIONS: tuple[Deviation, ...] = (
    # -- below /jobs ------------------------------------------------------------------------------------------------
    Deviation(
        "get_jobs_JOBID_finished",
        r"\$\.stream-graph: is missing",
        "it comes with the AdaptiveBatch scheduler only; there is one scheduler here, which is called Default",
    ),
    Deviation(
        "get_jobs_JOBID_vertices_VERTEXID_subtasktimes_*",
        r"\$\.subtasks\[\]\.host: is not in the contract",
        "Flink's dashboard reads `host`, which Flink 2.3 does not send; both are sent",
    ),
    Deviation(
        "get_jobs_JOBID_jobmanager_environment_*",
        r"\$\.(classpath|jvm\.options): is empty",
        "the node is no JVM; arguments and variables of a process may hold secrets and are not shown",
    ),
    Deviation(
        "post_jobs_JOBID_checkpoints_error-unknown-job",
        r"status: 404 in place of 202|" + _ANY_SHAPE,
        "a trigger for an unknown job is refused at once; a failure that only memory holds would not survive a failover",
    ),
    Deviation(
        "get_jobs_JOBID_checkpoints_TRIGGERID_error-unknown-job-completed",
        r"status: 404 in place of 200|" + _ANY_SHAPE,
        "the trigger was refused, so there is no operation to ask for",
    ),
    Deviation(
        "post_jobs_JOBID_stop_already-stopped",
        r"status: 409 in place of 202|" + _ANY_SHAPE,
        "a job that has ended cannot be stopped, and that is said at once",
    ),
    Deviation(
        "get_jobs_JOBID_resource-requirements_error-unknown-job",
        r"status: 404 in place of 500|\$\.errors: 'Job 0{32} not found' in place of .*",
        "what a caller can cause is no error of the server",
    ),
    Deviation(
        "get_jobs_JOBID_resource-requirements_*",
        r"status: 200 in place of 500|\$: is no error",
        "the question has an answer: the parallelism that a vertex has is the only one that it can have",
    ),
    Deviation(
        "get_jobs_JOBID_rescales_details_RESCALEUUID_adaptive-after",
        r"status: 404 in place of 200|" + _ANY_SHAPE,
        "the golden answer is of the Adaptive scheduler; here nothing is rescaled, as with Flink's Default scheduler",
    ),
    Deviation(
        "get_jobs_JOBID_rescaling_TRIGGERID_error-unknown-trigger",
        r"status: 404 in place of 503|\$\.errors: 'There is no rescaling operation .*",
        "clients try again for a minute after a 503; there will be no such operation then either",
    ),
    Deviation(
        "patch_jobs_JOBID_rescaling_running",
        r"status: 409 in place of 503|\$\.errors: 'Rescaling is disabled: .*",
        "clients try again for a minute after a 503; this job will not change its parallelism then either",
    ),
    # -- the cluster ------------------------------------------------------------------------------------------------
    Deviation(
        "get_*_*",
        r"\$\.firesteel-version: is not in the contract",
        "flink-version is what clients go by; which Firesteel it is has a field of its own",
    ),
    Deviation(
        "get_applications_APPLICATIONID_exceptions_error-unknown",
        r"status: 404 in place of 500|\$\.errors: 'Could not find Flink application .*",
        "what a caller can cause is no error of the server",
    ),
    Deviation(
        "get_applications_APPLICATIONID_exceptions_failed",
        r"\$\.exceptionHistory\.entries\[\]\.jobId: is not in the contract",
        "Flink's OpenAPI document has it; the golden answer is of an application that failed before it had a job",
    ),
    Deviation(
        "get_datasets_delete_TRIGGERID_error-unknown-trigger",
        r"\$\.errors: 'Operation not found under key: f{32}' in place of .*OperationKey@1f'",
        "it names the trigger, not the address of an object",
    ),
    Deviation(
        "get_jobmanager_environment_cluster",
        r"\$\.(classpath|jvm\.options): is empty",
        "the node is no JVM; arguments and variables of a process may hold secrets and are not shown",
    ),
    Deviation(
        "*_profiler_*",
        r"status: 404 in place of 200|" + _ANY_SHAPE,
        "there is no profiler (S33); that is Flink's answer where it is off",
    ),
    Deviation(
        "get_taskmanagers_TASKMANAGERID_cluster",
        r"\$\.metrics\.garbageCollectors: is empty",
        "Spark would have to be asked, for every look at an engine",
    ),
    Deviation(
        "get_taskmanagers_TASKMANAGERID_error-unknown",
        r"status: 404 in place of 500|\$\.errors: 'No TaskExecutor registered under nope\.' .*",
        "what a caller can cause is no error of the server",
    ),
    Deviation(
        "get_taskmanagers_metrics-get-agg_cluster",
        r"\$: is empty",
        "load and used heap are known to Spark only; metrics that there are not are left out, as in Flink",
    ),
    # -- programs ---------------------------------------------------------------------------------------------------
    Deviation(
        "delete_jars_JARID_error-unknown-jar",
        r"\$\.errors: 'File nope\.jar does not exist in jars\.' in place of .*",
        "where files are on the server's disk is nobody's affair",
    ),
    Deviation(
        "post_jars_JARID_*_error-unknown-jar",
        r"status: 404 in place of 500|\$\.errors: 'Jar file nope\.jar does not exist' .*",
        "what a caller can cause is no error of the server",
    ),
    Deviation(
        "post_jars_JARID_plan_bad-class",
        r"status: 400 in place of 500|\$\.errors: .* in place of .*",
        "a module that the archive lacks is the caller's mistake, and no error of the server",
    ),
    Deviation(
        "post_jars_JARID_run_app-exception",
        r"status: 200 in place of 400|\$: is no error",
        "the program runs as the job, not in the control plane; that it fails is the job's failure",
    ),
    # -- / ----------------------------------------------------------------------------------------------------------
    Deviation(
        "get_root_cluster",
        r"status: 404 in place of 200|content type: .* in place of text/html",
        "Flink's dashboard is Flink's own; it can be served beside the API, but is not shipped",
    ),
    # -- POST /jobs -------------------------------------------------------------------------------------------------
    Deviation(
        "post_jobs_error-empty-body",
        r"\$\.errors: .* in place of 'The jobGraphFileName field must not be omitted or be null\.'",
        "what is submitted is a Firesteel job graph",
    ),
)
