"""Loading the configuration: find the file, read all sources, and report every problem at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from firesteel.config.high_availability import HighAvailabilityOptions, KubernetesOptions, ZooKeeperOptions
from firesteel.config.option import ENVIRONMENT_PREFIX, MASK, Option, variable_of
from firesteel.config.resolver import resolve, unknown_variable
from firesteel.config.sections import (
    OPTIONS,
    SECTIONS,
    BlobOptions,
    CheckpointingOptions,
    CleanupOptions,
    ClientOptions,
    DataOptions,
    DispatcherOptions,
    DriverOptions,
    EngineOptions,
    ExecutionOptions,
    HeartbeatOptions,
    JavaOptions,
    JobManagerOptions,
    JobStoreOptions,
    LocalClusterOptions,
    LoggingOptions,
    MetricsOptions,
    ParallelismOptions,
    PipelineOptions,
    RestOptions,
    SecurityOptions,
    StateOptions,
    WebOptions,
    WorkerOptions,
    home,
    xdg,
)
from firesteel.config.sources import Entry, read_environment, read_file, read_overrides, shown_path
from firesteel.config.watching import HistoryServerOptions, LineageOptions, NotificationOptions
from firesteel.errors import InvalidConfigError, Problem

CONF_DIR_VARIABLE = "FIRESTEEL_CONF_DIR"

WORKER_TOKEN_VARIABLE = "FIRESTEEL_WORKER_TOKEN"  # noqa: S105 - the name of a variable
RESERVED_VARIABLES = frozenset(
    {CONF_DIR_VARIABLE, "FIRESTEEL_ENGINE_ID", "FIRESTEEL_APPLICATION_ID", WORKER_TOKEN_VARIABLE}
)
"""Variables with our prefix that are not options. The second marks the processes of an engine, the third those of a program,
and a worker joins with the last."""

DEFAULT = "default"

# The same words that Spark redacts by (spark.redaction.regex).
_SPARK_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)


_ATTRIBUTES = {
    o.key: section.PREFIX.rpartition(".")[2].replace("-", "_") for section in SECTIONS for o in section.OPTIONS
}


def attribute_of(option: Option) -> str:
    """The attribute of the Configuration that holds the section of `option`: the last part of its prefix."""
    return _ATTRIBUTES[option.key]


class Row(NamedTuple):
    """One setting as users see it."""

    key: str
    value: str
    """The value as text; secrets are masked."""
    origin: str
    description: str


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """All settings, each with where it came from. Read once at the start and passed down."""

    data: DataOptions
    engine: EngineOptions
    worker: WorkerOptions
    java: JavaOptions
    driver: DriverOptions
    state: StateOptions
    checkpointing: CheckpointingOptions
    execution: ExecutionOptions
    parallelism: ParallelismOptions
    high_availability: HighAvailabilityOptions
    zookeeper: ZooKeeperOptions
    kubernetes: KubernetesOptions
    dispatcher: DispatcherOptions
    jobstore: JobStoreOptions
    cleanup_strategy: CleanupOptions
    pipeline: PipelineOptions
    jobmanager: JobManagerOptions
    historyserver: HistoryServerOptions
    lineage: LineageOptions
    notifications: NotificationOptions
    heartbeat: HeartbeatOptions
    rest: RestOptions
    web: WebOptions
    security: SecurityOptions
    logging: LoggingOptions
    metrics: MetricsOptions
    blob: BlobOptions
    client: ClientOptions
    local_cluster: LocalClusterOptions
    spark: Mapping[str, str]
    """Keys that start with `spark.`, untouched."""
    file: Path | None
    """The file that was read, if any."""
    deprecations: tuple[Problem, ...]
    """Settings that still work under an old name; to be shown as warnings."""
    origins: Mapping[str, str]

    def origin(self, key: str) -> str:
        """Where the value of `key` was set: `default`, `file firesteel.yaml:3`, `environment FIRESTEEL_...` or `-D`.

        Raises KeyError for a key that is neither an option nor a Spark setting of this configuration.
        """
        if key in self.origins:
            return self.origins[key]
        if key not in known_keys():
            raise KeyError(key)
        return DEFAULT

    def rows(self) -> Iterator[Row]:
        """Every option in the order of the reference, then the Spark settings by name."""
        for o in OPTIONS:
            section = getattr(self, attribute_of(o))
            yield Row(o.key, o.show(getattr(section, o.attribute)), self.origin(o.key), o.description)
        for key, value in sorted(self.spark.items()):
            shown = MASK if _SPARK_SECRET.search(key) else value
            yield Row(key, shown, self.origin(key), "Passed to Spark unchanged.")

    def __repr__(self) -> str:  # spark.* may hold passwords
        return "\n".join(f"{row.key}={row.value}" for row in self.rows())


def known_keys() -> tuple[str, ...]:
    """The key of every option, in the order of the reference."""
    return tuple(o.key for o in OPTIONS)


def is_option(key: str) -> bool:
    """Whether `key` sets an option, under its name or a deprecated one. `spark.*` keys are not options."""
    return any(key == o.key or key in o.deprecated for o in OPTIONS)


def load_configuration(
    *,
    file: Path | None = None,
    overrides: Mapping[str, str] = MappingProxyType({}),
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> Configuration:
    """The configuration from -D over environment over file over defaults.

    Args:
        file: The file to read, which must exist. None: $FIRESTEEL_CONF_DIR/config.yaml, else ./firesteel.yaml, else
            ~/.config/firesteel/config.yaml, the first that exists.
        overrides: What was given with -D.
        environ: The environment.
        cwd: Where relative paths start, except those in a file.

    Raises:
        InvalidConfigError: With every problem of all sources.
    """
    cwd = (cwd or Path.cwd()).absolute()
    problems: list[Problem] = []
    if file is None:
        problems += _check_conf_dir(environ, cwd)
        file = find_file(environ, cwd)
    else:
        file = cwd / file

    from_file: list[Entry] = []
    if file is not None:
        from_file, found = read_file(file, shown=shown_path(file, cwd))
        problems += found
    variables = {variable_of(key): key for o in OPTIONS for key in (o.key, *o.deprecated)}
    from_environment, unknown = read_environment(
        environ, variables, prefix=ENVIRONMENT_PREFIX, reserved=RESERVED_VARIABLES, cwd=cwd
    )
    from_overrides = read_overrides(overrides, cwd=cwd)

    entries = [*from_file, *from_environment, *from_overrides]
    resolution = resolve(OPTIONS, entries, environ=environ, home=home(environ))
    problems += resolution.problems
    problems += [unknown_variable(variable, OPTIONS) for variable in unknown]
    if problems:
        raise InvalidConfigError(problems)
    values: Mapping[str, Any] = resolution.values
    return Configuration(
        data=DataOptions.of(values),
        engine=EngineOptions.of(values),
        worker=WorkerOptions.of(values),
        java=JavaOptions.of(values),
        driver=DriverOptions.of(values),
        state=StateOptions.of(values),
        checkpointing=CheckpointingOptions.of(values),
        execution=ExecutionOptions.of(values),
        parallelism=ParallelismOptions.of(values),
        high_availability=HighAvailabilityOptions.of(values),
        zookeeper=ZooKeeperOptions.of(values),
        kubernetes=KubernetesOptions.of(values),
        dispatcher=DispatcherOptions.of(values),
        jobstore=JobStoreOptions.of(values),
        cleanup_strategy=CleanupOptions.of(values),
        pipeline=PipelineOptions.of(values),
        jobmanager=JobManagerOptions.of(values),
        historyserver=HistoryServerOptions.of(values),
        lineage=LineageOptions.of(values),
        notifications=NotificationOptions.of(values),
        heartbeat=HeartbeatOptions.of(values),
        rest=RestOptions.of(values),
        web=WebOptions.of(values),
        security=SecurityOptions.of(values),
        logging=LoggingOptions.of(values),
        metrics=MetricsOptions.of(values),
        blob=BlobOptions.of(values),
        client=ClientOptions.of(values),
        local_cluster=LocalClusterOptions.of(values),
        spark=MappingProxyType(resolution.spark),
        file=file,
        deprecations=tuple(resolution.deprecations),
        origins=MappingProxyType({key: str(origin) for key, origin in resolution.origins.items()}),
    )


def find_file(environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The file that is read when none is given, or None when there is none."""
    conf_dir = environ.get(CONF_DIR_VARIABLE)
    places = [cwd / conf_dir / "config.yaml"] if conf_dir else []
    places += [cwd / "firesteel.yaml", xdg(environ, "XDG_CONFIG_HOME", ".config") / "firesteel" / "config.yaml"]
    # os.path answers False where Path raises: in a directory that is closed to us.
    return next((p for p in places if os.path.exists(p)), None)


def _check_conf_dir(environ: Mapping[str, str], cwd: Path) -> list[Problem]:
    conf_dir = environ.get(CONF_DIR_VARIABLE)
    if not conf_dir or os.path.isdir(cwd / conf_dir):
        return []
    return [
        Problem(f"{CONF_DIR_VARIABLE} names '{conf_dir}', which is not a directory", "create it, or unset the variable")
    ]
