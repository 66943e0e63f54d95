"""The command as a user meets it: exit codes, Ctrl-C, detached jobs, output in a pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster

from firesteel.cli import exit_codes
from firesteel.embedded.jobs import JobsDirectory
from firesteel.status import JobStatus

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
    """Start the command on the shared engine."""
    cluster.engine()
    started: list[subprocess.Popen[str]] = []
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
    environment |= {"FIRESTEEL_DATA_DIR": str(cluster.configuration.data.dir), "FIRESTEEL_ENGINE_MASTER": "local[2]"}

    def start(*args: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", "from firesteel.cli.main import main; main()", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
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


def until(child: subprocess.Popen[str], kind: str) -> dict[str, Any]:
    for event in events(child):
        if event["type"] == kind:
            return event
    raise AssertionError(f"no {kind}: {child.stderr.read() if child.stderr else ''}")


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
    assert 'p.py", line 3' in out


def test_ctrl_c_cancels_cleanly(firesteel: Firesteel, cluster: Cluster, tmp_path: Path) -> None:
    child = firesteel("run", str(endless(tmp_path)), "--json")
    job_id = until(child, "batch")["job_id"]
    child.send_signal(signal.SIGINT)
    code, out, err = finish(child, timeout=30)
    assert code == exit_codes.CANCELED, err
    assert json.loads(out.splitlines()[-1])["status"] == "CANCELED"
    assert cluster.jobs.job(job_id).load().status is JobStatus.CANCELED


def test_second_ctrl_c_kills_a_driver_that_does_not_listen(firesteel: Firesteel, tmp_path: Path) -> None:
    program = tmp_path / "deaf.py"
    program.write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(300)\n"
    )
    child = firesteel("run", str(program), "--json")
    job_id = until(child, "phase")["job_id"]
    deadline = time.monotonic() + 60
    attempt = JobsDirectory(Path(os.environ["FIRESTEEL_TEST_ROOT"])).job(job_id).attempt(1)
    while not (attempt.stdout.exists() and "deaf" in attempt.stdout.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    until(child, "phase")
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    code, _, err = finish(child, timeout=30)
    assert code == exit_codes.CANCELED, err
    assert time.monotonic() - began < 9  # sooner than driver.cancel-timeout


def test_detached_job_is_listed_logged_and_cancelled(firesteel: Firesteel, cluster: Cluster, tmp_path: Path) -> None:
    code, out, err = finish(firesteel("run", "-d", str(endless(tmp_path)), "--json"))
    assert code == exit_codes.OK, err
    job_id = json.loads(out)["job_id"]
    directory = cluster.jobs.job(job_id)
    attempt = directory.attempt(1)
    deadline = time.monotonic() + 60
    while not (attempt.events.exists() and '"batch"' in attempt.events.read_text()):
        assert time.monotonic() < deadline, (directory.root / "supervisor.log").read_text()
        time.sleep(0.05)
    code, out, _ = finish(firesteel("list", "--json"))
    assert {(j["job_id"], j["status"]) for j in json.loads(out) if j["job_id"] == job_id} == {(job_id, "RUNNING")}
    code, out, err = finish(firesteel("cancel", job_id[:12]))
    assert (code, out) == (exit_codes.OK, f"Job {job_id} is CANCELED.\n"), err
    code, _, err = finish(firesteel("cancel", job_id))
    assert code != 0
    assert "only running jobs can be cancelled" in err


def test_job_whose_supervisor_was_killed_is_suspended_and_can_be_ended(
    firesteel: Firesteel, cluster: Cluster, tmp_path: Path
) -> None:
    """I8 for the embedded cluster: the driver goes on without its supervisor; nothing is left after a cancel."""
    child = firesteel("run", str(endless(tmp_path)), "--json")
    job_id = until(child, "batch")["job_id"]
    directory = cluster.jobs.job(job_id)
    driver = directory.load().driver
    assert driver is not None
    child.kill()
    child.wait()
    assert directory.load().status is JobStatus.SUSPENDED
    assert driver.alive
    code, out, err = finish(firesteel("cancel", job_id))
    assert (code, out) == (exit_codes.OK, f"Job {job_id} is CANCELED.\n"), err
    assert not driver.alive


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


def test_info_reports_what_spark_objects_to(firesteel: Firesteel, tmp_path: Path) -> None:
    file = batch(tmp_path)
    file.write_text(file.read_text().replace("SELECT value, count(*) AS n", "SELECT value, nope"))
    code, out, err = finish(firesteel("info", str(file)))
    assert code == exit_codes.INVALID
    assert "└─ counted" in out
    assert "vertex 'counted'" in err
    assert "UNRESOLVED_COLUMN" in err


def test_no_engine_is_a_code_of_its_own_with_the_log(firesteel: Firesteel, tmp_path: Path) -> None:
    code, out, _ = finish(firesteel("run", str(batch(tmp_path)), "-Dspark.serializer=no.such.Serializer"))
    assert code == exit_codes.ENGINE
    assert "engine start: the Spark engine ended while it was starting" in out
    assert "no.such.Serializer" in out


def test_ctrl_c_while_the_engine_starts(firesteel: Firesteel, cluster: Cluster, tmp_path: Path) -> None:
    child = firesteel("run", str(batch(tmp_path)), "--json", "-Dengine.reuse=false")
    job_id = until(child, "phase")["job_id"]
    child.send_signal(signal.SIGINT)
    code, _, err = finish(child, timeout=30)
    assert code == exit_codes.CANCELED, err
    assert cluster.jobs.job(job_id).load().status is JobStatus.CANCELED
    assert not (tmp_path / "out").exists()


def test_script_output_comes_while_it_runs(firesteel: Firesteel, tmp_path: Path) -> None:
    program = tmp_path / "talks.py"
    go = tmp_path / "go"
    program.write_text(
        f"import os, time\nprint('hello', flush=True)\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
    )
    child = firesteel("run", str(program), "--json")
    assert until(child, "output")["text"] == "hello"
    assert child.poll() is None
    go.touch()
    assert finish(child)[0] == exit_codes.OK
