"""The examples on the page of the test kit, run as they are written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from firesteel import testing

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "testing.md").read_text("utf-8")
FILES = dict(re.findall(r"^```(?:python|yaml)\n# (\S+\.\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
WITHOUT_SPARK = {"test_enricher.py", "test_failover.py", "test_time.py"}
BACKEND = "test_backend.py"
PIPELINE = {"conftest.py", "revenue.yaml", "test_revenue.py"}


def passed(directory: Path, names: set[str]) -> int:
    for name in names:
        (directory / name).write_text(FILES[name])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        "--rootdir",
        str(directory),
    ]
    done = subprocess.run([*command, str(directory)], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(re.findall(r"(\d+) passed", done.stdout)[0])


@pytest.mark.slow
def test_examples_without_spark_pass(tmp_path: Path) -> None:
    assert passed(tmp_path, WITHOUT_SPARK) == 3


@pytest.mark.slow
def test_example_of_a_backend_keeps_the_contract(tmp_path: Path) -> None:
    assert passed(tmp_path, {BACKEND}) > 30


def test_every_file_on_the_page_is_run() -> None:
    assert set(FILES) == {*WITHOUT_SPARK, BACKEND, *PIPELINE}


@pytest.mark.spark
@pytest.mark.slow
def test_example_of_a_pipeline_passes(tmp_path: Path) -> None:
    assert passed(tmp_path, PIPELINE) == 1


def test_page_tells_of_every_name() -> None:
    assert [name for name in testing.__all__ if f"`{name}" not in PAGE] == []
