"""Whose an argument is: the command's before the script, the script's after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Command
from tests.client.fake_cluster import FakeCluster, Node

SCRIPT = "import sys\nprint(sys.argv)\n"
PIPELINE = """\
name: numbers
vertices:
  - {kind: source, name: lines, format: text, path: /data.txt}
  - {kind: sink, name: result, input: lines, format: parquet, path: /out, mode: overwrite}
"""
JOB = """\
from firesteel import Job
job = Job("made")
rows = job.source("a", format="csv", path="/a", schema="x INT")
job.sink("out", rows, format="csv", path="/b")
"""


def submitted(command: Command, fake: FakeCluster, node: Node, *args: str) -> dict[str, Any]:
    answer = command("run", "-m", node.address, "-d", *args)
    assert answer.code == 0, answer.err
    vertex: dict[str, Any] = fake.asked("POST", "/jobs")[-1].json["graph"]["vertices"][0]
    return vertex


@pytest.mark.parametrize(
    ("given", "args"),
    [
        (["s.py", "--day", "2026-01-01"], ["--day", "2026-01-01"]),
        (["s.py", "-d", "-Dx=y", "--api", "classic", "--help"], ["-d", "-Dx=y", "--api", "classic", "--help"]),
        (["s.py", "a", "--", "-b"], ["a", "--", "-b"]),
        (["--api", "connect", "-p", "2", "-Drest.port=1", "s.py", "-p", "3"], ["-p", "3"]),
        (["--priority=7", "-p2", "s.py", "-n"], ["-n"]),
        (["-py", "s.py", "--day", "x"], ["--day", "x"]),
        (["-py", "s.py", "--api", "connect", "a", "--api", "b"], ["a", "--api", "b"]),
        (["--", "s.py", "--day", "x"], ["--day", "x"]),
    ],
)
def test_everything_after_the_script_is_the_scripts(
    command: Command, fake: FakeCluster, node: Node, given: list[str], args: list[str]
) -> None:
    Path("s.py").write_text(SCRIPT)
    assert list(submitted(command, fake, node, *given)["args"]) == args


@pytest.mark.parametrize(("name", "text"), [("p.yaml", PIPELINE), ("job.py", JOB)], ids=["yaml", "Job"])
def test_options_after_a_pipeline_are_the_commands(
    command: Command, fake: FakeCluster, node: Node, name: str, text: str
) -> None:
    Path(name).write_text(text)
    answer = command("run", "-m", node.address, name, "-d", "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["job_id"] in fake.submissions


def test_option_before_the_script_that_does_not_exist_is_refused(command: Command, node: Node) -> None:
    Path("s.py").write_text(SCRIPT)
    answer = command("run", "-m", node.address, "--day", "x", "s.py")
    assert answer.code == 2
    assert "--day" in answer.err
    assert "Put the arguments of a script after it" in answer.err
