"""Checks whether this machine is ready for Firesteel. Each check gives a Finding: what was seen and, if needed, what to do.

Nothing is changed, no Spark is started and pyspark is not imported (that alone takes a second): versions are read
from what is installed. Values of environment variables are not shown, because they may hold tokens and passwords.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from firesteel.engines import java as java_module
from firesteel.errors import EnvironmentNotReadyError
from firesteel.sandbox import landlock

Status = Literal["ok", "warn", "missing", "optional"]
_GIB = 1024**3

MINIMUM_PYTHON = (3, 11)
SPARK_VERSION = (4, 3)
LITTLE_MEMORY = 2 * _GIB
"""An engine with a 1 GiB heap, its Python workers and the control plane just fit into this."""
LITTLE_DISK = 2 * _GIB
"""A class archive takes 0.2 GiB; the rest is for shuffles, checkpoints and logs."""

PACKAGES: Mapping[str, tuple[str, str | None]] = {
    "pyspark": ("4.3.0", "4.4"),
    "pandas": ("2.2", "3"),
    "pyarrow": ("18", "27"),
    "grpcio": ("1.76", None),
}
"""The required versions of each distribution: the first that fits, and the first after it that does not."""

INTERFERING_VARIABLES: Mapping[str, str] = {
    "SPARK_REMOTE": "PySpark programs would go to that Spark Connect server",
    "SPARK_LOCAL_REMOTE": "PySpark programs would look for a Spark Connect server in their own process",
    "SPARK_CONNECT_MODE_ENABLED": "PySpark treats every session as remote, so classic drivers would fail",
    "SPARK_API_MODE": "it overrides which of Spark's two APIs a program gets",
    "PYSPARK_SUBMIT_ARGS": "PySpark adds these arguments to every classic driver",
    "JAVA_TOOL_OPTIONS": "every Java uses these options and prints a notice on stderr",
    "JDK_JAVA_OPTIONS": "every Java uses these options and prints a notice on stderr",
    "_JAVA_OPTIONS": "every Java uses these options, which override Firesteel's",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str
    status: Status
    """`ok`: nothing to do. `warn`: works, but not well or not always. `missing`: no job can run before this is
    fixed. `optional`: missing, but only some jobs need it.
    """
    detail: str
    fix: str = ""
    """What to do, in the imperative; for `optional`, how to get it."""


def examine(
    *,
    data_dir: Path,
    java_home: Path | None,
    class_archive: Path | None,
    engines: Sequence[str] | None = None,
    sandbox_off: bool = False,
    sandbox_users: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> list[Finding]:
    """All findings, in the order in which they are best fixed.

    Args:
        data_dir: where Firesteel keeps its state; need not exist yet.
        java_home: the Java that the configuration names, if it names one.
        class_archive: where the class archive of the current Java and Spark is, or would be; None when there can be
        none. engines: the engines found running, by name; None leaves that finding out.
    """
    return [
        python_finding(sys.version_info[:3]),
        java_finding(java_home, environ),
        *(package_finding(name, _installed_version(name)) for name in PACKAGES),
        *spark_findings(environ),
        cores_finding(_cores()),
        memory_finding(_memory()),
        data_dir_finding(data_dir, entered=sandbox_users is not None),
        disk_finding(data_dir),
        sandbox_finding(landlock.version(), off=sandbox_off, users=sandbox_users),
        class_archive_finding(class_archive),
        *([] if engines is None else [engines_finding(engines)]),
        *variable_findings(environ),
    ]


def python_finding(version: tuple[int, ...]) -> Finding:
    text = f"{_dotted(version)} at {sys.executable}"
    if version < MINIMUM_PYTHON:
        return Finding("Python", "missing", text, f"install Python {_dotted(MINIMUM_PYTHON)} or later")
    return Finding("Python", "ok", text)


def java_finding(java_home: Path | None, environ: Mapping[str, str]) -> Finding:
    candidates = java_module.java_candidates(java_home, environ)
    try:
        chosen = java_module.find_java(java_home, environ)
    except EnvironmentNotReadyError:
        seen = "; ".join(_describe(c) for c in candidates) or "none found"
        fix = java_module.HOW_TO_GET_JAVA
        if java_home is not None:
            fix = f"set java.home to a Java {java_module.MINIMUM_FEATURE} or later, or remove the setting"
        return Finding("Java", "missing", seen, fix)
    others = [_describe(c) for c in candidates if c.java is None or c.java.home != chosen.home]
    detail = str(chosen) + (f"; also seen: {'; '.join(others)}" if others else "")
    if any(c.origin == "JAVA_HOME" and not c.usable for c in candidates):
        return Finding("Java", "warn", detail, "fix or unset JAVA_HOME: Spark's own scripts would use it")
    return Finding("Java", "ok", detail)


def _describe(candidate: java_module.JavaCandidate) -> str:
    return f"{candidate.origin}: {candidate.note}" if candidate.note else str(candidate.java)


def package_finding(name: str, version: str | None) -> Finding:
    minimum, below = PACKAGES[name]
    wanted = f"{name}>={minimum}" + (f",<{below}" if below else "")
    fix = f"run: pip install '{wanted}'"
    if version is None:
        return Finding(name, "missing", "not installed", fix)
    if _numbers(version) < _numbers(minimum) or (below and _numbers(version) >= _numbers(below)):
        return Finding(name, "missing" if name == "pyspark" else "warn", f"{version}, but {wanted} is needed", fix)
    return Finding(name, "ok", version)


def spark_findings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """The Spark that engines are started from, and the connectors among its jars."""
    try:
        home = java_module.spark_home(environ)
    except EnvironmentNotReadyError as error:
        what, _, fix = str(error).partition(": ")
        yield Finding("Spark", "missing", what, fix)
        return
    version = _spark_version(home)
    origin = "SPARK_HOME" if environ.get("SPARK_HOME") else "pyspark package"
    detail = f"{version or 'unknown version'} at {home}, from {origin}"
    python_side = _installed_version("pyspark")
    if version is None or _numbers(version)[:2] != SPARK_VERSION:
        fix = f"unset SPARK_HOME, or point it to a Spark {_dotted(SPARK_VERSION)}"
        yield Finding("Spark", "missing", detail, fix)
    elif python_side is not None and python_side != version:
        fix = "unset SPARK_HOME, or install the same version of both"
        yield Finding("Spark", "warn", f"{detail}; pyspark is {python_side}", fix)
    else:
        yield Finding("Spark", "ok", detail)
    for name, pattern, package in (
        ("Kafka connector", "spark-sql-kafka-0-10_*.jar", "org.apache.spark:spark-sql-kafka-0-10_2.13"),
        ("Delta Lake", "delta-spark_*.jar", "io.delta:delta-spark_2.13"),
    ):
        jars = sorted(jar.name for jar in (home / "jars").glob(pattern))
        if jars:
            yield Finding(name, "ok", ", ".join(jars))
        else:
            fix = f"to use it, put {package} in the version for Spark {_dotted(SPARK_VERSION)} into spark.jars.packages"
            yield Finding(name, "optional", "not in Spark's jars", fix)


def cores_finding(cores: int) -> Finding:
    if cores < 2:
        return Finding("cores", "warn", "1", "give the machine 2 or more: a streaming job takes one for itself")
    return Finding("cores", "ok", str(cores))


def memory_finding(total: int | None) -> Finding:
    if total is None:
        return Finding("memory", "ok", "unknown on this system")
    if total < LITTLE_MEMORY:
        return Finding(
            "memory",
            "warn",
            _gib(total),
            f"give the machine {_gib(LITTLE_MEMORY)} or more; one engine takes about 1.5 GiB",
        )
    return Finding("memory", "ok", _gib(total))


def data_dir_finding(data_dir: Path, *, entered: bool = False) -> Finding:
    """Whether the data directory can be written to, and by its owner only: it holds tokens and job logs."""
    name = "data directory"
    if not data_dir.exists():
        parent = _nearest_existing(data_dir)
        if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
            return Finding(name, "ok", f"{data_dir} (will be created at first use)")
        fix = f"make {parent} a directory that you can write to, or set data.dir to another directory"
        return Finding(name, "missing", f"cannot create {data_dir} in {parent}", fix)
    if not data_dir.is_dir() or not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        return Finding(
            name, "missing", f"{data_dir} is not a directory that you can write to", "set data.dir to another directory"
        )
    status = data_dir.stat()
    if status.st_uid != os.getuid():
        return Finding(name, "warn", f"{data_dir} belongs to another user", "set data.dir to a directory of your own")
    if stat.S_IMODE(status.st_mode) & (0o066 if entered else 0o077):
        return Finding(name, "warn", f"{data_dir} is open to other users", f"run: chmod 700 {data_dir}")
    return Finding(name, "ok", f"{data_dir}, writable and private")


def sandbox_finding(version: int, *, off: bool, users: str | None = None) -> Finding:
    """The sandbox, which keeps jobs from the files of the node and of other owners. `users` is what the sandbox `user`
    lacks, empty when nothing; None for another sandbox."""
    name = "sandbox"
    if users:
        return Finding(
            name, "missing", f"security.sandbox is user, and {users.partition(': ')[0]}", users.partition(": ")[2]
        )
    if users is not None:
        more = f", and in Landlock {version}" if version >= landlock.LEAST_VERSION else ""
        return Finding(name, "ok", f"jobs run as users of their owners{more}")
    if off:
        fix = "remove security.sandbox from the configuration if you did not mean this"
        return Finding(name, "warn", "security.sandbox is off: jobs can read and write all files of all owners", fix)
    if version < landlock.LEAST_VERSION:
        found = f"version {version} of Landlock" if version else "no Landlock"
        detail = f"this kernel has {found}: jobs can read and write all files of all owners"
        return Finding(
            name, "warn", detail, "use Linux 6.12 or later, or give each owner a cluster under a user of their own"
        )
    if version < landlock.SCOPES_VERSION:
        detail = f"Landlock {version}: files are guarded, but jobs can signal the node and ask it for its owner's token"
        return Finding(name, "warn", detail, "use Linux 6.12 or later")
    return Finding(name, "ok", f"Landlock {version}: files, signals and sockets of the node are guarded from jobs")


def disk_finding(data_dir: Path) -> Finding:
    place = _nearest_existing(data_dir)
    free = shutil.disk_usage(place).free
    if free < LITTLE_DISK:
        return Finding("disk", "warn", f"{_gib(free)} free at {place}", f"free {_gib(LITTLE_DISK)} or more")
    return Finding("disk", "ok", f"{_gib(free)} free at {place}")


def class_archive_finding(archive: Path | None) -> Finding:
    """Without the archive everything works; an engine only starts some seconds later."""
    if archive is None:
        return Finding("class archive", "ok", "not used with this Java")
    if not archive.is_file():
        return Finding(
            "class archive",
            "warn",
            "none yet, so engines start slower",
            "run `firesteel engine train` once per machine to start engines in half the time",
        )
    return Finding("class archive", "ok", f"{archive} ({archive.stat().st_size // 1024**2} MiB)")


def engines_finding(engines: Sequence[str]) -> Finding:
    if not engines:
        return Finding("engines", "ok", "none running; the first job starts one")
    return Finding("engines", "ok", f"{len(engines)} running: {', '.join(engines)}")


def variable_findings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Environment variables that change the behaviour of Spark or Java without Firesteel's knowledge."""
    found = [name for name in INTERFERING_VARIABLES if environ.get(name)]
    for name in found:
        yield Finding(name, "warn", f"is set: {INTERFERING_VARIABLES[name]}", f"unset {name} unless you need it")
    if not found:
        yield Finding("environment", "ok", "no variable interferes")


def _installed_version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _spark_version(home: Path) -> str | None:
    """The version in the name of Spark's core jar; distributions without a RELEASE file have it too."""
    for jar in (home / "jars").glob("spark-core_*.jar"):
        if match := re.fullmatch(r"spark-core_[\d.]+-(.+)\.jar", jar.name):
            return match.group(1)
    return None


def _cores() -> int:
    """The cores that this process may use, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory(cgroup_limit: Path = Path("/sys/fs/cgroup/memory.max")) -> int | None:
    """The memory of the machine, or of the container if that is less."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    try:
        return min(machine, int(cgroup_limit.read_text()))
    except (OSError, ValueError):  # no cgroup v2, or the limit is the word "max"
        return machine


def _nearest_existing(path: Path) -> Path:
    path = path.absolute()
    return next(place for place in (path, *path.parents) if place.exists())


def _numbers(version: str) -> tuple[int, ...]:
    """(4, 3, 0) of `4.3.0`, `4.3.0.dev1` or `4.3.0-SNAPSHOT`."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
