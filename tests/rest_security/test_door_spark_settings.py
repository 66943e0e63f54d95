"""S7, S8: only listed settings pass, in exactly their own spelling."""

from __future__ import annotations

import random
import re
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from firesteel.rest.security.spark_settings import HARMLESS, refused_settings

DANGEROUS = """
    spark.jars spark.jars.packages spark.jars.repositories spark.jars.ivy spark.jars.ivySettings spark.jars.excludes
    spark.files spark.archives spark.submit.pyFiles spark.submit.deployMode spark.pyspark.python
    spark.pyspark.driver.python spark.driver.extraClassPath spark.driver.extraJavaOptions
    spark.driver.extraLibraryPath spark.driver.userClassPathFirst spark.driver.defaultJavaOptions
    spark.driver.defaultExtraClassPath spark.driver.libraryPath spark.driver.host spark.executor.extraClassPath
    spark.executor.extraJavaOptions spark.executor.extraLibraryPath spark.executor.plugins
    spark.executor.defaultJavaOptions spark.executor.defaultExtraClassPath spark.executor.uri
    spark.executorEnv.LD_PRELOAD spark.executorEnv.PYTHONPATH spark.plugins spark.plugins.defaultList
    spark.extraListeners spark.sql.extensions spark.sql.queryExecutionListeners
    spark.sql.streaming.streamingQueryListeners spark.streaming.extraListeners spark.sql.warehouse.dir
    spark.sql.catalog.evil spark.sql.catalog.spark_catalog spark.sql.catalogImplementation spark.sql.defaultCatalog
    spark.sql.cache.serializer spark.serializer spark.closure.serializer spark.kryo.registrator
    spark.kryo.classesToRegister spark.sql.sources.commitProtocolClass spark.sql.sources.outputCommitterClass
    spark.sql.parquet.output.committer.class spark.sql.streaming.commitProtocolClass
    spark.sql.adaptive.customCostEvaluatorClass spark.sql.streaming.checkpointFileManagerClass
    spark.sql.streaming.checkpointLocation spark.sql.codegen.compiler spark.sql.execution.pyspark.python
    spark.sql.hive.metastore.jars spark.sql.hive.metastore.jars.path spark.sql.hive.metastore.version
    spark.sql.hive.metastore.sharedPrefixes spark.sql.reflect.allowList spark.sql.restrictedMode.enabled
    spark.sql.redaction.options.regex spark.redaction.regex spark.sql.artifact.isolation.enabled
    spark.sql.artifact.copyFromLocalToFs.allowDestLocal spark.sql.avro.schemaUrlAllowedSchemes
    spark.sql.udt.allowedDynamicUDTClasses spark.sql.legacy.setCommandRejectsSparkCoreConfs
    spark.sql.legacy.hive.thriftServer.allowSettingSystemProperties spark.sql.defaultUrlStreamHandlerFactory.enabled
    spark.sql.runSQLOnFiles spark.sql.pyspark.udf.profiler spark.sql.variable.substitute
    spark.sql.streaming.stopActiveRunOnRestart spark.sql.optimizer.excludedRules spark.sql.planChangeLog.level
    spark.sql.kafka.disallowedOptions spark.sql.sources.disabledJdbcConnProviderList spark.hadoop.fs.s3a.access.key
    spark.hadoop.fs.s3a.secret.key spark.hadoop.fs.s3a.endpoint spark.hadoop.fs.defaultFS
    spark.hadoop.hadoop.security.credential.provider.path spark.hadoop.fs.file.impl
    spark.hadoop.javax.jdo.option.ConnectionURL spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a
    spark.hadoop.google.cloud.auth.service.account.json.keyfile spark.yarn.dist.files spark.yarn.dist.jars
    spark.yarn.dist.archives spark.yarn.dist.pyFiles spark.yarn.jars spark.yarn.archive spark.yarn.keytab
    spark.yarn.principal spark.yarn.stagingDir spark.yarn.appMasterEnv.X spark.yarn.am.extraJavaOptions
    spark.yarn.config.gatewayPath spark.yarn.queue spark.kerberos.keytab spark.kerberos.principal
    spark.kubernetes.file.upload.path spark.kubernetes.driver.podTemplateFile
    spark.kubernetes.executor.podTemplateFile spark.kubernetes.authenticate.driver.serviceAccountName
    spark.kubernetes.authenticate.oauthToken spark.kubernetes.container.image spark.kubernetes.driver.secrets.x
    spark.kubernetes.driver.volumes.hostPath.x.mount.path spark.kubernetes.namespace
    spark.kubernetes.decommission.script spark.master spark.remote spark.home spark.local.dir spark.eventLog.dir
    spark.eventLog.enabled spark.history.fs.logDirectory spark.metrics.conf spark.driver.log.dfsDir spark.ui.proxyBase
    spark.ui.filters spark.ui.port spark.authenticate spark.authenticate.secret spark.acls.enable spark.admin.acls
    spark.ssl.keyStore spark.ssl.keyPassword spark.io.encryption.enabled spark.network.crypto.enabled spark.proxy.user
    spark.connect.grpc.interceptor.classes spark.connect.extensions.relation.classes spark.connect.authenticate.token
    spark.connect.grpc.binding.address spark.connect.ml.backend.classes spark.python.daemon.module
    spark.python.worker.module spark.r.command spark.r.driver.command spark.r.shell.command spark.repl.class.uri
    spark.scheduler.allocation.file spark.shuffle.manager spark.shuffle.sort.io.plugin.class
    spark.worker.resource.x.discoveryScript spark.driver.resource.gpu.discoveryScript spark.resources.discoveryPlugin
    spark.storage.replication.topologyFile spark.security.credentials.hive.enabled
    spark.submit.callSystemExitOnMainExit spark.dynamicAllocation.enabled spark.executor.instances
    spark.executor.memory spark.executor.cores spark.task.cpus spark.app.id spark.app.name jars packages files master
    deploy-mode conf properties-file proxy-user driver-class-path driver-java-options py-files extraClassPath
    hive.metastore.uris javax.jdo.option.ConnectionURL fs.defaultFS hadoop.tmp.dir java.io.tmpdir user.name LD_PRELOAD
    PYTHONPATH spark spark. . .. * spark.sql spark.sql. spark.*
""".split()  # noqa: SIM905


def refused(*keys: str, extra: tuple[str, ...] = ()) -> bool:
    return len(refused_settings(dict.fromkeys(keys, "1"), extra)) == len(keys)


def test_dangerous_settings_are_refused() -> None:
    """S7, S8"""
    assert len(DANGEROUS) > 150
    for key in DANGEROUS:
        assert refused(key), key


def spellings(key: str, rng: random.Random) -> set[str]:
    """Other ways to write a key, which something between here and Spark could take for the same."""
    folded = "".join(rng.choice((c.upper(), c.lower())) for c in key)
    at = rng.randrange(1, len(key))
    spoiled = {
        key.upper(),
        key.title(),
        folded,
        f" {key}",
        f"{key} ",
        f"\t{key}",
        f"{key}\n",
        f"{key}\r\n",
        f"\n{key}",
        f"{key}\x00",
        f"{key}\x00.x",
        f"{key[:at]}\x00{key[at:]}",
        f"{key[:at]} {key[at:]}",
        f"{key[:at]}\u200b{key[at:]}",
        f"\ufeff{key}",
        f"\u00a0{key}",
        f"{key}.",
        f".{key}",
        f"spark.{key}",
        key.removeprefix("spark."),
        key.replace(".", ".."),
        key.replace(".", "_"),
        key.replace(".", "-"),
        key.replace(".", "/"),
        key.replace(".", "\uff0e"),
        key.replace("s", "\u017f"),
        key.replace("a", "\u0430"),
        key.replace("k", "\u212a"),
        f"--conf {key}",
        f"--{key}",
        f"-D{key}",
        f"{key}=1",
        f"{key}:1",
        f"{key}\nspark.jars",
        f"{key}=x\nspark.jars=evil.jar",
        f"{key},spark.jars",
        f'"{key}"',
        f"'{key}'",
        f"`{key}`",
        f"${{{key}}}",
        f"%{ord(key[0]):02x}{key[1:]}",
    }
    return spoiled - {key}


@pytest.mark.parametrize("seed", range(3))
def test_other_spellings_are_refused_too(seed: int) -> None:
    """S6, S7: CVE-2026-62391 went through aliases, CVE-2025-60012 through a key that was new."""
    rng = random.Random(seed)
    for key in (*DANGEROUS, *rng.sample(sorted(HARMLESS), 40)):
        if len(key) < 2:
            continue
        for spelling in spellings(key, rng):
            if spelling in HARMLESS:
                continue
            assert refused(spelling), ascii(spelling)


def test_settings_of_the_next_spark_are_refused_until_somebody_has_looked_at_them() -> None:
    """S7: deny by default, also among those whose relatives are harmless."""
    rng = random.Random(7)
    for known in HARMLESS:
        for made_up in (
            f"{known}.customClass",
            f"{known}X",
            known[:-1],
            known.rpartition(".")[0] + f".new{rng.random()}",
        ):
            assert made_up in HARMLESS or refused(made_up), made_up


def test_harmless_settings_pass() -> None:
    for key, value in {
        "spark.sql.shuffle.partitions": "200",
        "spark.sql.session.timeZone": "America/Los_Angeles",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.files.maxPartitionBytes": "128MB",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.caseSensitive": "false",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.broadcastTimeout": "300s",
        "spark.sql.columnNameOfCorruptRecord": "_corrupt",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }.items():
        assert refused_settings({key: value}, ()) == [], key


def test_the_harmless_ones_are_settings_that_spark_has() -> None:
    """A name that Spark does not know is a mistake in the list."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    known: set[str] = set()
    for pattern in ("spark-catalyst_*.jar", "spark-sql-api_*.jar"):
        (jar,) = (Path(found.origin).parent / "jars").glob(pattern)
        with zipfile.ZipFile(jar) as classes:
            for name in classes.namelist():
                if re.match(r"org/apache/spark/sql/internal/(SQLConf\$|SqlApiConfHelper)", name):
                    text = classes.read(name)
                    known |= {n.decode() for n in re.findall(rb"spark\.sql\.[A-Za-z0-9_.]+", text)}
    assert known >= HARMLESS


def test_none_of_the_harmless_ones_sounds_as_if_it_named_something() -> None:
    """S8: a class, a path, a program, a host, a secret."""
    named = re.compile(
        r"class|jar\b|jars|\bdir|location|uri|url|command|python$|plugin|listener|provider|host|secret|token", re.I
    )
    assert [key for key in HARMLESS if named.search(key)] == []


@pytest.mark.parametrize(
    "value",
    [
        "1\nspark.jars=evil.jar",
        "1\r",
        "\x00",
        "1\x00",
        "${env:AWS_SECRET_ACCESS_KEY}",
        "${system:user.home}",
        "$(id)",
        "`id`",
        "a;b",
        "a|b",
        "\u2028",
        "\u0661",
        "x" * 300,
        "../../etc/passwd\\",
    ],
)
def test_values_that_spark_could_not_mean_are_refused(value: str) -> None:
    (problem,) = refused_settings({"spark.sql.shuffle.partitions": value}, ())
    assert problem.field == "settings.spark.spark.sql.shuffle.partitions"
    assert "AWS" not in str(problem)


@pytest.mark.parametrize(
    "value", ["1\nspark.jars=evil.jar", "\x00", "a\x7f", "${env:HOME}", "x" * 5000, "a\u2029b", "a\x85b"]
)
def test_values_of_settings_that_an_admin_allowed_are_looked_at_too(value: str) -> None:
    assert len(refused_settings({"spark.app.name": value}, ("spark.app.name",))) == 1
    assert refused_settings({"spark.app.name": 'a "name" with (anything) in it; ü'}, ("spark.app.name",)) == []


def test_a_class_of_somebodys_own_is_no_state_store() -> None:
    """S8"""
    key = "spark.sql.streaming.stateStore.providerClass"
    (problem,) = refused_settings({key: "org.evil.Provider"}, ())
    assert "RocksDBStateStoreProvider" in problem.fix


def test_an_admin_can_allow_more() -> None:
    extra = ("spark.executor.memory", "spark.sql.optimizer.*", "spark.jars.packages")
    allowed = {
        "spark.executor.memory": "2g",
        "spark.sql.optimizer.maxIterations": "5",
        "spark.sql.optimizer.newOne": "1",
    }
    assert refused_settings(allowed, extra) == []
    assert refused_settings({"spark.jars.packages": "a:b:1"}, extra) == []  # named to the letter, so it was meant
    assert refused(
        "spark.executor.memoryOverhead", "spark.jars", "spark.executor", "Spark.executor.memory", extra=extra
    )


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("spark.sql.adaptive.*", "spark.sql.adaptive.customCostEvaluatorClass"),
        ("spark.executor.*", "spark.executor.extraClassPath"),
        ("spark.executor.*", "spark.executor.extraJavaOptions"),
        ("spark.executor.*", "spark.executor.plugins"),
        ("spark.hadoop.*", "spark.hadoop.fs.s3a.secret.key"),
        ("spark.hadoop.*", "spark.hadoop.fs.s3a.endpoint"),
        ("spark.sql.streaming.*", "spark.sql.streaming.checkpointLocation\n"),
        ("spark.sql.streaming.*", "spark.sql.streaming.checkpointFileManagerClass"),
        ("spark.*", "spark.jars"),
        ("spark.*", "spark.sql.catalog.evil"),
        ("spark.*", "spark.r.command"),
        ("spark.*", "spark.pyspark.python"),
        ("spark.*", "spark.submit.deployMode"),
        ("*", "spark.ui.port"),
        ("*", "anything"),
    ],
)
def test_a_star_does_not_reach_what_names_files_classes_hosts_or_secrets(pattern: str, key: str) -> None:
    """S7"""
    assert refused(key, extra=(pattern,))


def test_every_refused_setting_is_told_with_its_fix() -> None:
    problems = refused_settings(
        {"spark.jars": "x", "spark.sql.ansi.enabled": "true", "SPARK.SQL.ANSI.ENABLED ": "true", "ansi\n": "1"}, ()
    )
    assert [p.field for p in problems] == [
        "settings.spark.spark.jars",
        "settings.spark.SPARK.SQL.ANSI.ENABLED ",
        "settings.spark.ansi\\n",
    ]
    assert "security.spark-settings.allowed" in problems[0].fix
    assert problems[1].fix == "write spark.sql.ansi.enabled"
    assert refused_settings({}, ()) == []


def test_parent_run_of_lineage_may_be_named_and_nothing_else_of_openlineage() -> None:
    assert not refused("spark.openlineage.parentRunId")
    assert refused("spark.openlineage.transport.url")
    assert refused("spark.openlineage.parentRunIds")
