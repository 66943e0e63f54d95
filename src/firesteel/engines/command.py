"""The command line and the settings of an engine: pure functions of its spec."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from firesteel.engines.record import EngineRecord, EngineSpec

CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
GATEWAY_SERVER = "pyspark-shell"
LOOPBACK = "127.0.0.1"

LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
# Says at each start that native Hadoop is not there, and that /proc metrics are off: true of every laptop.
logger.nativecode.name = org.apache.hadoop.util.NativeCodeLoader
logger.nativecode.level = error
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = error
"""


def on_this_host(master: str) -> bool:
    """Whether executors run on this machine only, so that nothing need listen to others."""
    return bool(re.match(r"local\b|spark://(127\.\d+\.\d+\.\d+|localhost)(:|$)", master))


def local_cores(master: str) -> int:
    """How many tasks a local master runs at once."""
    threads = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", master)
    if threads is None:
        return 0
    if threads[1] is None:
        return 1
    return os.cpu_count() or 1 if threads[1] == "*" else int(threads[1])


def engine_settings(record: EngineRecord, *, work_dir: Path, python: str, ui: bool) -> dict[str, str]:
    """Spark settings of an engine: our defaults, then the user's settings, then those that must hold."""
    defaults = {
        "spark.app.name": f"firesteel-engine-{record.engine_id}",
        # Hive's catalogue costs seconds at start; users with a metastore set spark.sql.catalogImplementation.
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(work_dir / "warehouse"),
        "spark.local.dir": str(work_dir / "local"),
        "spark.scheduler.mode": "FAIR",
        # Only RocksDB state can be rescaled later, and it keeps large state off the heap.
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # `${env:NAME}` in a query would show the engine's environment, and all owners may share the engine (S27).
        "spark.sql.variable.substitute": "false",
        # A query reads. Calling Java (`reflect`, `java_method`) and running programs (`TRANSFORM ... USING`) is off (S39).
        "spark.sql.restrictedMode.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        "spark.connect.progress.reportInterval": "500ms",
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "200",
        "spark.ui.retainedTasks": "10000",
        "spark.sql.ui.retainedExecutions": "200",
        "spark.pyspark.python": python,
        "spark.pyspark.driver.python": python,
    }
    required = {
        "spark.driver.memory": record.spec.memory,
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(record.port),
        # Fail on a port that was taken meanwhile; an engine that silently moved to the next one would not be found.
        "spark.port.maxRetries": "0",
        # Work and sessions live until we end them, far beyond any failover (see decisions/0001).
        "spark.connect.execute.manager.detachedTimeout": "1d",
        "spark.connect.session.manager.defaultSessionTimeout": "7d",
        "spark.connect.session.inactiveOperations.cacheExpiration": "1d",
        # A second run on one checkpoint is refused, never allowed to stop the first one silently.
        "spark.sql.streaming.stopActiveRunOnRestart": "false",
        "spark.ui.enabled": "true" if ui else "false",
    }
    if on_this_host(record.spec.master):
        # Executors on other hosts have to reach the driver; otherwise nothing else does.
        required |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    required |= authentication(record.spec.master)
    if ui:
        required |= {
            "spark.ui.port": str(record.ui_port),
            # For jobs that an interrupt has missed (see spark_connect.leftovers). This needs the key of the filter.
            "spark.ui.killEnabled": "true",
            "spark.ui.threadDumpsEnabled": "true",
            "spark.ui.filters": "org.apache.spark.ui.JWSFilter",
            "spark.org.apache.spark.ui.JWSFilter.param.secretKey": record.ui_secret,
        }
    return defaults | dict(record.spec.spark) | required


def authentication(master: str) -> dict[str, str]:
    """Spark's own ports read Java objects from any client, unless they require a secret first (S23: CVE-2020-9480).

    In a process that runs its tasks itself, Spark generates a secret; a cluster has one of its own, or none.
    """
    return {"spark.authenticate": "true"} if master.startswith("local") else {}


def properties(settings: Mapping[str, str]) -> str:
    """A Java properties file. Settings go through a private file, not argv, because some are secrets (S27)."""
    escape = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
    key = str.maketrans({"\\": "\\\\", " ": "\\ ", ":": "\\:", "=": "\\=", "#": "\\#", "!": "\\!"})

    def value(text: str) -> str:
        escaped = text.translate(escape)
        return "\\" + escaped if escaped.startswith(" ") else escaped

    return "".join(f"{k.translate(key)}={value(v)}\n" for k, v in sorted(settings.items()))


def argument_file(options: Sequence[str]) -> str:
    """The options of a JVM as a file that it reads itself: as arguments, secrets would be there for all to see (S40)."""
    escape = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
    return "".join(f'"{option.translate(escape)}"\n' for option in options)


def submit_command(
    *,
    java: Path,
    module_options: list[str],
    class_path: list[Path],
    spec: EngineSpec,
    main: str,
    properties_file: Path,
    log4j_file: Path,
    options_file: Path,
    archive_options: list[str],
    temporary: Path,
) -> list[str]:
    """spark-submit without its two shell scripts and its launcher JVM: a little faster, and a class path that we know,
    which a class-data archive needs."""
    command = [
        str(java),
        f"-Xmx{spec.memory}",
        # A JVM that ran out of memory cannot be trusted; it ends, and its jobs are tried elsewhere.
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
        # Native libraries are unpacked and loaded there: no other user may be able to replace them.
        f"-Djava.io.tmpdir={temporary}",
        *module_options,
        f"-Dlog4j2.configurationFile={log4j_file.as_uri()}",
        *archive_options,
        *([f"@{options_file}"] if spec.jvm_options else []),
        "-cp",
        os.pathsep.join(str(p) for p in class_path),
        "org.apache.spark.deploy.SparkSubmit",
        "--master",
        spec.master,
        "--properties-file",
        str(properties_file),
        "--load-spark-defaults",
    ]
    if main == GATEWAY_SERVER:
        return [*command, GATEWAY_SERVER]
    return [*command, "--class", main, "spark-internal"]
