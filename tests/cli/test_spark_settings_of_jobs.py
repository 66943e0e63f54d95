"""`firesteel run -Dspark.…`: a setting of the job. It costs no node, and no engine unless it is fixed at its start."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.cli.test_cli_run import Firesteel, finish, firesteel

from firesteel.cli import exit_codes
from firesteel.cli.options import Given, spark_of_job
from firesteel.cli.run import prepared
from firesteel.config import load_configuration
from firesteel.jobgraph.model import JobGraph

__all__ = ["firesteel"]

SHOW = """\
from pyspark.sql import SparkSession
print("partitions", SparkSession.builder.getOrCreate().conf.get("spark.sql.shuffle.partitions"))
"""


def given(tmp_path: Path, **overrides: str) -> Given:
    options = {"data.dir": str(tmp_path), **overrides}
    return Given(load_configuration(overrides=options, environ={}, cwd=tmp_path), options, {}, None)


def test_settings_that_a_job_can_have_are_the_jobs_and_the_others_the_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in [v for v in os.environ if v.startswith("FIRESTEEL_")]:
        monkeypatch.delenv(variable)
    session, fixed, reserved = "spark.sql.shuffle.partitions", "spark.locality.wait", "spark.plugins"
    spark, rest = spark_of_job(given(tmp_path, **{session: "3", fixed: "1s", reserved: "a.B", "engine.slots": "2"}))
    assert spark == {session: "3", fixed: "1s"}
    assert dict(rest.configuration.spark) == {reserved: "a.B"}
    assert rest.configuration.engine.slots == 2
    assert set(rest.overrides) == {"data.dir", reserved, "engine.slots"}


def graph(tmp_path: Path, text: str, spark: dict[str, str]) -> JobGraph:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    return prepared(
        given(tmp_path),
        file,
        (),
        local=True,
        python=None,
        py_files=None,
        entry=None,
        parallelism=None,
        savepoint=None,
        allow_non_restored=False,
        api=None,
        spark=spark,
    )


def test_what_the_pipeline_says_goes_before_the_command_line(tmp_path: Path) -> None:
    text = """\
name: p
settings: {spark: {spark.sql.shuffle.partitions: "7"}}
vertices:
  - {kind: source, name: a, format: csv, path: /in}
  - {kind: sink, name: o, input: a, format: parquet, path: /out, mode: overwrite}
"""
    made = graph(tmp_path, text, {"spark.sql.shuffle.partitions": "3", "spark.sql.ansi.enabled": "false"})
    assert made.settings.spark == {"spark.sql.shuffle.partitions": "7", "spark.sql.ansi.enabled": "false"}


@pytest.mark.slow
@pytest.mark.spark
def test_session_setting_restarts_neither_node_nor_engine(firesteel: Firesteel, tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text(SHOW)

    def cluster() -> tuple[int, list[str]]:
        code, out, err = finish(firesteel("cluster", "status", "--json"))
        assert code == exit_codes.OK, err
        status = json.loads(out)
        return status["node"]["pid"], [e["engine_id"] for e in status["engines"]]

    assert finish(firesteel("run", str(script)))[0] == exit_codes.OK
    before = cluster()
    for number in (3, 5):
        code, out, err = finish(firesteel("run", f"-Dspark.sql.shuffle.partitions={number}", str(script)))
        assert code == exit_codes.OK, err
        assert f"partitions {number}" in out
    assert cluster() == before
