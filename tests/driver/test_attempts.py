"""Attempts on a real engine: how they end, and what a crash leaves."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import textwrap
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.conftest import Cluster, graph_of
from tests.jobmaster.local_attempts import leading, numbers, slow
from tests.support.marks import samples
from tests.support.waiting import until

from firesteel.attempts.attempt import AttemptDirectory, AttemptSpec, AttemptState
from firesteel.driver.failure import classify
from firesteel.engines.api import EngineApi
from firesteel.failure import Failure, FailureKind
from firesteel.jobgraph.model import JobGraph
from firesteel.status import JobStatus
from firesteel.types import AttemptId, new_job_id
from firesteel.worker.pool import DriverPool

pytestmark = pytest.mark.spark

CODE = str(Path(__file__).parent / "jobcode")


def python(name: str, function: str, *inputs: str, **args: Any) -> dict[str, Any]:
    return {"kind": "python", "name": name, "function": f"job_functions:{function}", "inputs": inputs, "args": args}


def files(name: str, input_: str, path: Path, **more: Any) -> dict[str, Any]:
    return {"kind": "sink", "name": name, "input": input_, "format": "parquet", "path": str(path), **more}


def job(*vertices: dict[str, Any], settings: dict[str, Any] | None = None, **top: Any) -> JobGraph:
    return graph_of(*vertices, settings={"artifacts": {"py_files": [CODE]}, **(settings or {})}, **top)


def ids(path: Path) -> list[int]:
    """The rows that a reader sees: what is hidden from Spark is hidden here."""
    found = [f for f in sorted(path.rglob("*.parquet")) if not f.relative_to(path).parts[0].startswith("_")]
    return sorted(i for f in found for i in pq.read_table(f).column("id").to_pylist())


def script(tmp_path: Path, text: str, *args: str, **more: Any) -> JobGraph:
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(text))
    return graph_of({"kind": "script", "name": "script", "file": str(file), "args": args, **more})


def test_batch_graph_finishes_with_rows_in_place_and_nothing_else(cluster: Cluster, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = cluster.run_graph(job(python("a", "numbers", rows=10), files("o", "a", out)))
    assert run.result.status is JobStatus.FINISHED
    assert ids(out) == list(range(10))
    assert {f.name for f in out.iterdir() if not f.name.startswith("part-")} == {"_SUCCESS"}
    operators = run.attempt(1).read_operators()
    assert operators["rows"]["o"] == 10
    assert any(o["name"] == "Range" and o["rows"] == 10 for o in operators["sinks"]["o"]["operators"])


@pytest.mark.slow
def test_exact_row_metrics_count_every_vertex(cluster: Cluster, tmp_path: Path) -> None:
    graph = job(
        python("a", "numbers", rows=10),
        {"kind": "sql", "name": "b", "query": "SELECT id FROM a WHERE id % 2 = 0", "inputs": ["a"]},
        {"kind": "sql", "name": "c", "query": "SELECT a.id FROM a JOIN b USING (id)", "inputs": ["a", "b"]},
        files("o", "c", tmp_path / "o"),
        files("p", "b", tmp_path / "p"),
        settings={"row_metrics": "exact"},
    )
    run = cluster.run_graph(graph)
    result = run.attempt(1).read_result()
    assert result is not None
    assert result.rows == {"a": 10, "b": 5, "c": 5}


def test_python_functions_and_their_modules_reach_the_workers(cluster: Cluster, tmp_path: Path) -> None:
    run = cluster.run_graph(
        job(python("a", "numbers", rows=3), python("b", "doubled", "a"), files("o", "b", tmp_path / "o"))
    )
    assert run.result.failure is None
    assert ids(tmp_path / "o") == [0, 2, 4]


@pytest.mark.slow
def test_nothing_is_visible_when_a_later_sink_fails(cluster: Cluster, tmp_path: Path) -> None:
    graph = job(
        python("a", "numbers", rows=3),
        python("b", "broken_udf", "a"),
        files("o", "a", tmp_path / "o"),
        files("p", "b", tmp_path / "p"),
    )
    run = cluster.run_graph(graph)
    assert run.result.status is JobStatus.FAILED
    assert [f for d in ("o", "p") for f in (tmp_path / d).rglob("*")] == []


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    samples(
        [
            ("fails", FailureKind.USER_CODE, r"ValueError: no good: \['id'\]"),
            ("missing_function", FailureKind.USER_CODE, "AttributeError: missing_function"),
            ("not_a_frame", FailureKind.INVALID_PIPELINE, "returned int, not a DataFrame"),
            ("dies", FailureKind.KILLED, r"killed \(SIGKILL\)"),
            ("broken_udf", FailureKind.USER_CODE, "ZeroDivisionError"),
        ]
    ),
)
def test_failing_user_code_is_told_clearly(
    cluster: Cluster, tmp_path: Path, function: str, kind: FailureKind, message: str
) -> None:
    run = cluster.run_graph(job(python("a", "numbers"), python("b", function, "a"), files("o", "b", tmp_path / "o")))
    assert run.result.status is JobStatus.FAILED
    failure = run.result.failure
    assert failure is not None
    assert failure.kind is kind, failure
    assert failure.vertex == (None if kind is FailureKind.KILLED else "b")
    assert re.search(message, failure.message), failure.message
    assert "JVM stacktrace" not in failure.message
    assert not (tmp_path / "o" / "_SUCCESS").exists()
    if function == "fails":
        assert 'job_functions.py", line' in failure.traceback
        assert "/firesteel/driver/" not in failure.traceback


def test_analysis_error_names_the_vertex_where_it_was_made(cluster: Cluster, tmp_path: Path) -> None:
    graph = job(
        python("a", "numbers"),
        {"kind": "sql", "name": "b", "query": "SELECT nope FROM a", "inputs": ["a"]},
        {"kind": "sql", "name": "c", "query": "SELECT * FROM b", "inputs": ["b"]},
        files("o", "c", tmp_path / "o"),
    )
    failure = cluster.run_graph(graph).result.failure
    assert failure is not None
    assert (failure.kind, failure.vertex) == (FailureKind.INVALID_PIPELINE, "b")
    assert failure.message.startswith("field 'query': [UNRESOLVED_COLUMN.WITH_SUGGESTION]")


@pytest.mark.slow
def test_bad_data_is_a_data_error(cluster: Cluster, tmp_path: Path) -> None:
    graph = job(
        python("a", "numbers"),
        {"kind": "sql", "name": "b", "query": "SELECT cast('x' || id AS INT) AS id FROM a", "inputs": ["a"]},
        files("o", "b", tmp_path / "o"),
    )
    failure = cluster.run_graph(graph).result.failure
    assert failure is not None
    assert (failure.kind, failure.error_class, failure.vertex) == (FailureKind.DATA, "CAST_INVALID_INPUT", "b")


@pytest.mark.slow
def test_malformed_row_is_told_with_its_file_its_cause_and_its_vertex(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,name\n1,ada\nx,ben\n")
    graph = graph_of(
        {
            "kind": "source",
            "name": "people",
            "format": "csv",
            "path": str(tmp_path / "in"),
            "schema": "id INT, name STRING",
            "options": {"header": "true", "mode": "FAILFAST"},
        },
        files("out", "people", tmp_path / "out"),
    )
    failure = cluster.run_graph(graph).result.failure
    assert failure is not None
    assert (failure.kind, failure.vertex) == (FailureKind.DATA, "people"), failure
    assert "a.csv" in failure.message
    assert "MALFORMED_RECORD_IN_PARSING" in failure.message
    assert '"x"' in failure.message


@pytest.mark.slow
def test_output_below_a_file_is_told_as_such(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "afile").write_text("")
    source = {"kind": "source", "name": "nums", "format": "text", "path": str(tmp_path / "afile")}
    run = cluster.run_graph(graph_of(source, files("out", "nums", tmp_path / "afile" / "t")))
    failure = run.result.failure
    assert failure is not None
    assert (failure.kind, failure.vertex, failure.traceback) == (FailureKind.OUTPUT, "out", "")
    assert f"cannot write the output '{tmp_path}/afile/t': Not a directory" in failure.message
    assert "Traceback" not in run.stderr


def test_restart_strategy_tries_again_and_succeeds(cluster: Cluster, tmp_path: Path) -> None:
    graph = job(
        python("a", "numbers"),
        python("b", "fails_once", "a", marker=str(tmp_path / "marker")),
        files("o", "b", tmp_path / "o"),
        settings={"restart": {"type": "fixed-delay", "attempts": 2, "delay": "10 ms"}},
    )
    run = cluster.run_graph(graph)
    assert (run.result.status, run.result.attempts, run.result.restarts) == (JobStatus.FINISHED, 2, 1)
    assert ids(tmp_path / "o") == list(range(10))


@pytest.mark.slow
@pytest.mark.parametrize("mode", [pytest.param("append", marks=pytest.mark.sample), "overwrite"])
def test_driver_killed_in_the_middle_of_a_write_gives_each_row_once(
    cluster: Cluster, tmp_path: Path, mode: str
) -> None:
    """I2, F13: the second attempt's rows, exactly; and the old ones until the commit."""
    out = tmp_path / "out"
    assert cluster.run_graph(job(python("a", "numbers", rows=5), files("o", "a", out))).result.failure is None
    marker = tmp_path / "marker"
    running = cluster.start_graph(
        job(
            python("a", "slow", rows=120, marker=str(marker)),
            files("o", "a", out, mode=mode),
            settings={"restart": {"type": "fixed-delay", "attempts": 1, "delay": "10 ms"}},
        )
    )
    running.wait_for(lambda e: e["type"] == "progress")
    running.kill_driver()
    assert ids(out) == [0, 1, 2, 3, 4]
    run = running.ended()
    assert (run.result.status, run.result.attempts) == (JobStatus.FINISHED, 2)
    assert ids(out) == sorted([*([] if mode == "overwrite" else range(5)), *range(120)])
    assert not (out / "_firesteel").exists()


@pytest.mark.slow
def test_attempts_after_a_lost_result_find_the_commit_and_add_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """The crash between the commit and the record of the result: the same attempt again, then the next one."""
    out = tmp_path / "out"
    job_id = new_job_id()
    graph = job(python("a", "numbers", rows=5), files("o", "a", out))
    engine = cluster.engine()

    def run(number: int, name: str) -> AttemptDirectory:
        directory = AttemptDirectory(tmp_path / name)
        # An attempt has one secret, from which its session follows.
        directory.prepare(AttemptSpec(AttemptId(job_id, number), graph, engine, secret="0" * 64))
        args = {"directory": str(directory.root)}
        driver = cluster.pool.spawn("attempt", args, stdout=directory.stdout, stderr=directory.stderr, cwd=tmp_path)
        driver.exited.result(60)
        assert ids(out) == [0, 1, 2, 3, 4]
        return directory

    first = run(1, "first").read_result()
    assert first is not None
    assert first.state is AttemptState.FINISHED
    # The engine has closed that session for good: the same attempt cannot run anything under it.
    repeated = run(1, "repeated").read_result()
    assert repeated is not None
    assert repeated.state is AttemptState.FAILED
    following = run(2, "following")
    result = following.read_result()
    assert result is not None
    assert result.state is AttemptState.FINISHED
    assert '"already-committed"' in following.events.read_text()


def test_cancel_stops_spark_and_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """I10."""
    out = tmp_path / "out"
    running = cluster.start_graph(job(python("a", "slow", rows=4000, marker=str(tmp_path / "m")), files("o", "a", out)))
    running.wait_for(lambda e: e["type"] == "progress")
    session = running.attempt(1).read_spec().ids.session_id
    until(lambda: _running_spark_jobs(cluster, session) == 1, "Spark runs no job of the attempt's session")
    running.job.cancel()
    run = running.ended(timeout=15)
    assert run.result.status is JobStatus.CANCELED
    assert list(out.rglob("*")) == []
    assert _running_spark_jobs(cluster, session) == 0


def _running_spark_jobs(cluster: Cluster, session_id: str) -> int:
    jobs = EngineApi(cluster.engine()).get("jobs", status="running")
    return sum(any(session_id in tag for tag in j["jobTags"]) for j in jobs)


def test_spark_ui_is_locked(cluster: Cluster) -> None:
    """S2: the second door asks for a credential too."""
    import urllib.error
    import urllib.request

    url = f"http://127.0.0.1:{cluster.engine().ui_port}/api/v1/applications"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url, timeout=10)
    assert caught.value.code == 403
    caught.value.close()


def test_script_output_arguments_and_session(cluster: Cluster, tmp_path: Path) -> None:
    graph = script(
        tmp_path,
        """
        import sys
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.master("local[7]").appName("x").getOrCreate()
        print("args", sys.argv[1:], __name__)
        print("rows", spark.range(5).count())
        spark.stop()
        again = SparkSession.builder.getOrCreate()
        print("again", again.range(6).count())
        """,
        "--conf",
        "a b",
    )
    run = cluster.run_graph(graph)
    assert run.result.failure is None
    assert run.stdout.splitlines() == ["args ['--conf', 'a b'] __main__", "rows 5", "again 6"]
    assert "master('local[7]') is ignored" in run.stderr


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    samples(
        [
            ("import sys; sys.exit(3)", FailureKind.EXIT_CODE, "the program exited with code 3"),
            (
                "import sys; sys.exit('out of cheese')",
                FailureKind.EXIT_CODE,
                "the program exited with code 1: out of cheese",
            ),
            ("import nowhere_to_be_found", FailureKind.IMPORT, "No module named 'nowhere_to_be_found'"),
            ("def f():\n    return {}['key']\nf()", FailureKind.USER_CODE, "KeyError: 'key'"),
            ("import os; os._exit(9)", FailureKind.EXIT_CODE, "the driver process ended with code 9 and no result"),
            ("raise MemoryError", FailureKind.OUT_OF_MEMORY, "the driver process ran out of memory"),
            ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", FailureKind.KILLED, "ended by SIGSEGV"),
        ]
    ),
)
def test_failing_script_is_told_clearly(
    cluster: Cluster, tmp_path: Path, text: str, kind: FailureKind, message: str
) -> None:
    failure = cluster.run_graph(script(tmp_path, text)).result.failure
    assert failure is not None
    assert failure.kind is kind
    assert message in failure.message
    if "key" in text:
        assert f'{tmp_path}/program.py", line 2, in f' in failure.traceback


@pytest.mark.parametrize(
    ("end", "code"), [("3", 3), ("-1", 255), ("256", 1), ("'out of cheese'", 1), ("True", 1), ("130", 130)]
)
def test_exit_code_of_a_script_is_kept_as_a_shell_would_see_it(end: str, code: int) -> None:
    failure = classify(SystemExit(ast.literal_eval(end)))
    assert (failure.kind, failure.exit_code) == (FailureKind.EXIT_CODE, code)
    assert Failure.from_json(failure.to_json()) == failure


@pytest.mark.parametrize("api", ["connect", pytest.param("classic", marks=pytest.mark.slow)])
def test_modules_beside_a_script_reach_its_workers(cluster: Cluster, tmp_path: Path, api: str) -> None:
    (tmp_path / "helper_beside.py").write_text(
        "from rates_beside.eur import RATE\n\ndef times(x):\n    return x * RATE\n"
    )
    (tmp_path / "rates_beside").mkdir()
    (tmp_path / "rates_beside" / "__init__.py").write_text("")
    (tmp_path / "rates_beside" / "eur.py").write_text("RATE = 21\n")
    graph = script(
        tmp_path,
        """
        from pyspark.sql import SparkSession
        from pyspark.sql.functions import udf
        from helper_beside import times
        spark = SparkSession.builder.getOrCreate()
        def late(x):
            import helper_beside
            return helper_beside.times(x)
        print(spark.range(3).select(udf(times, "bigint")("id"), udf(late, "bigint")("id")).collect()[2])
        """,
        api=api,
    )
    run = cluster.run_graph(graph)
    assert run.result.failure is None, run.stderr
    assert run.stdout.split("=")[1:] == ["42, late(id)", "42)\n"]


def test_exit_code_zero_is_success(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.run_graph(script(tmp_path, "import sys; sys.exit(0)")).result.status is JobStatus.FINISHED


@pytest.mark.slow
def test_classic_script_has_a_spark_context_and_its_jvm_goes_with_it(cluster: Cluster, tmp_path: Path) -> None:
    graph = script(
        tmp_path,
        """
        import job_helpers
        from pyspark import SparkContext
        sc = SparkContext.getOrCreate()
        print(sc.parallelize(range(4)).map(job_helpers.twice).sum(), sc._gateway.jvm.java.lang.ProcessHandle.current().pid())
        """,
    )
    graph = graph.model_copy(
        update={
            "settings": graph.settings.model_copy(update={"artifacts": job(python("a", "numbers")).settings.artifacts})
        }
    )
    run = cluster.run_graph(graph)
    assert run.result.failure is None, run.stderr
    total, pid = run.stdout.split()
    assert total == "12"
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.slow
def test_streaming_query_resumes_after_its_driver_died(cluster: Cluster, tmp_path: Path) -> None:
    """One query per sink; attempt 2 goes on at the last committed batch, so the file sink has every row once."""
    source = tmp_path / "in"
    source.mkdir()
    for n in range(6):
        (source / f"{n}.json").write_text("".join(f'{{"id": {n * 10 + i}}}\n' for i in range(10)))
    graph = job(
        {
            "kind": "source",
            "name": "s",
            "format": "json",
            "path": str(source),
            "schema": "id BIGINT",
            "options": {"maxFilesPerTrigger": 1},
        },
        files("o", "s", tmp_path / "o", trigger="200 ms"),
        mode="streaming",
        settings={"restart": {"type": "fixed-delay", "attempts": 1, "delay": "10 ms"}},
    )
    running = cluster.start_graph(graph)
    running.wait_for(lambda e: e["type"] == "batch" and e["batch"] >= 1)
    running.kill_driver()
    running.wait_for(lambda e: e["type"] == "batch" and e["batch"] == 5, timeout=90)
    running.job.cancel()
    run = running.ended()
    assert (run.result.status, run.result.attempts) == (JobStatus.CANCELED, 2)
    listed = [
        json.loads(line)["path"].removeprefix("file://")
        for log in sorted((tmp_path / "o" / "_spark_metadata").glob("[0-9]*"))
        for line in log.read_text().splitlines()[1:]
    ]
    assert sorted(i for f in listed for i in pq.read_table(f).column("id").to_pylist()) == list(range(60))


def test_many_drivers_at_once(cluster: Cluster, tmp_path: Path) -> None:
    runs: list[Any] = []

    def one(n: int) -> None:
        runs.append(cluster.run_graph(job(python("a", "numbers", rows=n), files("o", "a", tmp_path / str(n)))))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(1, 7)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [r.result.failure for r in runs] == [None] * 6
    assert all(ids(tmp_path / str(n)) == list(range(n)) for n in range(1, 7))


@pytest.mark.parametrize("api", ["connect", pytest.param("classic", marks=pytest.mark.slow)])
def test_relative_paths_of_a_script_start_where_it_was_started(cluster: Cluster, tmp_path: Path, api: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "in.txt").write_text("a\nb\n")
    graph = script(
        tmp_path,
        """
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.getOrCreate()
        lines = spark.read.text("in.txt")
        print(lines.count(), open("in.txt").read().count("b"))
        lines.write.parquet("out")
        """,
        api=api,
    )
    run = cluster.run_graph(graph, cwd=work)
    assert run.result.failure is None, run.stderr
    assert run.stdout.split() == ["2", "1"]
    assert list((work / "out").glob("*.parquet"))


@pytest.mark.slow
def test_python_data_source_by_its_class(cluster: Cluster, tmp_path: Path) -> None:
    source = {"kind": "source", "name": "s", "format": "job_functions:Countdown", "options": {"from": 4}}
    run = cluster.run_graph(job(source, files("o", "s", tmp_path / "o")))
    assert run.result.failure is None
    assert ids(tmp_path / "o") == [1, 2, 3, 4]


@pytest.mark.slow
def test_cached_vertex_is_read_anew_by_the_next_job(cluster: Cluster, tmp_path: Path) -> None:
    """Spark's cache belongs to the engine and outlives a session."""
    data = tmp_path / "in"
    data.mkdir()
    source = {
        "kind": "source",
        "name": "s",
        "format": "json",
        "path": str(data),
        "schema": "id BIGINT",
        "cache": True,
    }
    graph = job(
        source, files("o", "s", tmp_path / "o", mode="overwrite"), files("p", "s", tmp_path / "p", mode="overwrite")
    )
    for expected in ([1], [1, 2]):
        (data / f"{len(expected)}.json").write_text(f'{{"id": {expected[-1]}}}')
        run = cluster.run_graph(graph)
        assert run.result.failure is None
        assert ids(tmp_path / "o") == ids(tmp_path / "p") == expected
        assert run.attempt(1).read_operators()["rows"]["s"] == len(expected)


@pytest.mark.slow
def test_streaming_job_refuses_the_output_of_another_query(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}')
    source = {"kind": "source", "name": "s", "format": "json", "path": str(tmp_path / "in"), "schema": "id BIGINT"}
    graph = job(source, files("o", "s", tmp_path / "o", trigger="available-now"), mode="streaming")
    assert cluster.run_graph(graph).result.failure is None
    failure = cluster.run_graph(graph).result.failure
    assert failure is not None
    assert "holds the output of another streaming query" in failure.message
    assert ids(tmp_path / "o") == [1]


@pytest.mark.slow
def test_driver_outlives_its_parent_and_the_pool_makes_a_new_one(cluster: Cluster, tmp_path: Path) -> None:
    async def main() -> None:
        pool = DriverPool(log=tmp_path / "pool.log")
        try:
            async with leading(cluster.configuration, tmp_path / "jobs", pool) as leader:
                attempt = await leader.start(slow(60, tmp_path), cluster.engine())
                await leader.runs(attempt)
                pool._zygote.kill()
                assert (await leader.executor.wait(attempt)).state is AttemptState.FINISHED
                assert ids(tmp_path / "o") == list(range(60))
                again = await leader.start(numbers(10, tmp_path / "p"), cluster.engine())
                assert (await leader.executor.wait(again)).state is AttemptState.FINISHED
        finally:
            pool.close()

    asyncio.run(main())


@pytest.mark.slow
def test_py_files_of_a_connect_script_reach_its_workers(cluster: Cluster, tmp_path: Path) -> None:
    graph = script(
        tmp_path,
        """
        import job_helpers
        from pyspark.sql import SparkSession
        from pyspark.sql.functions import udf
        spark = SparkSession.builder.getOrCreate()
        print(spark.range(3).select(udf(job_helpers.twice, "bigint")("id")).collect()[2][0])
        """,
    )
    graph = graph.model_copy(update={"settings": job(python("a", "numbers")).settings})
    run = cluster.run_graph(graph)
    assert run.result.failure is None, run.stderr
    assert run.stdout.split() == ["4"]
