"""Each I-, F- and S-number that is cited anywhere is explained in its legend."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEGENDS = {"I": "guarantees.md", "F": "guarantees.md", "S": "attacks.md"}
CITED = re.compile(r"(?<![\w.`/-])([IFS])([1-9]\d?)(?![\w.-])")
NOT_A_NUMBER = {"F99": "a fault that a test asks for because there is none"}


def explained(letter: str) -> set[str]:
    page = (ROOT / "docs" / "reference" / LEGENDS[letter]).read_text()
    return set(re.findall(rf"^\| ({letter}\d+) \|", page, re.MULTILINE))


@pytest.mark.parametrize("letter", LEGENDS)
def test_every_number_that_is_cited_is_in_the_legend(letter: str) -> None:
    cited: dict[str, str] = {}
    folders = ("src", "chaos", "tests", "benchmarks", "docs", "scripts")
    files = [f for folder in folders for kind in ("*.py", "*.md") for f in (ROOT / folder).rglob(kind)]
    for file in [*files, ROOT / "CONTRIBUTING.md", ROOT / "README.md"]:
        for found in CITED.finditer(file.read_text()):
            if found[1] == letter:
                cited.setdefault(found[1] + found[2], str(file.relative_to(ROOT)))
    assert len(cited) > 20, "the pattern finds what is cited"
    unknown = {n: where for n, where in cited.items() if n not in explained(letter) and n not in NOT_A_NUMBER}
    assert not unknown


@pytest.mark.parametrize("letter", LEGENDS)
def test_no_number_is_explained_twice(letter: str) -> None:
    page = (ROOT / "docs" / "reference" / LEGENDS[letter]).read_text()
    numbers = re.findall(rf"^\| ({letter}\d+) \|", page, re.MULTILINE)
    assert len(numbers) == len(set(numbers))
