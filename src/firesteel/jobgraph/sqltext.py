"""What the text of a query tells: whether it parses, and which tables it reads.

sqlglot stands in for Spark's parser, which runs in a JVM that is not there yet when a pipeline is checked. It knows
most of Spark's dialect but not all, so what it cannot parse is a suspicion, not an error.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from firesteel.jobgraph.sql_tokens import UnclosedError, tokens

_BEGINNINGS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE")
_BARE_TABLE = re.compile(r"\s*table\s+(`[^`]+`|[\w.`]+)\s*;?\s*", re.IGNORECASE)
_AFTER_KEYWORD = re.compile(r"\b(?:from|join|table)\s+`?(\w++)`?+(?!\s*[.(])", re.IGNORECASE)
_LITERALS = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class SqlError:
    message: str
    line: int | None = None
    """The line within the query, counted from 1."""
    column: int | None = None
    certain: bool = False


@dataclass(frozen=True)
class Query:
    reads: tuple[str, ...]
    """Unqualified tables that the query reads and does not define itself, in order of appearance, each once."""
    error: SqlError | None = None


@lru_cache(maxsize=512)
def read_query(text: str) -> Query:
    """What `text` reads. With an error, `reads` is a guess from the words after FROM and JOIN."""
    bare = _BARE_TABLE.fullmatch(text)
    if bare:
        name = bare[1].strip("`")
        return Query(() if "." in bare[1] else (name,))

    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import ParseError, SqlglotError

    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns about statements that we report ourselves
    try:
        parsed = sqlglot.parse(text, dialect="spark")
    except ParseError as error:
        if (wrong := _wrong_beginning(text)) is not None:
            return Query(_guess(text), wrong)
        first = error.errors[0] if error.errors else {}
        return Query(_guess(text), SqlError(_in_our_words(first), first.get("line"), first.get("col")))
    except (SqlglotError, RecursionError) as error:
        return Query(_guess(text), SqlError((str(error).splitlines() or ["it does not parse"])[0]))
    found = [s for s in parsed if s is not None and not isinstance(s, exp.Semicolon)]
    if len(found) != 1:
        message = f"it has {len(found)} statements, not one" if found else "it is empty"
        return Query(_guess(text), SqlError(message, certain=True))
    return _read_statement(found[0], text)


def _wrong_beginning(text: str) -> SqlError | None:
    """Check the first word: Spark's grammar has few with which a query can begin, whatever follows."""
    try:
        first = next(t for t in tokens(text) if t.kind not in ("space", "comment") and t.text != "(")
    except (StopIteration, UnclosedError):
        return None
    if first.kind != "word" or first.text.upper() in _BEGINNINGS:
        return None
    near = difflib.get_close_matches(first.text.upper(), _BEGINNINGS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    column = first.start - text.rfind("\n", 0, first.start)
    return SqlError(f"a query cannot begin with '{first.text}'{hint}", first.line, column, certain=True)


def _read_statement(statement: Any, text: str) -> Query:
    from sqlglot import exp

    if isinstance(statement, exp.Insert | exp.Create | exp.Drop | exp.Delete | exp.Update | exp.Merge | exp.Set):
        return Query(_guess(text), SqlError(f"{statement.key.upper()} is not a query", certain=True))
    if not isinstance(statement, exp.Query | exp.Values):
        return Query(_guess(text), _wrong_beginning(text) or SqlError("it does not begin like a query"))
    return Query(tuple(dict.fromkeys(_tables(statement))))


@dataclass(frozen=True)
class _Scope:
    """The common table expressions that can be read at one place of a query."""

    names: Mapping[str, int]
    """Lower-case name -> which one of its WITH."""
    visible: int
    """How many of them are defined by now."""
    outer: _Scope | None = None

    def defines(self, name: str) -> bool:
        scope: _Scope | None = self
        while scope is not None:
            if scope.names.get(name, scope.visible) < scope.visible:
                return True
            scope = scope.outer
        return False


_NOTHING = _Scope({}, 0)


def _tables(root: object) -> list[str]:
    """In one pass: the time grows with the text, whatever the query looks like (S25)."""
    from sqlglot import exp

    assert isinstance(root, exp.Expression)
    found: list[tuple[int, str]] = []
    pending: list[tuple[Any, _Scope]] = [(root, _NOTHING)]
    while pending:
        node, scope = pending.pop()
        if isinstance(node, exp.Hint):
            continue
        if isinstance(node, exp.Table):
            name = node.name
            if name.lower() == "stream" and node.alias:  # FROM STREAM orders
                name = node.alias
            if name and not node.db and not node.catalog and not scope.defines(name.lower()):
                found.append((_position(node), name))
        elif (
            isinstance(node, exp.Anonymous) and node.name.lower() in ("table", "stream") and len(node.expressions) == 1
        ):
            argument = node.expressions[0]  # f(TABLE(orders)), STREAM(orders)
            if isinstance(argument, exp.Column) and not argument.table and not scope.defines(argument.name.lower()):
                found.append((_position(argument), argument.name))
        pending.extend(_below(node, scope))
    return [name for _, name in sorted(found, key=lambda f: f[0])]


def _below(node: Any, scope: _Scope) -> Iterator[tuple[Any, _Scope]]:
    """The parts of `node`, the last one first, each with what it can read."""
    from sqlglot import exp

    with_ = next((a for a in node.args.values() if isinstance(a, exp.With)), None)
    if with_ is None:
        yield from ((part, scope) for part in node.iter_expressions(reverse=True))
        return
    names: dict[str, int] = {}
    for i, cte in enumerate(with_.expressions):
        names.setdefault(cte.alias.lower(), i)
    inside = _Scope(names, len(with_.expressions), scope)
    own = 1 if with_.args.get("recursive") else 0
    for part in node.iter_expressions(reverse=True):
        if part is with_:
            # Each one reads those before it.
            for i in reversed(range(len(with_.expressions))):
                yield with_.expressions[i], _Scope(names, i + own, scope)
        else:
            yield part, inside


def _position(node: Any) -> int:
    """Where in the text the table stands: the tree has the common table expressions last."""
    return int(getattr(node.this, "meta", {}).get("start", 0))


def _in_our_words(error: Mapping[str, Any]) -> str:
    description = str(error.get("description") or "")
    if description.startswith("Required keyword"):
        what = "something is missing"
    elif description.startswith("Expected") and "but got" in description:
        what = description.split(" but got", maxsplit=1)[0].lower()
    else:
        what = "unexpected text"
    near = error.get("highlight")
    return f"{what} at '{near}'" if near else what


def _guess(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_AFTER_KEYWORD.findall(_LITERALS.sub(" ", text))))
