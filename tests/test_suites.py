"""`make test` and `make test-rest` run each test once, and every mark is explained."""

from __future__ import annotations

import itertools
import re
import tomllib
from functools import partial
from pathlib import Path

from _pytest.mark.expression import Expression

ROOT = Path(__file__).parent.parent
MARKS = ("slow", "sample", "integration", "spark", "hdfs")


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
