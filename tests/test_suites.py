"""`make test` and `make test-rest` run each test once, and every mark is explained."""

from __future__ import annotations

import ast
import itertools
import re
import tomllib
from functools import partial
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

ROOT = Path(__file__).parent.parent
MARKS = ("slow", "sample", "integration", "spark", "hdfs")
OF_EACH_KIND = {
    "adoption": "jobmaster/test_local_attempts_on_spark.py::test_next_leader_adopts_a_running_driver",
    "failover": "chaos/test_chaos_rounds.py::test_a_game_on_a_cluster_that_is_described",
    "attack": "attacks/test_attacks_by_tenants.py::test_somebody_elses_job_reads_as_if_it_were_not_there",
    "example end to end": "examples/test_example_commands.py::test_commands_of_an_example_work_twice",
    "savepoint": "savepoint/test_savepoints_on_spark.py::test_rollback_stop_and_disposal",
    "schedule with crashes": "simulation/test_schedules.py::test_crash_at_every_persistence_step",
    "killed driver": "driver/test_attempts.py::test_driver_killed_in_the_middle_of_a_write_gives_each_row_once",
    "command": "cli/test_cli_run.py::test_run_shows_what_happens_and_the_result",
    "node as a process": "entrypoint/test_node_process.py::test_signal_ends_it_well",
    "unchanged program": "spark_connect/test_pyspark_examples.py::test_program_runs_unchanged",
}
"""What `make test` must not be without, however slow these are."""


def suites() -> list[Expression]:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    written = dict(re.findall(r"^(\w+) := (.+)$", makefile, re.MULTILINE))
    used = re.findall(r"^(test|test-rest): .*\n\t\$\(PYTEST\) -m \"\$\((\w+)\)\"$", makefile, re.MULTILINE)
    assert [name for name, _ in used] == ["test", "test-rest"]
    return [Expression.compile(written[variable]) for _, variable in used]


def has(marks: frozenset[str], name: str, /, **_: object) -> bool:
    return name in marks


def test_each_test_is_in_one_suite_whatever_its_marks_are() -> None:
    both = suites()
    for flags in itertools.product((True, False), repeat=len(MARKS)):
        marks = frozenset(itertools.compress(MARKS, flags))
        assert sum(suite.evaluate(partial(has, marks)) for suite in both) == 1, marks


def test_make_test_runs_what_has_no_mark_and_samples_of_what_is_slow() -> None:
    quick, rest = suites()
    assert quick.evaluate(partial(has, frozenset()))
    assert quick.evaluate(partial(has, frozenset({"slow", "sample", "spark"})))
    assert rest.evaluate(partial(has, frozenset({"slow", "spark"})))
    assert rest.evaluate(partial(has, frozenset({"integration"})))


def test_ci_runs_both_suites_once() -> None:
    lines = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert [line.partition("#")[0].split() for line in lines if line.startswith("make ")] == [
        ["make", "check"],
        ["make", "test"],
        ["make", "test-rest"],
    ]


def test_every_mark_is_explained_to_contributors() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]["markers"]
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert {line.partition(":")[0] for line in declared} == set(MARKS)
    assert {name for name in MARKS if f"| `{name}` |" not in page} == set()


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_make_test_has_one_of_each_kind(kind: str) -> None:
    file, _, name = OF_EACH_KIND[kind].partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text("utf-8")).body
    (test,) = [node for node in tree if isinstance(node, ast.FunctionDef) and node.name == name]
    of_file = [n for n in tree if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "pytestmark"]
    marks = " ".join(ast.unparse(n) for n in [*test.decorator_list, *of_file])
    assert "integration" not in marks
    assert "mark.sample" in marks or "samples(" in marks or "mark.slow" not in marks
