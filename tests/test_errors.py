"""The tree in `firesteel.errors` is the whole one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from firesteel import errors

ROOT = Path(errors.__file__).parent


def tree_of_the_source() -> dict[str, str]:
    """The class that each error derives from, of all that derive from FiresteelError."""
    bases: dict[str, list[str]] = {}
    for path in ROOT.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
    found: dict[str, str] = {"FiresteelError": ""}
    while more := {c: b for c, all_of in bases.items() for b in all_of if b in found and c not in found}:
        found |= more
    return found


def tree_of_the_text() -> dict[str, str]:
    found: dict[str, str] = {}
    above: list[str] = []
    for indent, name in re.findall(r"^    ([ │├└─]*)(\w+)", (errors.__doc__ or "").split("\n\n")[1], re.MULTILINE):
        depth = len(indent) // 4
        above[depth:] = [name]
        found[name] = above[depth - 1] if depth else ""
    return found


def test_the_tree_that_is_drawn_is_the_one_there_is() -> None:
    assert tree_of_the_text() == tree_of_the_source()
