"""Failures in words that a person can act on: the cause, the place, the fix."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.conftest import graph_of

from firesteel.cli.going_on import going_on
from firesteel.client.model import JobResult
from firesteel.driver.failure import classify
from firesteel.driver.places import vertex_of
from firesteel.engines.launcher import without_resolver_noise
from firesteel.errors import InvalidPipelineError, NoSavepointError, OutputError, Problem
from firesteel.failure import NO_SAVEPOINT, FailureKind
from firesteel.savepoint.fit import nothing_to_restore
from firesteel.spark_connect.compiler import problem_of
from firesteel.status import JobStatus
from firesteel.types import JobID

STACK = """\
org.apache.spark.SparkException
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:855)
Caused by: org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING.X] Malformed records are detected: [null,ben].
Parse Mode: FAILFAST. SQLSTATE: 22023
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.malformedRecords(QueryExecutionErrors.scala:1)
Caused by: org.apache.spark.sql.catalyst.util.BadRecordException: java.lang.NumberFormatException: For input string: "x"
\tat org.apache.spark.sql.catalyst.csv.UnivocityParser.convert(UnivocityParser.scala:1)
Caused by: java.lang.NumberFormatException: For input string: "x"
\tat java.base/java.lang.Integer.parseInt(Integer.java:668)"""
READ = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///data/in/a.csv. SQLSTATE: KD001"
GRAPH = graph_of(
    {"kind": "source", "name": "all", "format": "csv", "path": "/data", "schema": "a INT"},
    {"kind": "source", "name": "some", "format": "csv", "path": "/data/in", "schema": "a INT"},
    {"kind": "source", "name": "other", "format": "csv", "path": "/data/i", "schema": "a INT"},
    {"kind": "sink", "name": "o", "input": "some", "format": "csv", "path": "/out", "mode": "overwrite"},
    {"kind": "sink", "name": "p", "input": "all", "format": "csv", "path": "/out2", "mode": "overwrite"},
    {"kind": "sink", "name": "q", "input": "other", "format": "csv", "path": "/out3", "mode": "overwrite"},
)


def test_job_without_the_savepoint_that_it_names_is_told_from_other_invalid_ones() -> None:
    """So that nobody is told to resume it."""
    failure = classify(nothing_to_restore(NoSavepointError("there is no savepoint at /x: no such directory")))
    assert (failure.kind, failure.error_class) == (FailureKind.INVALID_PIPELINE, NO_SAVEPOINT)
    assert "there is no savepoint at /x" in failure.message
    assert classify(InvalidPipelineError([Problem("odd")])).error_class == ""
    ended = JobResult(JobID("a" * 32), "s", JobStatus.FAILED, failure, 1.0, 2.0, duration=1.0, attempts=1, restarts=0)
    ended = dataclasses.replace(ended, streaming=True)
    assert going_on(ended) == []
    assert going_on(dataclasses.replace(ended, failure=None)) == [
        "its checkpoint was not kept, so it cannot be resumed"
    ]


class SparkError(Exception):
    def __init__(self, message: str, stack: str = "") -> None:
        super().__init__(message)
        self._stack = stack
        self.firesteel_sink = ""

    def getStackTrace(self) -> str:
        return self._stack


def test_read_error_has_its_cause_its_file_and_its_vertex() -> None:
    error = SparkError(READ, STACK)
    error.firesteel_sink = "o"
    failure = classify(error, vertex_of(error, GRAPH))
    assert (failure.kind, failure.vertex) == (FailureKind.DATA, "some")
    assert "file:///data/in/a.csv" in failure.message
    assert "cause: [MALFORMED_RECORD_IN_PARSING.X] Malformed records are detected: [null,ben]." in failure.message
    assert 'NumberFormatException: For input string: "x"' in failure.message
    assert failure.message.count("For input string") == 1
    assert "\tat " not in failure.message


def test_read_error_that_is_wrapped_in_that_of_the_write_is_one_of_the_data() -> None:
    error = SparkError(
        "[TASK_WRITE_FAILED] Task failed while writing rows to file:/out.", f"x\nCaused by: a.B: {READ}\n{STACK}"
    )
    error.firesteel_sink = "o"
    failure = classify(error, vertex_of(error, GRAPH))
    assert (failure.kind, failure.vertex, failure.error_class) == (FailureKind.DATA, "some", "FAILED_READ_FILE.NO_HINT")
    assert "file:///data/in/a.csv" in failure.message


def test_output_that_cannot_be_written_is_told_as_such() -> None:
    error = OutputError("totals", "/data/afile/t", NotADirectoryError(20, "Not a directory", "/data/afile"))
    failure = classify(error)
    assert (failure.kind, failure.vertex, failure.traceback) == (FailureKind.OUTPUT, "totals", "")
    assert failure.message == (
        "cannot write the output '/data/afile/t': Not a directory: '/data/afile' — check the path and its permissions"
    )


def test_missing_module_names_the_option() -> None:
    failure = classify(ModuleNotFoundError("No module named 'helper'", name="helper"))
    assert "-pyfs" in failure.message
    assert "py_files" in failure.message


def test_invalid_pipeline_is_not_said_twice() -> None:
    failure = classify(InvalidPipelineError([Problem("no such column", vertex="a", field="query")]))
    assert str(failure) == "invalid pipeline in vertex 'a': field 'query': no such column"
    several = classify(InvalidPipelineError([Problem("x", vertex="a"), Problem("y", vertex="b")]))
    assert str(several) == "invalid pipeline in vertex 'a': x\nvertex 'b': y"


@pytest.mark.parametrize(
    ("said", "message", "fix"),
    [
        (
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'. SQLSTATE: 42601 (line 3, pos 9)\n\n== SQL ==\n(\nSELECT",
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM' (line 2, column 10 of the query)",
            "",
        ),
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] No `agee`. Did you mean [`age`]. SQLSTATE: 42703; line 2 pos 7;\n'Project",
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] No `agee`. Did you mean [`age`] (line 1, column 8 of the query)",
            "",
        ),
        (
            "[UNRESOLVED_ROUTINE] Cannot resolve routine `cuont`. SQLSTATE: 42883; line 2 pos 7",
            "[UNRESOLVED_ROUTINE] Cannot resolve routine `cuont` (line 1, column 8 of the query)",
            "did you mean 'count'?",
        ),
        (
            "Failed to find data source: kafka. Please deploy the application as per the deployment section of the guide.",
            "Failed to find data source: kafka. Please deploy the application as per the deployment section of the guide",
            "spark.jars.packages",
        ),
    ],
)
def test_errors_of_spark_sql_have_a_position_and_a_suggestion(said: str, message: str, fix: str) -> None:
    graph = graph_of(
        {"kind": "sql", "name": "q", "query": "SELECT a\n FORM x", "inputs": []},
        {"kind": "sink", "name": "o", "input": "q", "format": "csv", "path": "/out", "mode": "overwrite"},
    )
    problem = problem_of(graph, "q", Exception(said))
    assert problem.message == message
    assert fix in problem.fix
    assert bool(problem.fix) == bool(fix)


IVY = """\
:: loading settings :: url = jar:file:/spark/jars/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml
org.apache.spark#spark-sql-kafka-0-10_2.13 added as a dependency
:: problems summary ::
:::: WARNINGS
\t\tmodule not found: org.apache.spark#spark-sql-kafka-0-10_2.13;9.9.9
\t==== central: tried
\t  https://repo1.maven.org/maven2/org/apache/spark/x.pom
\t\t::::::::::::::::::::::::::::::::::::::::::::::
\t\t::          UNRESOLVED DEPENDENCIES         ::
\t\t::::::::::::::::::::::::::::::::::::::::::::::
\t\t:: org.apache.spark#spark-sql-kafka-0-10_2.13;9.9.9: not found
:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
Exception in thread "main" java.lang.Error: [unresolved dependency: org.apache.spark#spark-sql-kafka-0-10_2.13;9.9.9: not found]
\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:512)"""


def test_packages_that_cannot_be_had_are_one_line() -> None:
    (line,) = without_resolver_noise(IVY).splitlines()
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:9.9.9" in line
    assert "spark.jars.packages" in line
    assert without_resolver_noise("java.lang.Error: other\n\tat x") == "java.lang.Error: other\n\tat x"


def test_unwritable_output_of_a_real_attempt_names_the_vertex(tmp_path: Path) -> None:
    from firesteel.driver.batch import opened
    from firesteel.sinks.graph import staged

    (tmp_path / "afile").write_text("")
    graph = graph_of(
        {"kind": "source", "name": "src", "format": "csv", "path": "/data", "schema": "a INT"},
        {
            "kind": "sink",
            "name": "o",
            "input": "src",
            "format": "csv",
            "path": f"{tmp_path}/afile/t",
            "mode": "overwrite",
        },
    )
    (sink,) = graph.sinks
    files = staged(sink, JobID("a" * 32))
    assert files is not None
    with pytest.raises(OutputError, match=r"cannot write the output '.*afile/t': Not a directory"):
        opened(sink, lambda: files.begin(1))


def test_state_of_another_query_is_one_sentence_and_no_fault_of_the_code() -> None:
    """Otherwise a restart strategy would try it again, and again."""
    said = (
        "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema does not match the existing one." + 15 * "\nx"
    )
    failure = classify(RuntimeError(said), "out")
    assert failure.kind is FailureKind.INVALID_PIPELINE
    assert failure.message == (
        "the state of sink 'out' does not fit its query (STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE): start without it, or with "
        "the query that it belongs to"
    )
