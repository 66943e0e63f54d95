"""Starts, finds and ends engines.

An engine is a Spark application with a Connect endpoint in a process group of its own. It outlives the process that
started it, and its record in the `EngineDirectory` lets the next one find it.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from firesteel.engines import archive, command
from firesteel.engines.api import EngineApi
from firesteel.engines.java import class_path, find_java, module_options, spark_home
from firesteel.engines.packages import ivy_settings
from firesteel.engines.record import EngineDirectory, EngineRecord, EngineSpec
from firesteel.environment import inherited
from firesteel.errors import EngineStartError
from firesteel.fs.files import private_dir, tail, write_atomically
from firesteel.ports import unused_ports
from firesteel.processes import ProcessIdentity, end, reap
from firesteel.sandbox import become
from firesteel.sandbox.policy import SandboxPolicy
from firesteel.sandbox.rules import Sandbox
from firesteel.sandbox.users import OsUser, enterable, give

# The shell notes its pid and then becomes Java, so a crash of the parent at any line leaves an engine that can be found.
_NOTE_PID_AND_EXEC = 'umask 077; echo $$ > "$0" && exec "$@"'

_KEPT_ENVIRONMENT = ("SPARK_CONF_DIR", "SPARK_LOCAL_IP")


HEALTH_SECONDS = 10.0
_UNRESOLVED = re.compile(r"(?:unresolved dependency: |:: )([\w.-]+)#([\w.-]+);([\w.-]+): not found")
WORK = "work"
"""Directory in the home of a Spark process: what it may write to, and where it runs. The rest of its home is ours."""


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    cache_dir: Path
    java_home: Path | None = None
    python: str = sys.executable
    start_timeout: float = 90.0
    stop_timeout: float = 15.0
    class_archive: bool = True
    ui: bool = True
    passed_variables: tuple[str, ...] = ()
    """Environment variables that are passed on in addition to the ordinary ones."""
    sandbox: SandboxPolicy | None = None


def engine_environment(
    extra: Mapping[str, str], environ: Mapping[str, str] = os.environ, *, passed: tuple[str, ...] = ()
) -> dict[str, str]:
    """The environment of a Spark process: what is ordinary in ours, without what would steer Spark behind our back (S40)."""
    kept = {k: v for k, v in inherited(passed, environ).items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    kept |= {k: environ[k] for k in _KEPT_ENVIRONMENT if k in environ}
    # Hash seeds must agree between Python workers of one application, which Spark asks of its launcher.
    return kept | {"PYTHONHASHSEED": "0"} | dict(extra)


def start_engine(
    directory: EngineDirectory,
    spec: EngineSpec,
    options: LaunchOptions,
    *,
    wait: bool = True,
    shared: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
    record_archive: Path | None = None,
) -> EngineRecord:
    """Start an engine and (by default) wait until it answers.

    The record is written before the process starts, and completed afterwards. Raises EngineStartError with the last
    lines of the log when Spark dies or stays silent; nothing of the attempt is left running then.
    """
    engine_id = secrets.token_hex(8)
    port, ui_port = unused_ports(2)
    record = EngineRecord(
        engine_id=engine_id,
        spec=spec,
        # The name, not the number: PySpark sends a token over plain TCP to `localhost` only.
        host="localhost",
        port=port,
        token=secrets.token_urlsafe(24),
        ui_port=ui_port if options.ui else 0,
        ui_secret=base64.urlsafe_b64encode(secrets.token_bytes(32)).decode() if options.ui else "",
        cores=command.local_cores(spec.master) or int(dict(spec.spark).get("spark.cores.max", "1")),
        started_at=time.time(),
        shared=shared,
    )
    directory.save(record)
    home = directory.home(engine_id)
    work = private_dir(home / WORK)
    private_dir(work / "local")
    process = start_spark(
        home,
        spec,
        options,
        main=command.CONNECT_SERVER,
        settings=command.engine_settings(record, work_dir=work, python=options.python, ui=options.ui),
        environment={
            "SPARK_CONNECT_AUTHENTICATE_TOKEN": record.token,
            # Which Python the workers run; a Connect server asks the environment, not its settings.
            "PYSPARK_PYTHON": options.python,
            "PYSPARK_DRIVER_PYTHON": options.python,
            "FIRESTEEL_ENGINE_ID": engine_id,
        },
        log=directory.log(engine_id),
        cwd=work,
        record_archive=record_archive,
        sandbox=_sandbox(spec, options, home, work, record_archive),
    )
    record = dataclasses.replace(record, process=process)
    directory.save(record)
    if wait:
        wait_until_ready(directory, record, options, cancelled=cancelled)
    return record


def _sandbox(
    spec: EngineSpec, options: LaunchOptions, home: Path, work: Path, record_archive: Path | None
) -> Sandbox | None:
    """One that records an archive runs no code of users."""
    if options.sandbox is None or record_archive is not None:
        return None
    return options.sandbox.engine(spec.owner, home, work)


def start_spark(
    home: Path,
    spec: EngineSpec,
    options: LaunchOptions,
    *,
    main: str,
    settings: Mapping[str, str],
    environment: Mapping[str, str],
    log: Path,
    cwd: Path,
    stdin: int = subprocess.DEVNULL,
    record_archive: Path | None = None,
    sandbox: Sandbox | None = None,
) -> ProcessIdentity | None:
    """Start a Spark JVM that outlives us, in a session of its own. None when it ended at once.

    What it needs lies in `home`; in a sandbox it cannot write there but to `home/work`.
    """
    java = find_java(options.java_home)
    spark = spark_home()
    jars = class_path(spark)
    if sandbox is not None and options.sandbox is not None:
        trusted = spec.owner is None or options.sandbox.trusts(spec.owner)
        settings = ivy_settings(settings, trusted=trusted, home=Path.home(), work=home / WORK) | dict(settings)
    write_atomically(home / "spark.properties", command.properties(settings))
    write_atomically(home / "log4j2.properties", command.LOG4J)
    temporary = private_dir(home / WORK / "tmp")
    if spec.jvm_options:
        write_atomically(home / "jvm.options", command.argument_file(spec.jvm_options))
    if record_archive is not None:
        archive_options = archive.record_options(java, record_archive)
    elif options.class_archive:
        archive_options = archive.use_options(java, archive.archive_path(options.cache_dir, java, jars))
    else:
        archive_options = []
    if sandbox is not None and sandbox.user is not None:
        _give(home, sandbox.user)
    argv = command.submit_command(
        java=java.executable,
        module_options=module_options(java),
        class_path=jars,
        spec=spec,
        main=main,
        properties_file=home / "spark.properties",
        log4j_file=home / "log4j2.properties",
        options_file=home / "jvm.options",
        archive_options=archive_options,
        temporary=temporary,
    )
    if sandbox is not None:
        # Not in this process, which has threads: they would have to be told too.
        argv = [options.python, "-I", "-S", become.__file__, json.dumps(sandbox.to_json()), *argv]
    # Spark's UI listens on every interface unless this says otherwise.
    loopback = {"SPARK_LOCAL_IP": command.LOOPBACK} if command.on_this_host(spec.master) else {}
    # For Python workers: the usual directory for temporary files may be closed to them.
    private = {"TMPDIR": str(temporary)} if sandbox is not None else {}
    with log.open("ab") as output:
        child = subprocess.Popen(
            ["/bin/sh", "-c", _NOTE_PID_AND_EXEC, str(home / "pid"), *argv],
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=engine_environment(
                {"JAVA_HOME": str(java.home), "SPARK_HOME": str(spark), **loopback, **private, **environment},
                passed=options.passed_variables,
            ),
            start_new_session=True,
        )
    process = ProcessIdentity.of(child.pid)
    # It is meant to outlive us: Python must not complain that it was not waited for.
    child.returncode = 0
    return process


def _give(home: Path, user: OsUser) -> None:
    """Give a user what the node has just made for their JVM; none of it belonged to another user before."""
    enterable(str(home))
    work = home / WORK
    files = (home / name for name in ("spark.properties", "log4j2.properties", "jvm.options", "stdin"))
    for path in (*files, work, *work.iterdir()):
        if path.exists():
            give(str(path), user)


def wait_until_ready(
    directory: EngineDirectory,
    record: EngineRecord,
    options: LaunchOptions,
    *,
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """Return once the Connect port accepts a connection; the first session proves the rest."""
    deadline = time.monotonic() + options.start_timeout
    log = directory.log(record.engine_id)
    while not port_open(record):
        if record.process is not None:
            reap(record.process, timeout=0)
        if record.process is None or not record.process.alive:
            text = without_resolver_noise(tail(log))
            remove(directory, record.engine_id)
            raise EngineStartError(f"the Spark engine ended while it was starting (master {record.spec.master})", text)
        if cancelled() or time.monotonic() > deadline:
            text = tail(log)
            stop_engine(directory, record, grace=2)
            reason = "start was cancelled" if cancelled() else f"did not answer within {options.start_timeout:g} s"
            raise EngineStartError(f"the Spark engine {reason} (master {record.spec.master})", text)
        time.sleep(0.02)


def without_resolver_noise(log: str) -> str:
    """A log in which the resolver of packages gave up, in one line; any other as it is."""
    missing = dict.fromkeys(":".join(found) for found in _UNRESOLVED.findall(log))
    if not missing:
        return log
    return (
        f"cannot resolve packages of spark.jars.packages: {', '.join(missing)} — check their names and versions, and "
        "that the repository can be reached (add other repositories with spark.jars.repositories)"
    )


def port_open(record: EngineRecord) -> bool:
    try:
        socket.create_connection((record.host, record.port), timeout=1).close()
    except OSError:
        return False
    return True


def healthy(record: EngineRecord) -> bool:
    """The process is the one that we started, its endpoint accepts connections, and Spark answers a question.

    A stopped process still accepts connections, by the grace of the kernel; only an answer shows that it works.
    """
    if record.spec.attached:
        return port_open(record)
    if record.process is None or not record.process.alive or not port_open(record):
        return False
    if not record.ui_port:
        return True
    try:
        return bool(EngineApi(record, timeout=HEALTH_SECONDS).version())
    except (OSError, ValueError, KeyError, HTTPException):  # the last: it died in the middle of its answer
        return False


def attach(url: str, token: str = "") -> EngineRecord:
    """An engine that Firesteel did not start, given as `sc://host:port`."""
    parts = urlsplit(url)
    parameters = dict(p.partition("=")[::2] for p in parts.path.lstrip("/;").split(";") if p)
    host = parts.hostname or "localhost"
    return EngineRecord(
        engine_id=f"attached-{host}-{parts.port or 15002}",
        spec=EngineSpec(master=f"sc://{parts.netloc}"),
        host="localhost" if host == "127.0.0.1" else host,
        port=parts.port or 15002,
        token=token or parameters.get("token", ""),
        tls=parameters.get("use_ssl", "false") == "true",
    )


def stop_engine(directory: EngineDirectory, record: EngineRecord, *, grace: float) -> bool:
    """End an engine gracefully, then surely, and forget it. True when it ended by itself."""
    clean = True
    if record.process is not None:
        clean = end(record.process, grace=grace)
        reap(record.process)
    remove(directory, record.engine_id)
    return clean


def remove(directory: EngineDirectory, engine_id: str) -> None:
    shutil.rmtree(directory.home(engine_id), ignore_errors=True)


def sweep(directory: EngineDirectory) -> list[str]:
    """Forget engines whose process is gone; returns their ids."""
    gone = [r.engine_id for r in directory.all() if r.process is None or not r.process.alive]
    # A record without a process younger than a minute may belong to a start that is under way.
    fresh = {r.engine_id for r in directory.all() if r.process is None and time.time() - r.started_at < 60}
    for engine_id in (ids := [e for e in gone if e not in fresh]):
        remove(directory, engine_id)
    return ids
