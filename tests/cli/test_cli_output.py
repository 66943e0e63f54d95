"""What goes into a pipe is whole: nothing wrapped, nothing cut; and `--output` where there are tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import Command, overview
from tests.client.fake_cluster import FakeCluster, Node
from tests.conftest import graph_of

from firesteel.cli import exit_codes
from firesteel.cli.display import TextDisplay

JOB = "a" * 32
LONG = "a-very-long-name-of-a-column-that-nobody-would-want-to-see-cut"


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a shell exports of its window must not matter to a pipe."""
    monkeypatch.setenv("COLUMNS", "60")


def test_config_in_a_pipe_has_an_option_a_line(command: Command) -> None:
    answer = command("config")
    lines = answer.out.splitlines()
    assert any("high-availability.lease-duration" in line for line in lines)
    assert len(lines) == 1 + len(command("config", "--json").json)


def test_doctor_in_a_pipe_is_not_wrapped_and_optional_is_not_ok(command: Command) -> None:
    lines = command("doctor").out.splitlines()
    (spark,) = [line for line in lines if "from pyspark package" in line or "from SPARK_HOME" in line]
    assert "Spark" in spark
    kafka = next(line for line in lines if "Kafka connector" in line)
    assert "not in Spark's jars" not in kafka or kafka.split()[0] == "optional"


def test_rows_of_an_output_in_a_pipe_are_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    columns = [f"{LONG}-{n}" for n in range(4)]
    (tmp_path / "out" / "part-0.csv").write_text(f"{','.join(columns)}\n{','.join(columns)}\n")
    graph = graph_of(
        {"kind": "source", "name": "src", "format": "csv", "path": "/data", "schema": "a INT"},
        {
            "kind": "sink",
            "name": "o",
            "input": "src",
            "format": "csv",
            "path": str(tmp_path / "out"),
            "mode": "overwrite",
            "options": {"header": "true"},
        },
    )
    TextDisplay(graph, JOB).show_outputs(graph, 5)
    lines = capsys.readouterr().out.splitlines()
    assert sum(all(c in line for c in columns) for line in lines) == 2


def test_output_is_chosen_by_one_option_everywhere(command: Command, fake: FakeCluster, node: Node) -> None:
    fake.answers["/jobs/list"] = {"jobs": [overview(JOB)]}
    there = ["-m", node.address]
    assert command("list", "--output", "json", *there).json == command("list", "--json", *there).json
    wide = command("list", "--output", "wide", *there)
    assert JOB in wide.out
    assert command("config", "--output", "json").json
    assert command("doctor", "--output", "wide").code == exit_codes.OK
    assert command("list", "--output", "xml", *there).code == exit_codes.USAGE


def test_wide_output_is_whole_on_a_terminal_too(
    command: Command, fake: FakeCluster, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers["/jobs/list"] = {"jobs": [overview(JOB, LONG)]}
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert JOB not in command("list", "-m", node.address).out
    wide = command("list", "--output", "wide", "-m", node.address).out
    assert JOB in wide
    assert LONG in wide


def test_data_directory_that_cannot_be_used_is_named(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FIRESTEEL_DATA_DIR", str(tmp_path / "file" / "data"))
    answer = command("list")
    assert answer.code == exit_codes.FAILED
    assert "data.dir" in answer.err
    assert str(tmp_path / "file" / "data") in answer.err
    assert "Not a directory" in answer.err


def test_info_says_why_a_script_needs_no_jvm_of_its_own(command: Command) -> None:
    Path("s.py").write_text("from pyspark.sql import SparkSession\n")
    answer = command("info", "s.py")
    assert "api: connect\n  nothing in it needs a SparkContext" in answer.out


def test_name_of_a_vertex_is_of_ascii_letters(command: Command) -> None:
    Path("p.yaml").write_text("name: x\nvertices:\n  - {kind: source, name: Äpfel, format: csv, path: /a}\n")
    answer = command("info", "--offline", "p.yaml")
    assert answer.code == exit_codes.INVALID
    assert "letters (a-z, A-Z), digits and underscores" in answer.err
