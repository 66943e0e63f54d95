"""docs/reference/attacks.md is true: every attack is there, and every test that it names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "attacks.md").read_text()
NUMBERS = {f"S{n}" for n in range(1, 49)}
ROWS = re.findall(r"^\| (S\d+) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py::[\w:]+)`", PAGE)))


def named_in(file: Path) -> set[str]:
    """As pytest names them, without their parameters."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (n.name for n in node.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_"))
            found |= {f"{node.name}::{name}" for name in inner}
    return found


def test_every_attack_is_there_once() -> None:
    there = [int(number[1:]) for number, *_ in ROWS]
    assert there == sorted(set(there))
    assert {number for number, *_ in ROWS} >= NUMBERS
    for number, _, guard, tests in ROWS:
        assert guard.strip(), number
        assert "::test_" in tests or "::Test" in tests or "not protected" in guard.lower(), number


@pytest.mark.parametrize("name", NAMED)
def test_every_test_that_is_named_exists(name: str) -> None:
    path, _, test = name.partition("::")
    assert test in named_in(ROOT / path)


def test_every_attack_of_this_directory_is_on_the_page() -> None:
    """Else the page would grow old without anybody noticing."""
    shown = {name.partition("::")[0] for name in NAMED} | set(re.findall(r"tests/attacks/test_\w+\.py", PAGE))
    here = {f"tests/attacks/{path.name}" for path in Path(__file__).parent.glob("test_*.py")}
    assert here - {"tests/attacks/test_attacks_page.py"} <= shown
