"""The map in CONTRIBUTING shows every package and top-level module, each once, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "firesteel"


def mapped() -> list[str]:
    """The names in the first column of the table."""
    section = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("\n## The map\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\|([^|]+)\|[^|]+\|$", section, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_the_map_is_the_tree() -> None:
    packages = {f"{p.name}/" for p in SOURCE.iterdir() if any(p.glob("*.py"))}
    modules = {p.name for p in SOURCE.glob("*.py")} - {"__init__.py"}
    assert len(packages) > 15
    assert sorted(mapped()) == sorted(packages | modules)
