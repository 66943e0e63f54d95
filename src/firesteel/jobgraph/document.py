"""A pipeline as written, before it is a model: plain data, and the line of each part of it.

YAML, SQL and Python pipelines all become a Document, so that everything after reading is the same for the three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from firesteel.errors import Problem

Loc = tuple[str | int, ...]
"""Where in the data: `("vertices", 2, "options", "header")`."""
Lines = Mapping[Loc, int]

TEXT = "#text"
"""`loc + (TEXT,)` is the line where the text of a block begins, which is not the line of its key."""


@dataclass(frozen=True)
class Document:
    data: Any
    lines: Lines = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    """Problems that were found while reading it."""
    file: str | None = None
    lost: tuple[str | None, ...] = ()
    """Names, where known, of vertices that could not be read and are not in `data`."""


@dataclass(frozen=True)
class Locator:
    """Makes Problems that say where they are."""

    file: str | None = None
    lines: Lines = field(default_factory=dict)
    positions: tuple[int, ...] | None = None
    """For each vertex of the graph its index in the data; None when they are the same."""

    def line(self, loc: Loc) -> int | None:
        """The line of `loc`, or of the nearest part around it."""
        for end in range(len(loc), -1, -1):
            if loc[:end] in self.lines:
                return self.lines[loc[:end]]
        return None

    def problem(
        self,
        loc: Loc,
        message: str,
        fix: str = "",
        *,
        vertex: str | None = None,
        certain: bool = True,
        line: int | None = None,
    ) -> Problem:
        """A Problem at `loc` of the data; `vertex` is the name of the vertex that `loc` is in."""
        inner = loc[2:] if loc[:1] == ("vertices",) and len(loc) >= 2 and vertex else loc
        return Problem(
            message=message,
            fix=fix,
            vertex=vertex,
            field=dotted(inner) or None,
            file=self.file,
            line=line or self.line(loc),
            certain=certain,
        )

    def vertex_loc(self, index: int) -> Loc:
        """The location of the vertex that is number `index` in the graph."""
        return ("vertices", self.positions[index] if self.positions else index)


def dotted(loc: Loc) -> str:
    """`("vertices", 2, "inputs")` as `vertices[2].inputs`."""
    out = ""
    for part in loc:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            out += f".{part}" if out else part
    return out


def vertex_at(data: Any, loc: Loc) -> str | None:
    """The name of the vertex that `loc` is in, as far as the data tells."""
    match loc, data:
        case ("vertices", int(index), *_), {"vertices": list(vertices)} if index < len(vertices):
            match vertices[index]:
                case {"name": str(name)}:
                    return name
    return None


def in_line_order(problems: list[Problem]) -> list[Problem]:
    """Sort problems by line, those without one last, and drop duplicates."""
    unique = list(dict.fromkeys(problems))
    return sorted(unique, key=lambda p: (p.line is None, p.line or 0))
