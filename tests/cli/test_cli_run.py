"""The command as a user meets it: exit codes, Ctrl-C, detached jobs, output in a pipe."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.conftest import Cluster
from tests.support.engine_shape import environment

from firesteel.cli import exit_codes

pytestmark = pytest.mark.spark

PIPELINE = """\
name: numbers
variables: {{out: {out}}}
vertices:
  - {{kind: source, name: lines, format: text, path: "{data}"}}
  - {{kind: sql, name: counted, query: "SELECT value, count(*) AS n FROM lines GROUP BY value"}}
  - {{kind: sink, name: result, input: counted, format: parquet, path: "${{out}}", mode: overwrite}}
"""

ENDLESS = """\
name: endless
mode: streaming
vertices:
  - {{kind: source, name: ticks, format: rate, options: {{rowsPerSecond: 5}}}}
  - {{kind: sink, name: result, input: ticks, format: parquet, path: "{out}", trigger: 300 ms}}
"""

Firesteel = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def firesteel(cluster: Cluster) -> Iterator[Firesteel]:
    """The command, on a cluster that it wakes up beside the shared engine; ended with the test run."""
    cluster.engine()
    with commands(cluster.configuration.data.dir) as made:
        yield made


@contextlib.contextmanager
def own_cluster(data_dir: Path) -> Iterator[Firesteel]:
    with commands(data_dir) as made:
        try:
            yield made
        finally:
            ended = finish(made("cluster", "stop"))
            assert ended[0] == exit_codes.OK, ended


@contextlib.contextmanager
def commands(data_dir: Path) -> Iterator[Firesteel]:
    started: list[subprocess.Popen[str]] = []
    environ = environment(data_dir)

    def start(*args: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", "from firesteel.cli.main import main; main()", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
            start_new_session=True,
        )
        started.append(child)
        return child

    yield start
    for child in started:
        if child.poll() is None:
            child.kill()
        child.communicate()


def finish(child: subprocess.Popen[str], timeout: float = 90) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=timeout)
    return child.returncode, out, err


def batch(tmp_path: Path) -> Path:
    (tmp_path / "data.txt").write_text("a\nb\na\n")
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(data=tmp_path / "data.txt", out=tmp_path / "out"))
    return file


def endless(tmp_path: Path) -> Path:
    file = tmp_path / "endless.yaml"
    file.write_text(ENDLESS.format(out=tmp_path / "out"))
    return file


def events(child: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert child.stdout is not None
    for line in child.stdout:
        yield json.loads(line)


def until(child: subprocess.Popen[str], fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    for event in events(child):
        if fits(event):
            return event
    raise AssertionError(f"no such event: {child.stderr.read() if child.stderr else ''}")


def has_batch(event: dict[str, Any]) -> bool:
    sinks = (event.get("progress") or {}).get("sinks") or {}
    return any(sink.get("batch") is not None for sink in sinks.values())


def says(text: str) -> Callable[[dict[str, Any]], bool]:
    return lambda event: text in (event.get("lines") or ())


def status_of(firesteel: Firesteel, job_id: str) -> str:
    code, out, err = finish(firesteel("list", "-a", "--json"))
    assert code == exit_codes.OK, err
    return {j["job_id"]: str(j["status"]) for j in json.loads(out)}.get(job_id, "unknown")


def test_run_shows_what_happens_and_the_result(firesteel: Firesteel, tmp_path: Path) -> None:
    code, out, err = finish(firesteel("run", str(batch(tmp_path)), "--show", "5", f"-Dout={tmp_path / 'other'}"))
    assert code == exit_codes.OK, err
    assert "numbers  batch job" in out
    assert "rows: lines 3, result 2" in out
    assert "FINISHED in" in out
    assert "│ a     │ 2 │" in out
    assert (tmp_path / "other" / "_SUCCESS").exists()


def test_json_output_is_json_lines(firesteel: Firesteel, tmp_path: Path) -> None:
    code, out, _ = finish(firesteel("run", str(batch(tmp_path)), "--json", "--show", "5"))
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == exit_codes.OK
    assert lines[-1]["type"] == "summary"
    assert lines[-1]["status"] == "FINISHED"
    assert sorted(next(e for e in lines if e["type"] == "rows")["rows"]) == [["a", 2], ["b", 1]]


def test_invalid_pipeline_runs_nothing_and_says_all(firesteel: Firesteel, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "name: x\nvertices:\n"
        "  - {kind: sink, name: o, input: nope, format: parquet, path: /x}\n"
        "  - {kind: sink, name: p, input: o, format: parquet, pathh: /y}\n"
    )
    code, out, err = finish(firesteel("run", str(file)))
    assert code == exit_codes.INVALID
    assert out == ""
    assert "did you mean 'path'" in err
    assert "nope" in err
    assert "nothing was run" in err


def test_unknown_definition_names_the_nearest(firesteel: Firesteel, tmp_path: Path) -> None:
    code, _, err = finish(firesteel("run", str(batch(tmp_path)), "-Dengine.mastr=x"))
    assert code == exit_codes.INVALID
    assert "engine.master" in err
    code, _, err = finish(firesteel("run", str(batch(tmp_path)), "-Doutt=x"))
    assert code == exit_codes.INVALID
    assert "'out'" in err


def test_failed_job_ends_with_one_and_the_reason(firesteel: Firesteel, tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    program.write_text("from pyspark.sql import SparkSession\nprint('so far')\nraise ValueError('bad luck')\n")
    code, out, _ = finish(firesteel("run", str(program)))
    assert code == exit_codes.FAILED
    assert "so far" in out
    assert "user code: ValueError: bad luck" in out
    assert out.count('p.py", line 3') == 1
    assert out.count("bad luck") == 3  # in the line of the source, at the end of the traceback, and in the summary


def test_script_gets_its_arguments_and_its_exit_code_is_that_of_the_command(
    firesteel: Firesteel, tmp_path: Path
) -> None:
    program = tmp_path / "days.py"
    program.write_text("import sys\nprint('given', sys.argv[1:])\nsys.exit(77)\n")
    code, out, err = finish(firesteel("run", str(program), "--day", "2026-01-01", "-d"))
    assert code == 77, err
    assert "given ['--day', '2026-01-01', '-d']" in out
    assert out.count("the program exited with code 77") == 1


@pytest.mark.slow
def test_ctrl_c_stops_a_stream_after_its_batch_and_it_can_be_resumed(firesteel: Firesteel, tmp_path: Path) -> None:
    """So does SIGTERM. Whatever the signals interrupt, each row of the source is there once in the end."""
    child = firesteel("run", str(endless(tmp_path)), "--json")
    job_id = until(child, has_batch)["job_id"]
    for number in (signal.SIGINT, signal.SIGTERM):
        child.send_signal(number)
        code, out, err = finish(child, timeout=60)
        assert code == exit_codes.CANCELED, err
        summary = json.loads(out.splitlines()[-1])
        assert (summary["status"], summary["stopped"]) == ("FINISHED", True)
        assert Path(summary["checkpoint"], "result", "commits").is_dir()
        if number == signal.SIGINT:
            code, out, _ = finish(firesteel("status", job_id))
            assert f"firesteel resume {job_id[:8]}" in out
            child = firesteel("resume", job_id, "--json")
            job_id = until(child, has_batch)["job_id"]
    files = (tmp_path / "out").glob("*.parquet")
    values = sorted(v for f in files for v in pq.read_table(f).column("value").to_pylist())
    assert values == list(range(len(values)))
    assert len(values) > 0


@pytest.mark.slow
def test_second_ctrl_c_leaves_with_the_cancel_durable(firesteel: Firesteel, tmp_path: Path) -> None:
    """A driver that does not listen takes its time to be ended; nobody has to watch that."""
    program = tmp_path / "deaf.py"
    program.write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(300)\n"
    )
    child = firesteel("run", "--json", str(program))
    job_id = until(child, says("deaf"))["job_id"]
    child.send_signal(signal.SIGINT)
    until(child, lambda e: e["type"] == "note" and "cancelling" in e["text"])
    deadline = time.monotonic() + 60
    while status_of(firesteel, job_id) not in ("CANCELLING", "CANCELED"):  # the wish has arrived
        assert time.monotonic() < deadline
    child.send_signal(signal.SIGINT)
    code, _, err = finish(child, timeout=60)
    assert code == exit_codes.CANCELED, err
    code, out, err = finish(firesteel("status", job_id, "--json"))
    assert json.loads(out)["status"] in ("CANCELLING", "CANCELED"), err


@pytest.mark.slow
def test_detached_job_is_listed_followed_and_cancelled(firesteel: Firesteel, tmp_path: Path) -> None:
    code, out, err = finish(firesteel("run", "-d", str(endless(tmp_path)), "--json"))
    assert code == exit_codes.OK, err
    job_id = json.loads(out)["job_id"]
    following = firesteel("events", "-f", job_id, "--json")
    until(following, has_batch)
    assert status_of(firesteel, job_id) == "RUNNING"
    code, out, err = finish(firesteel("cancel", job_id[:12]))
    assert code == exit_codes.OK, err
    assert f"Job {job_id} is CANCELED." in out
    assert finish(following)[0] == exit_codes.OK
    code, _, err = finish(firesteel("cancel", job_id))
    assert code == exit_codes.OK, err  # it is what was asked for


@pytest.mark.slow
def test_attached_client_that_is_killed_leaves_the_job_running(firesteel: Firesteel, tmp_path: Path) -> None:
    child = firesteel("run", str(endless(tmp_path)), "--json")
    job_id = until(child, has_batch)["job_id"]
    child.kill()
    child.wait()
    assert status_of(firesteel, job_id) == "RUNNING"
    code, out, err = finish(firesteel("cancel", job_id))
    assert code == exit_codes.OK, err
    assert f"Job {job_id} is CANCELED." in out


@pytest.mark.slow
def test_reader_that_has_seen_enough_does_not_end_the_job(firesteel: Firesteel, tmp_path: Path) -> None:
    """`firesteel run … | head -1`: the job goes on to its end, and the exit code tells of it."""
    child = firesteel("run", str(batch(tmp_path)))
    assert child.stdout is not None
    assert child.stdout.readline()
    child.stdout.close()
    assert child.wait(90) == exit_codes.OK
    assert child.stderr is not None
    assert "Traceback" not in child.stderr.read()
    assert (tmp_path / "out" / "_SUCCESS").exists()
    child.stdout = None


def test_broken_pipe_is_quiet(firesteel: Firesteel, cluster: Cluster) -> None:
    child = firesteel("config")
    assert child.stdout is not None
    child.stdout.close()
    assert child.stderr is not None
    err = child.stderr.read()
    child.wait(30)
    assert "Traceback" not in err
    child.stdout = None


def test_info_shows_graph_schemas_and_plan_without_running(firesteel: Firesteel, tmp_path: Path) -> None:
    code, out, err = finish(firesteel("info", str(batch(tmp_path)), "--json"))
    assert code == exit_codes.OK, err
    document = json.loads(out)
    assert [v["name"] for v in document["job_graph"]["vertices"]] == ["lines", "counted", "result"]
    assert document["schemas"]["counted"] == [["value", "string", True], ["n", "bigint", False]]
    assert "HashAggregate" in document["plans"]["result"]
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_info_reports_what_spark_objects_to(firesteel: Firesteel, tmp_path: Path) -> None:
    file = batch(tmp_path)
    file.write_text(file.read_text().replace("SELECT value, count(*) AS n", "SELECT value, nope"))
    code, out, err = finish(firesteel("info", str(file)))
    assert code == exit_codes.INVALID
    assert "└─ counted" in out
    assert "vertex 'counted'" in err
    assert "UNRESOLVED_COLUMN" in err


@pytest.mark.slow
def test_no_engine_is_a_code_of_its_own_with_the_log(tmp_path: Path) -> None:
    """In a data directory of its own: other settings are another cluster."""
    with own_cluster(tmp_path / "data") as firesteel:
        code, out, err = finish(firesteel("run", str(batch(tmp_path)), "-Dspark.serializer=no.such.Serializer"))
        assert code == exit_codes.ENGINE, err
        assert "the Spark engine ended while it was starting" in out
        assert "no.such.Serializer" in out
        assert re.search(r"FAILED in .* s with starting the cluster\)", out)


@pytest.mark.slow
def test_ctrl_c_while_the_engine_starts(tmp_path: Path) -> None:
    with own_cluster(tmp_path / "data") as firesteel:
        child = firesteel("run", str(batch(tmp_path)), "--json")
        job_id = until(child, lambda e: e.get("status") == "CREATED")["job_id"]
        child.send_signal(signal.SIGINT)
        code, _, err = finish(child, timeout=60)
        assert code == exit_codes.CANCELED, err
        assert status_of(firesteel, job_id) == "CANCELED"
        assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "data").glob("clusters/*/engines/*")), "the engine has ended with the node"


def test_script_output_comes_while_it_runs(firesteel: Firesteel, tmp_path: Path) -> None:
    program = tmp_path / "talks.py"
    go = tmp_path / "go"
    program.write_text(
        f"import os, time\nprint('hello', flush=True)\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
    )
    child = firesteel("run", "--json", str(program))
    until(child, says("hello"))
    assert child.poll() is None
    go.touch()
    assert finish(child)[0] == exit_codes.OK
