"""The context of a check: what it knows, and where it reports."""

from __future__ import annotations

from pathlib import Path

from firesteel.errors import Problem
from firesteel.jobgraph.document import TEXT, Locator
from firesteel.jobgraph.model import AnyVertex, JobGraph, Mode
from firesteel.jobgraph.nearest import Spelling


class Context:
    def __init__(
        self,
        graph: JobGraph,
        at: Locator,
        *,
        base_dir: Path | None,
        partial: bool = False,
        broken: frozenset[str] = frozenset(),
    ) -> None:
        self.graph = graph
        self.base_dir = base_dir
        """None: the files of the job are not on this machine, so nothing is said about them."""
        self.partial = partial
        """Whether invalid vertices are missing from `graph`: what seems unused or missing may be theirs."""
        self.problems: list[Problem] = []
        self.names = {v.name.lower() for v in graph.vertices}
        self.broken = broken
        """Lower-case names of the vertices that are not in `graph` because they are invalid."""
        self.excused: set[str] = set()
        """Lower-case names of vertices that seem unread only because of a problem that is reported already."""
        self.spelling = Spelling()
        self._at = at
        self._index = {id(v): i for i, v in enumerate(graph.vertices)}

    @property
    def streaming(self) -> bool:
        return self.graph.mode is Mode.STREAMING

    def is_known(self, name: str) -> bool:
        return name.lower() in self.names or name.lower() in self.broken

    def line(self, v: AnyVertex) -> int | None:
        return self._at.line(self._at.vertex_loc(self._index[id(v)]))

    def text_line(self, v: AnyVertex, field: str, line: int) -> int | None:
        """The line of the file on which line `line` (from 1) of a text field stands."""
        loc = (*self._at.vertex_loc(self._index[id(v)]), field, TEXT)
        return self._at.lines[loc] + line - 1 if loc in self._at.lines else None

    def add(
        self,
        v: AnyVertex,
        field: str | tuple[str | int, ...],
        message: str,
        fix: str,
        *,
        certain: bool = True,
        line: int | None = None,
    ) -> None:
        """A problem in `field` of a vertex; an empty field stands for the vertex itself."""
        parts = (field,) if isinstance(field, str) else field
        loc = (*self._at.vertex_loc(self._index[id(v)]), *(p for p in parts if p != ""))
        self.problems.append(self._at.problem(loc, message, fix, vertex=v.name, certain=certain, line=line))

    def add_top(self, field: str | tuple[str | int, ...], message: str, fix: str) -> None:
        """A problem of the graph as a whole, or of its settings."""
        loc = (field,) if isinstance(field, str) else field
        self.problems.append(self._at.problem(tuple(p for p in loc if p != ""), message, fix))
