"""`firesteel run-application` as a user meets it: on a real engine, in a cluster that is gone afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.engine_shape import environment

from firesteel.cli import exit_codes
from firesteel.client.application import derived_id
from firesteel.types import new_job_id

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TWO_JOBS = """\
import sys
import firesteel

def job(name, rows):
    query = {"kind": "sql", "name": "n", "query": f"SELECT id FROM range({rows})"}
    sink = {"kind": "sink", "name": "out", "input": "n", "format": "json", "path": f"{sys.argv[1]}/{name}"}
    return {"name": name, "vertices": [query, sink]}

with firesteel.connect() as cluster:
    for name, rows in (("first", 3), ("second", 5)):
        print(name, cluster.submit(job(name, rows)).wait().status.value)
sys.exit(0)
"""

PLAIN = """\
import sys
from pyspark.sql import SparkSession

print("rows", SparkSession.builder.getOrCreate().range(7).count())
sys.exit(int(sys.argv[1]))
"""


def run_application(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from firesteel.cli.main import main; main()", "run-application", *words]
    env = environment(tmp_path / "data")
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, check=False, timeout=230)


def left_behind(tmp_path: Path) -> list[str]:
    """What only a running cluster needs, and processes that name its directory."""
    home = next((tmp_path / "data" / "clusters").glob("application-*"))
    files = [str(p) for name in ("blobs", "engines", "rest.json") for p in (home / name,) if p.exists()]
    named = str(home).encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if named in (entry / "cmdline").read_bytes():
                    files.append(entry.name)
            except OSError:
                continue
    return files


def test_program_with_two_jobs_runs_in_a_cluster_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO_JOBS)
    application = new_job_id()
    ended = run_application(tmp_path, "--job-id", application, "two.py", str(tmp_path / "out"))
    assert ended.returncode == exit_codes.OK, ended.stderr
    assert "first FINISHED" in ended.stdout
    assert "second FINISHED" in ended.stdout
    rows = [line for f in (tmp_path / "out" / "second").glob("*.json") for line in f.read_text().splitlines()]
    assert sorted(json.loads(row)["id"] for row in rows) == [0, 1, 2, 3, 4]
    assert left_behind(tmp_path) == []
    jobs = next((tmp_path / "data" / "clusters").glob("application-*")) / "jobs"
    assert {p.name for p in jobs.iterdir() if len(p.name) == 32} == {
        application,
        derived_id(application, "first", 1),
        derived_id(application, "second", 1),
    }
    # The same again is not the same twice.
    again = run_application(tmp_path, "--job-id", application, "two.py", str(tmp_path / "out"))
    assert again.returncode == exit_codes.OK
    assert "has already ended (SUCCEEDED); nothing was run" in again.stderr


def test_exit_code_of_a_plain_script_is_that_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    ended = run_application(tmp_path, "plain.py", "7")
    assert "rows 7" in ended.stdout, ended.stderr
    assert ended.returncode == 7
    assert left_behind(tmp_path) == []
