"""Every example is complete, small, valid and reproducible."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from firesteel.jobgraph import load_pipeline

if TYPE_CHECKING:
    from tests.examples.example_files import EXAMPLES, FOLDERS, module
else:
    from example_files import EXAMPLES, FOLDERS, module

PIPELINES = sorted(p for d in FOLDERS for p in d.iterdir() if p.stem == "pipeline")
SCRIPTS = [EXAMPLES / "script_wordcount" / "wordcount.py", EXAMPLES / "script_rdd" / "inverted_index.py"]


def _contents(directory: Path) -> dict[str, bytes]:
    return {str(f.relative_to(directory)): f.read_bytes() for f in directory.rglob("*") if f.is_file()}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda d: d.name)
def test_data_of_example_is_what_its_generator_makes(folder: Path, tmp_path: Path) -> None:
    module(folder.name, "generate").generate(tmp_path)
    made = _contents(tmp_path)
    assert made == _contents(folder / "data")
    assert 0 < sum(map(len, made.values())) < 100_000


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda d: d.name)
def test_another_seed_makes_other_data(folder: Path, tmp_path: Path) -> None:
    module(folder.name, "generate").generate(tmp_path, seed=1)
    assert _contents(tmp_path) != _contents(folder / "data")


@pytest.mark.parametrize("pipeline", [*PIPELINES, *SCRIPTS], ids=lambda p: f"{p.parent.name}/{p.name}")
def test_example_is_valid_without_a_doubt(pipeline: Path) -> None:
    loaded = load_pipeline(pipeline)
    assert loaded.problems == ()
    assert (loaded.graph.script is not None) == (pipeline in SCRIPTS)


def test_orders_is_the_same_graph_in_yaml_sql_and_python() -> None:
    variables = {"data": "/somewhere/data", "out": "/somewhere/out"}
    yaml, sql, python = (
        load_pipeline(EXAMPLES / "orders" / f"pipeline.{suffix}", variables=variables).graph
        for suffix in ("yaml", "sql", "py")
    )
    assert sql == yaml
    assert python == yaml
    assert python.to_json() == sql.to_json() == yaml.to_json()
    assert [v.name for v in yaml.vertices if getattr(v, "cache", False)] == ["sales"]


def test_index_names_every_example_and_each_has_a_page_with_its_command() -> None:
    index = (EXAMPLES / "README.md").read_text("utf-8")
    assert [d.name for d in FOLDERS if f"[{d.name}]({d.name})" not in index] == []
    for folder in FOLDERS:
        page = (folder / "README.md").read_text("utf-8")
        programs = [p for p in (*PIPELINES, *SCRIPTS) if p.parent == folder]
        assert any(f"firesteel run examples/{folder.name}/{p.name}" in page for p in programs), folder.name


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda d: d.name)
def test_expected_result_needs_no_spark(folder: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); import expected, generate; "
        "assert not {'pyspark', 'firesteel', 'pyarrow', 'pandas'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-B", "-c", code], check=True, timeout=60)
