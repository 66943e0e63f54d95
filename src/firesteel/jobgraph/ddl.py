"""Parser of column lists as Spark reads them: `id BIGINT NOT NULL, tags ARRAY<STRING> COMMENT 'free'`.

Only what Spark certainly refuses is an error here: unknown types, unbalanced brackets, missing names. Details in which
Spark versions differ (lengths, precisions, collations) pass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from .nearest import suggest

_SIMPLE = frozenset(
    {"BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "REAL", "DOUBLE"}
    | {"DECIMAL", "DEC", "NUMERIC", "STRING", "CHAR", "CHARACTER", "VARCHAR", "BINARY", "VARIANT", "VOID"}
    | {"DATE", "TIME", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "INTERVAL", "GEOMETRY", "GEOGRAPHY"}
)
TYPES = _SIMPLE | {"ARRAY", "MAP", "STRUCT"}
_UNITS = frozenset({"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"})
_NEEDS_LENGTH = ("CHAR", "CHARACTER", "VARCHAR")

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<name>`(?:[^`]|``)*`)
      | (?P<text>[rR]?'(?:\\.|[^'\\])*'|[rR]?"(?:\\.|[^"\\])*")
      | (?P<word>\w+)
      | (?P<mark><>|[<>(),:])""",
    re.VERBOSE | re.DOTALL,
)


class DdlError(ValueError):
    """The column list is invalid; the message says why, and `fix` what to do."""

    def __init__(self, message: str, fix: str = "write 'name TYPE, name TYPE'") -> None:
        self.fix = fix
        super().__init__(message)


def column_names(ddl: str) -> tuple[str, ...]:
    """The top-level columns that `ddl` declares, or DdlError. A schema in Spark's JSON form is accepted too."""
    if ddl.lstrip().startswith("{"):
        return _json_names(ddl)
    names = tuple(_Parser(ddl).columns(until=None))
    if not names:
        raise DdlError("it declares no column")
    return names


def without_colons(ddl: str) -> str:
    """`id: BIGINT` as `id BIGINT`: a reader's schema has colons only inside STRUCT. Wrong text is returned as it is."""
    try:
        parser = _Parser(ddl)
        for _ in parser.columns(until=None):
            pass
    except DdlError:
        return ddl
    for position in reversed(parser.top_colons):
        ddl = ddl[:position] + ("" if ddl[position + 1 : position + 2].isspace() else " ") + ddl[position + 1 :]
    return ddl


def _json_names(text: str) -> tuple[str, ...]:
    try:
        return tuple(str(field["name"]) for field in json.loads(text)["fields"])
    except (ValueError, KeyError, TypeError):
        raise DdlError("it looks like a schema in JSON but is not one") from None


class _Parser:
    def __init__(self, ddl: str) -> None:
        self._tokens = list(_tokens(ddl))
        self._next = 0
        self._depth = 0
        self.top_colons: list[int] = []
        """Where `name: type` stands outside of a STRUCT."""

    def columns(self, until: str | None) -> Iterator[str]:
        """Columns up to the closing mark, which is taken; `until` None: up to the end."""
        if self._ends(until):
            return
        while True:
            yield self._column()
            if self._ends(until):
                return
            if not self._take_if(","):
                self._unexpected("',' or the end of the list")

    def _ends(self, until: str | None) -> bool:
        return self._take_if(until) if until else self._peek() is None

    def _column(self) -> str:
        kind, text = self._take("a column name")
        if kind not in ("word", "name"):
            raise DdlError(f"found '{text}' where a column name is expected")
        name = text[1:-1].replace("``", "`") if kind == "name" else text
        if self._take_if(":") and self._depth == 0:
            self.top_colons.append(self._tokens[self._next - 1][2])
        self._depth += 1
        self._type(name)
        self._depth -= 1
        if self._take_if("NOT") and not self._take_if("NULL"):
            self._unexpected("NULL after NOT")
        if self._take_if("COMMENT"):
            if self._take("the text of a comment")[0] != "text":
                raise DdlError(f"the comment of column '{name}' is not in quotes", "write COMMENT 'text'")
            while self._next < len(self._tokens) and self._tokens[self._next][0] == "text":
                self._next += 1  # Spark joins texts that follow each other
        return name

    def _type(self, column: str) -> None:
        if self._peek() in (None, ",", ">", ")"):
            raise DdlError(f"column '{column}' has no type", f"write '{column} STRING' or another type")
        kind, text = self._take("a type")
        word = text.upper()
        if kind != "word" or word not in TYPES:
            known = sorted(t.lower() for t in TYPES)
            fix = suggest(text, known, "use a type that Spark knows, such as STRING, BIGINT, DOUBLE, DATE or TIMESTAMP")
            raise DdlError(f"column '{column}' has the unknown type '{text}'", fix)
        match word:
            case "ARRAY":
                self._expect("<", f"the ARRAY of column '{column}' has no element type", "write ARRAY<STRING>")
                self._type(column)
                self._close(column)
            case "MAP":
                self._expect(
                    "<", f"the MAP of column '{column}' has no key and value types", "write MAP<STRING, BIGINT>"
                )
                self._type(column)
                self._expect(",", f"the MAP of column '{column}' has no value type", "write MAP<STRING, BIGINT>")
                self._type(column)
                self._close(column)
            case "STRUCT":
                if not self._take_if("<>"):
                    self._expect(
                        "<", f"the STRUCT of column '{column}' has no fields", "write STRUCT<a: INT, b: STRING>"
                    )
                    for _ in self.columns(until=">"):
                        pass
            case "INTERVAL":
                self._interval()
            case _:
                self._details(column, word)

    def _interval(self) -> None:
        if (self._peek() or "").upper() in _UNITS:
            self._take("a unit")
            if self._take_if("TO") and self._take("a unit")[1].upper() not in _UNITS:
                raise DdlError("INTERVAL has no unit at its end", "write INTERVAL DAY TO SECOND")

    def _details(self, column: str, word: str) -> None:
        """`(10, 2)` after a type, COLLATE after a string, WITHOUT TIME ZONE after a time."""
        if self._take_if("("):
            while not self._take_if(")"):
                kind, text = self._take(f"')' after {word}")
                if kind not in ("word", "text") and text not in (",", ":"):
                    raise DdlError(f"found '{text}' in the brackets of {word}", f"write {word}(10)")
        elif word in _NEEDS_LENGTH:
            raise DdlError(f"{word} of column '{column}' has no length", f"write {word}(20), or STRING")
        if self._take_if("COLLATE"):
            self._take("a collation")
        if word.startswith("TIME") and (self._take_if("WITHOUT") or self._take_if("WITH")):
            self._take_if("LOCAL")
            if not (self._take_if("TIME") and self._take_if("ZONE")):
                self._unexpected("TIME ZONE")

    def _close(self, column: str) -> None:
        self._expect(">", f"the type of column '{column}' is not closed", "add '>'")

    def _expect(self, mark: str, message: str, fix: str) -> None:
        if not self._take_if(mark):
            raise DdlError(message, fix)

    def _peek(self) -> str | None:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else None

    def _take(self, wanted: str) -> tuple[str, str]:
        if self._next >= len(self._tokens):
            raise DdlError(f"it ends where {wanted} is expected")
        self._next += 1
        return self._tokens[self._next - 1][:2]

    def _take_if(self, word: str) -> bool:
        if (self._peek() or "").upper() == word:
            self._next += 1
            return True
        return False

    def _unexpected(self, wanted: str) -> None:
        there = self._peek()
        raise DdlError(
            f"found '{there}' where {wanted} is expected" if there else f"it ends where {wanted} is expected"
        )


def _tokens(ddl: str) -> Iterator[tuple[str, str, int]]:
    """(kind, text, position)"""
    position = 0
    while position < len(ddl):
        match = _TOKEN.match(ddl, position)
        if not match:
            raise DdlError(
                f"'{ddl[position]}' is not allowed in a column list", "put unusual column names in `backticks`"
            )
        if match.lastgroup != "space":
            yield str(match.lastgroup), match[0], position
        position = match.end()
