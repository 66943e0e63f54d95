"""Programs that submit jobs themselves: told from plain scripts and from files that describe one job."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from firesteel.jobgraph.python_source import builds_job, read_python

CONNECTS = "import firesteel\nwith firesteel.connect() as c:\n    c.submit({})\n"


@pytest.mark.parametrize(
    ("text", "api"),
    [
        (CONNECTS, "none"),
        ("from firesteel import connect\nconnect()\n", "none"),
        ("from firesteel.client import connect_async\n", "none"),
        ("from firesteel import Job, connect\nconnect().submit(Job('x'))\n", "none"),
        (CONNECTS + "from pyspark.sql import SparkSession\n", None),
        (CONNECTS + "import pyspark.sql\n", None),
        ("from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate()\n", None),
        ("import firesteel\nfiresteel.metrics.counter('n')\n", None),
        ("connect()\n", None),
    ],
)
def test_program_without_spark_needs_no_engine(tmp_path: Path, text: str, api: str | None) -> None:
    document = read_python(tmp_path / "p.py", text)
    assert document.data["vertices"][0].get("api") == api


def test_file_that_submits_its_job_describes_none() -> None:
    assert builds_job(ast.parse("from firesteel import Job\n"))
    assert not builds_job(ast.parse("from firesteel import Job, connect\n"))
