"""Threads have an owner who ends them: no module makes any when it is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAKERS = {"ThreadPoolExecutor", "ProcessPoolExecutor", "Thread", "Threads"}


def made_on_import(node: ast.AST) -> Iterator[int]:
    """Lines on which threads are made, outside of functions."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return
    if isinstance(node, ast.Call) and (getattr(node.func, "id", None) or getattr(node.func, "attr", None)) in MAKERS:
        yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from made_on_import(child)


def test_no_module_makes_threads_when_it_is_imported() -> None:
    assert list(made_on_import(ast.parse("class A:\n    pool = futures.ThreadPoolExecutor(1)"))) == [2]
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "chaos/src").rglob("*.py")]
    assert len(files) > 400
    assert [f"{f}:{line}" for f in files for line in made_on_import(ast.parse(f.read_text("utf-8")))] == []
