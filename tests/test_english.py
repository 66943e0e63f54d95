"""Messages are written in plain English: some turns of phrase that readers stumble over do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("src", "chaos/src")

INSTEAD = {
    r"\b(no|some|any)body\b": "name the thing: no node, another user, the caller",
    r"\bwhoever\b|\bwhosever\b|\bwhom\b": "name the one that is meant",
    r"\b(leads?|led) no more\b": "no longer leads",
    r"(?<!here )\bis no (?!longer\b)[a-z]": "is not a, or is not an",
    r"\bfor ever\b": "forever",
    r"\bcan(not)? be had\b": "is (not) available",
    r"\bcome again\b": "try again",
    r"\bmend(ed)?\b": "check, fix or correct",
    r"\bin vain\b|\bunforeseen\b": "without effect, unexpectedly",
    r"\bWho are you\b|\bno such thing\b": "name the thing that is missing",
    r"\bis of (version|format)\b": "has version, has format",
}
"""What to write instead, by a pattern of what not to write."""
ANY = re.compile("|".join(f"(?:{pattern})" for pattern in INSTEAD))


def messages(source: str) -> Iterator[tuple[int, str]]:
    """The texts in a module with their lines, without docstrings."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def findings(source: str) -> list[tuple[int, str, str]]:
    if not ANY.search(source):  # most modules, which need not be parsed
        return []
    return [
        (line, text, instead)
        for line, text in messages(source)
        for pattern, instead in INSTEAD.items()
        if re.search(pattern, text)
    ]


def test_messages_have_no_phrases_that_readers_stumble_over() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:120]} (instead: {instead})"
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text, instead in findings(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('raise Error("nobody leads")', 1),
        ('raise Error(f"{node} leads no more")', 1),
        ("""raise Error("'x' is no id")""", 1),
        ('raise Error("the node is no longer the leader")', 0),
        ('raise Error("there is no vertex of that name")', 0),
        ('"""Nobody and somebody may stay in a docstring."""', 0),
        ("# nobody\nx = 1", 0),
    ],
)
def test_what_is_found(source: str, count: int) -> None:
    assert len(findings(source)) == count
