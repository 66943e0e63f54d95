"""A public class has a name of its own, so that a reader who meets it knows which one it is."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("src/firesteel", "chaos/src/firesteel_chaos")
MAKERS = {"TypedDict", "NewType", "NamedTuple", "namedtuple"}

SHARED = {"ClusterOverview", "JobEvent", "JobResult"}
"""Names that two classes still have. It only ever shrinks."""


def named(node: ast.stmt) -> str | None:
    match node:
        case ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=maker))) if maker in MAKERS:
            return name
    return None


def public_classes() -> dict[str, list[str]]:
    """Where each is, by its name."""
    places = defaultdict(list)
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            for node in ast.parse(path.read_text("utf-8")).body:
                name = named(node)
                if name is not None and not name.startswith("_"):
                    places[name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return places


def test_no_two_public_classes_have_one_name() -> None:
    classes = public_classes()
    assert len(classes) > 500
    shared = {name: places for name, places in classes.items() if len(places) > 1}
    assert {name: places for name, places in shared.items() if name not in SHARED} == {}
    assert SHARED - set(shared) == set(), "these have names of their own by now; take them off the list"
