"""The state that a streaming query keeps, as far as its text tells: what it groups by, joins on and counts.

Comparing two texts needs one spelling: aliases of tables give way to their names, positions and aliases in GROUP BY to what
they stand for, and identifiers lose their case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

_WINDOW = re.compile(r"(?<![`\w.])window(?=\s*\.|\s*,|\s+as\b|\s+from\b)", re.IGNORECASE)
"""The column that `window(...)` makes; sqlglot takes its name for a keyword."""
_WINDOW_FUNCTION = re.compile(r"(?<![`\w.])window\s*\(", re.IGNORECASE)


class StateKind(StrEnum):
    AGGREGATION = "aggregation"
    SESSION = "session window"
    JOIN = "join of two streams"
    DEDUPLICATION = "deduplication"
    DEDUPLICATION_IN_WATERMARK = "deduplication within the watermark"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class KeptState:
    """What one operator remembers."""

    kind: StateKind
    keys: tuple[str, ...]
    values: tuple[str, ...] = ()
    """The aggregates, in their order."""


@dataclass(frozen=True, slots=True)
class QueryState:
    reads: tuple[str, ...]
    """Tables, as often as they are read, in the order of the text; without case."""
    kept: tuple[KeptState, ...]
    unclear: str = ""
    """Why `kept` may not be all."""


@lru_cache(maxsize=512)
def query_state(text: str, streams: frozenset[str]) -> QueryState:
    """The state of the query `text`, when the tables `streams` (without case) are streams."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    from .sqltext import _BARE_TABLE

    if bare := _BARE_TABLE.fullmatch(text):
        return QueryState((bare[1].strip("`").lower(),), ())
    for spelling in (text, _WINDOW_FUNCTION.sub("time_window(", _WINDOW.sub("`window`", text))):
        try:
            return _Reader(sqlglot.parse_one(spelling, dialect="spark"), streams).read()
        except (SqlglotError, RecursionError):
            continue
    return QueryState((), (), "its SQL cannot be parsed here")


class _Reader:
    def __init__(self, root: Any, streams: frozenset[str]) -> None:
        from sqlglot import exp

        self._root = root
        self._exp = exp
        self._streams = set(streams)
        self._unclear = ""
        ctes = list(root.find_all(exp.CTE))
        for _ in ctes:  # one may read another
            self._streams |= {c.alias.lower() for c in ctes if self._is_stream(c.this)}
        self._ctes = {c.alias.lower() for c in ctes}

    def read(self) -> QueryState:
        exp = self._exp
        kept: list[KeptState] = []
        for node in self._root.walk(bfs=False):
            if isinstance(node, exp.Select) and self._is_stream(node):
                kept += self._select(node)
            elif isinstance(node, exp.SetOperation) and self._is_stream(node):
                if not isinstance(node, exp.Union):
                    self._unclear = "it has an EXCEPT or INTERSECT"
                elif node.args.get("distinct"):
                    kept.append(KeptState(StateKind.AGGREGATION, ("UNION",)))
        names = [t.name.lower() for t in self._root.find_all(exp.Table) if not t.db]
        if kept and any(names.count(cte) > 1 for cte in self._ctes):
            self._unclear = "it reads a common table expression more than once"
        reads = [t for t in _in_order(self._root.find_all(exp.Table)) if not t.db and t.name.lower() not in self._ctes]
        return QueryState(tuple(t.name.lower() for t in reads), tuple(kept), self._unclear)

    def _is_stream(self, node: Any) -> bool:
        return any(not t.db and t.name.lower() in self._streams for t in node.find_all(self._exp.Table))

    def _select(self, select: Any) -> Iterator[KeptState]:
        exp = self._exp
        if any(
            self._is_stream(q) for c in ("where", "having") if (w := select.args.get(c)) for q in w.find_all(exp.Query)
        ):
            self._unclear = "it has a subquery in a condition"
        yield from self._joins(select)
        said = self._canonical(select)
        projections = select.expressions
        inside = [*projections, *([select.args["having"]] if select.args.get("having") else [])]
        aggregates = [
            said(node.parent if isinstance(node.parent, exp.Filter) else node)
            for root in inside
            for node in self._own(root)
            if isinstance(node, exp.AggFunc) and not node.find_ancestor(exp.AggFunc, exp.Window)
        ]
        group = select.args.get("group")
        if group is not None or aggregates:
            keys = self._keys(select, group, said)
            values = tuple(dict.fromkeys(aggregates))
            if any(k.startswith("SESSION_WINDOW(") for k in keys):
                yield KeptState(StateKind.SESSION, keys, values)
            else:
                yield KeptState(StateKind.AGGREGATION, keys, values)
        if select.args.get("distinct"):
            yield KeptState(StateKind.AGGREGATION, tuple(said(p.unalias()) for p in projections))
        if select.args.get("limit"):
            yield KeptState(StateKind.LIMIT, ())

    def _joins(self, select: Any) -> Iterator[KeptState]:
        first = select.args.get("from_") or select.args.get("from")
        streaming = first is not None and self._is_stream(first)
        said = self._canonical(select)
        for join in select.args.get("joins") or ():
            joined = self._is_stream(join.this)
            if streaming and joined:
                on = join.args.get("on")
                conditions = list(on.flatten()) if isinstance(on, self._exp.And) else [on] if on is not None else []
                using = [said(c) for c in join.args.get("using") or ()]
                sides = [str(s) for s in (join.side, join.kind) if s]
                yield KeptState(StateKind.JOIN, (*sides, *using, *(said(c) for c in conditions)))
            streaming = streaming or joined

    def _keys(self, select: Any, group: Any, said: Callable[[Any], str]) -> tuple[str, ...]:
        exp = self._exp
        if group is None:
            return ()
        if any(group.args.get(name) for name in ("grouping_sets", "cube", "rollup")):
            self._unclear = "it groups by sets"
        if group.args.get("all"):
            return tuple(
                said(p.unalias())
                for p in select.expressions
                if not any(isinstance(n, exp.AggFunc) for n in self._own(p))
            )
        return tuple(said(self._meant(select, key)) for key in group.expressions)

    def _meant(self, select: Any, key: Any) -> Any:
        """What a position or an alias in GROUP BY stands for."""
        exp = self._exp
        projections = select.expressions
        if isinstance(key, exp.Literal) and key.is_int and 0 < int(key.this) <= len(projections):
            return projections[int(key.this) - 1].unalias()
        if isinstance(key, exp.Column) and not key.table:
            for p in projections:
                own = [c.name.lower() for c in p.find_all(exp.Column)]
                if isinstance(p, exp.Alias) and p.alias.lower() == key.name.lower() and key.name.lower() not in own:
                    return p.this
        return key

    def _own(self, root: Any) -> Iterator[Any]:
        """The parts of an expression, without those of queries inside it."""
        yield from root.walk(bfs=False, prune=lambda n: isinstance(n, self._exp.Query))

    def _canonical(self, select: Any) -> Callable[[Any], str]:
        exp = self._exp
        sources = [select.args.get("from_") or select.args.get("from"), *(select.args.get("joins") or ())]
        tables = [s.this for s in sources if s is not None]
        names = {t.alias_or_name.lower(): t.name.lower() for t in tables if isinstance(t, exp.Table)}

        def rewrite(node: Any) -> Any:
            if isinstance(node, exp.Column):
                qualifier = node.table.lower()
                parts = [names.get(qualifier, qualifier)] if qualifier and len(tables) > 1 else []
                return exp.column(node.name.lower(), *parts)
            return node

        def said(node: Any) -> str:
            text: str = node.copy().transform(rewrite).sql(dialect="spark", comments=False)
            return text.replace("TIME_WINDOW(", "window(")

        return said


def _in_order(tables: Any) -> list[Any]:
    return sorted(tables, key=lambda t: int(getattr(t.this, "meta", {}).get("start", 0)))
