"""Whoever acts for a leader says by which guard: no function assumes one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "src" / "firesteel"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def guarded() -> Iterator[tuple[str, bool]]:
    """Each function with a parameter `guard`, and whether that has a default."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, Function):
                arguments = node.args
                positional = [*arguments.posonlyargs, *arguments.args]
                late = positional[len(positional) - len(arguments.defaults) :]
                named = [a for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
                if any(a.arg == "guard" for a in [*positional, *arguments.kwonlyargs]):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", any(a.arg == "guard" for a in [*late, *named])


def test_fencing_guard_has_no_default() -> None:
    found = dict(guarded())
    assert len(found) >= 10
    assert [where for where, has_default in found.items() if has_default] == []
