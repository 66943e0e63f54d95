"""`.py` pipelines: which are scripts, and that user code stays in its own process."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from textwrap import dedent

import pytest

from firesteel.errors import InvalidPipelineError
from firesteel.jobgraph.load import load_pipeline
from firesteel.jobgraph.model import JobGraph, Script
from firesteel.jobgraph.python_source import builds_job, read_python


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from firesteel import Job", True),
        ("from firesteel.jobgraph import Job as J", True),
        ("from firesteel.jobgraph.api import Job", True),
        ("from firesteel import *", True),
        ("import firesteel\njob = firesteel.Job('a')", True),
        ("try:\n    from firesteel import Job\nexcept ImportError:\n    Job = None", True),
        ("from pyspark.sql import SparkSession", False),
        ("import firesteel\nprint(firesteel.__version__)", False),
        ("from jobs import Job", False),
        ("from .firesteel import Job", False),
        ("# from firesteel import Job", False),
    ],
)
def test_a_file_builds_a_job_when_it_uses_firesteels(text: str, expected: bool) -> None:
    assert builds_job(ast.parse(text)) is expected


def test_any_other_file_is_a_script(tmp_path: Path) -> None:
    file = tmp_path / "daily-report.py"
    file.write_text("raise SystemExit('a script is not run when it is loaded')\n")
    assert load_pipeline(file).graph == JobGraph(name="daily-report", vertices=(Script(name="script", file=str(file)),))


def test_script_takes_no_variables(tmp_path: Path) -> None:
    file = tmp_path / "s.py"
    file.write_text("")
    with pytest.raises(InvalidPipelineError, match=r"the variable 'x' was given, .* remove -Dx; it declares none"):
        load_pipeline(file, variables={"x": "1"})


JOB = """
    import os, sys
    from firesteel.jobgraph import Job

    {first}
    job = Job("a")
    job.sink("out", job.source("rows", "csv", path="in"), format="noop")
"""


def write(tmp_path: Path, first: str) -> Path:
    file = tmp_path / "p.py"
    file.write_text(dedent(JOB).format(first=first))
    return file


def test_what_the_file_prints_does_not_spoil_the_job(tmp_path: Path) -> None:
    file = write(tmp_path, "print('{'); os.system('echo [1]'); sys.stderr.write('!')")
    assert load_pipeline(file).graph.name == "a"


def test_the_file_runs_in_another_process_under_our_name(tmp_path: Path) -> None:
    file = write(tmp_path, f"open({str(tmp_path / 'who')!r}, 'w').write(__name__ + ' ' + str(os.getpid()))")
    load_pipeline(file)
    name, pid = (tmp_path / "who").read_text().split()
    assert name == "__firesteel__"
    assert int(pid) != os.getpid()


def test_modules_beside_the_file_can_be_imported_and_the_working_directory_shadows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "json.py").write_text("raise RuntimeError('shadowed')")
    (tmp_path / "helper.py").write_text("NAME = 'helped'\n")
    file = write(tmp_path, "from helper import NAME")
    file.write_text(file.read_text().replace('Job("a")', "Job(NAME)"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load_pipeline(file).graph.name == "helped"


def test_exception_is_reported_with_line_and_traceback(tmp_path: Path) -> None:
    file = write(tmp_path, "1 / 0")
    with pytest.raises(InvalidPipelineError) as raised:
        load_pipeline(file)
    (problem,) = raised.value.problems
    assert (problem.line, problem.message) == (5, "building the job failed: ZeroDivisionError: division by zero")
    assert problem.fix.startswith("correct it; its output was:\n    Traceback")
    assert problem.fix.endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("sys.exit(3)", "building the job failed: SystemExit: 3"),
        ("os._exit(4)", "building the job ended with exit code 4"),
        ("os.kill(os.getpid(), 9)", "building the job ended with exit code -9"),
    ],
)
def test_file_that_ends_its_process(tmp_path: Path, first: str, message: str) -> None:
    with pytest.raises(InvalidPipelineError) as raised:
        load_pipeline(write(tmp_path, first))
    assert raised.value.problems[0].message == message


def test_file_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    # The child holds the write end; end of file on the read end proves that it is gone.
    file = write(tmp_path, f"sys.stderr.write('waiting\\n'); os.system('exec sleep 600 > {fifo}')")
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        document = read_python(file, file.read_text(), timeout_s=2.0)
        (problem,) = document.problems
        assert problem.message == "building the job took more than 2 s"
        assert problem.fix.endswith("its output was:\n    waiting")
        os.set_blocking(reader, True)
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)


def test_job_that_is_not_json_is_reported(tmp_path: Path) -> None:
    file = write(tmp_path, "")
    file.write_text(file.read_text() + "job.python('p', 'm:f', 'rows', args={'x': object()})\n")
    with pytest.raises(InvalidPipelineError, match="building the job failed: TypeError: Object of type object"):
        load_pipeline(file)


def test_job_named_job_wins(tmp_path: Path) -> None:
    file = write(tmp_path, "other = Job('b')")
    assert load_pipeline(file).graph.name == "a"
