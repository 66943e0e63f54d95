"""Programs that are an archive of modules: what they need, and what runs."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.conftest import Cluster, graph_of

from firesteel.driver.script import _run
from firesteel.errors import InvalidPipelineError
from firesteel.jobgraph.model import Script
from firesteel.spark_connect.script_api import analyse_script


def archive(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as z:
        for name, text in files.items():
            z.writestr(name, text)
    return path


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program changes of the interpreter is put back."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("suffix", ["zip", "whl"])
def test_the_main_of_an_archive_runs_with_its_modules_and_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    main = "import sys, helper_of_main\nprint(__name__, helper_of_main.NAME, sys.argv[1:])"
    file = archive(tmp_path / f"app.{suffix}", **{"__main__.py": main, "helper_of_main.py": "NAME = 'helper'"})
    _run(Script(name="s", file=str(file), args=("--conf", "$(x)")))
    assert capsys.readouterr().out == "__main__ helper ['--conf', '$(x)']\n"


@pytest.mark.usefixtures("clean")
def test_a_module_of_an_archive_runs_as_with_python_m(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = "import sys\nfrom .names_of_job import NAME\nprint(__name__, NAME, sys.argv[1:])"
    files = {
        "package_of_job/__init__.py": "",
        "package_of_job/job.py": job,
        "package_of_job/names_of_job.py": "NAME = 'x'",
    }
    file = archive(tmp_path / "app.whl", **files)
    _run(Script(name="s", file=str(file), module="package_of_job.job", args=("1",)))
    assert capsys.readouterr().out == "__main__ x ['1']\n"


@pytest.mark.usefixtures("clean")
def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    file = archive(tmp_path / "app.zip", **{"__main__.py": ""})
    with pytest.raises(ImportError, match="nothing_like_it"):
        _run(Script(name="s", file=str(file), module="nothing_like_it"))


@pytest.mark.parametrize("module", ["--conf", "a b", "a;b", "../x", "a..b", ".a", "1a", "", "a:b"])
def test_what_is_no_module_is_refused(module: str) -> None:
    """S12"""
    with pytest.raises(ValidationError, match="module"):
        Script(name="s", file="x.zip", module=module)


def test_a_graph_without_a_module_is_stored_as_before() -> None:
    dumped = Script(name="s", file="x.py").model_dump(mode="json", exclude_none=True)
    assert "module" not in dumped


def test_what_an_archive_needs_is_what_any_of_its_modules_needs(tmp_path: Path) -> None:
    plain = archive(tmp_path / "a.zip", **{"__main__.py": "import pkg.job", "pkg/job.py": "spark.range(1)"})
    assert analyse_script(plain).api == "connect"
    classic = archive(tmp_path / "b.whl", **{"pkg/job.py": "\nspark.sparkContext", "notes.txt": "x.rdd"})
    needs = analyse_script(classic)
    assert needs.api == "classic"
    assert [(r.file, r.line) for r in needs.reasons] == [(f"{classic}/pkg/job.py", 2)]


def test_a_module_that_is_no_python_does_not_matter(tmp_path: Path) -> None:
    file = archive(tmp_path / "a.zip", **{"__main__.py": "x = 1", "templates/broken.py": "def ("})
    assert analyse_script(file).api == "connect"


def test_an_archive_that_is_none_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.zip"
    file.write_bytes(b"PK\x03\x04 no")
    with pytest.raises(InvalidPipelineError, match=r"a\.zip.*cannot read"):
        analyse_script(file)


@pytest.mark.slow
@pytest.mark.spark
def test_a_wheel_runs_on_an_engine_and_its_modules_reach_the_workers(cluster: Cluster, tmp_path: Path) -> None:
    job = (
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "from pyspark.sql.functions import udf\n"
        "from package_on_spark.numbers import twice\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "print(sys.argv[1], spark.range(3).select(udf(twice, 'bigint')('id')).collect()[2][0])\n"
    )
    files = {
        "package_on_spark/__init__.py": "",
        "package_on_spark/job.py": job,
        "package_on_spark/numbers.py": "def twice(x): return 2 * x",
    }
    file = str(archive(tmp_path / "app.whl", **files))
    vertex = {"kind": "script", "name": "s", "file": file, "module": "package_on_spark.job", "args": ["--x"]}
    run = cluster.run_graph(graph_of(vertex, settings={"artifacts": {"py_files": [file]}}))
    assert run.result.failure is None, run.stderr
    assert run.stdout.split() == ["--x", "4"]
