"""Pipelines written as a SQL file, in Spark's own statement shapes.

    /* firesteel
    name: paid_orders
    */
    CREATE TEMPORARY VIEW orders (id BIGINT, paid BOOLEAN) USING csv OPTIONS (path 'orders.csv', header 'true');
    CREATE TEMPORARY VIEW paid AS SELECT * FROM orders WHERE paid;
    -- firesteel: {description: what accounting reads}
    INSERT OVERWRITE result USING parquet OPTIONS (path 'out') TABLE paid;

Each statement is one vertex. The result is a Document like that of a YAML file; this module does not validate it.
"""

from __future__ import annotations

import re
from typing import Any

from firesteel.errors import Problem

from .document import TEXT, Document, Loc
from .sql_tokens import Token, UnclosedError, statements
from .yaml_source import read_yaml, scalar

_HEADER = re.compile(r"/\*\s*firesteel\b[ \t]*(.*)\*/", re.DOTALL)
_EXTRA = re.compile(r"--\s*firesteel:(.*)")
_SHAPES = (
    "CREATE TEMPORARY VIEW name AS ..., CREATE TEMPORARY VIEW name USING format ..., INSERT INTO name USING format ..."
)


class _StatementError(ValueError):
    def __init__(self, message: str, fix: str, line: int, vertex: str | None = None) -> None:
        self.fix, self.line, self.vertex = fix, line, vertex
        super().__init__(message)


def read_sql(text: str, *, file: str | None = None) -> Document:
    """The document that the SQL file `text` stands for."""
    return _File(text, file).read()


class _File:
    def __init__(self, text: str, file: str | None) -> None:
        self.text = text
        self.file = file
        self.lines: dict[Loc, int] = {(): 1}
        self.problems: list[Problem] = []

    def read(self) -> Document:
        try:
            parts = list(statements(self.text))
        except UnclosedError as error:
            problem = Problem(str(error), "close it", file=self.file, line=error.line)
            return Document(None, self.lines, (problem,), self.file)
        data = self._header(parts[0])
        vertices: list[dict[str, Any]] = []
        lost: list[str | None] = []
        for part in parts:
            try:
                vertex = self._vertex(part, ("vertices", len(vertices)))
            except _StatementError as error:
                self._problem(str(error), error.fix, error.line, error.vertex)
                lost.append(error.vertex)
            else:
                vertices += [vertex] if vertex is not None else []
        if "vertices" in data:
            message, fix = "the vertices of a SQL file are its statements", "remove it from the header"
            self._problem(message, fix, self.lines[("vertices",)], field="vertices")
        return Document({**data, "vertices": vertices}, self.lines, tuple(self.problems), self.file, tuple(lost))

    def _header(self, first: list[Token]) -> dict[str, Any]:
        token = next((t for t in first if t.kind != "space"), None)
        match = _HEADER.fullmatch(token.text) if token else None
        if token is None or match is None:
            fix = "begin the file with '/* firesteel', 'name: NAME' and '*/', each on its own line"
            self._problem("the file has no header", fix, 1)
            return {"name": "unnamed"}
        first_line = token.line + token.text.count("\n", 0, match.start(1))
        document = read_yaml(match[1], file=self.file, first_line=first_line)
        self.lines.update(document.lines)
        self.problems.extend(document.problems)
        if isinstance(document.data, dict):
            return document.data
        if not document.problems:
            self._problem("the header is not a mapping", "write 'name: NAME'", token.line)
        return {"name": "unnamed"}

    def _vertex(self, part: list[Token], loc: Loc) -> dict[str, Any] | None:
        """The fields of the vertex that a statement stands for; None when there is no statement, only comments."""
        cursor = _Cursor(self.text, part)
        if cursor.peek() is None:
            return None
        extra, extra_lines = self._extra_fields(part)
        self.lines[loc] = cursor.line
        vertex, field_lines = _Statement(cursor).read()
        for field, line in field_lines.items():
            self.lines[(*loc, field)] = line
            self.lines[(*loc, field, TEXT)] = line
        if vertex.get("mode") == "append" and "mode" in extra:
            del vertex["mode"]  # INTO says no more than that it is an insert; {mode: upsert} or {mode: error} says how
        for field, value in extra.items():
            if field == "args" and isinstance(value, dict) and "args" in vertex:
                vertex["args"] = {**vertex["args"], **value}
            elif field in vertex:
                message = "is set both by the statement and by the comment before it"
                self._problem(message, "keep it in the statement", extra_lines[(field,)], vertex["name"], field)
            else:
                vertex[field] = value
        for at, line in extra_lines.items():
            if at:
                self.lines.setdefault((*loc, *at), line)
        return vertex

    def _extra_fields(self, part: list[Token]) -> tuple[dict[str, Any], dict[Loc, int]]:
        """The fields in `-- firesteel: {...}` lines before the statement, each with its line."""
        extra: dict[str, Any] = {}
        lines: dict[Loc, int] = {}
        for token in part:
            if token.kind not in ("space", "comment"):
                break
            match = _EXTRA.fullmatch(token.text.strip()) if token.kind == "comment" else None
            if match is None:
                continue
            document = read_yaml(match[1].strip(), file=self.file, first_line=token.line)
            self.problems.extend(document.problems)
            if isinstance(document.data, dict):
                extra.update(document.data)
                lines.update(document.lines)
            elif not document.problems:
                fix = "write -- firesteel: {description: text}"
                self._problem("the comment for Firesteel is not a mapping", fix, token.line)
        return extra, lines

    def _problem(self, message: str, fix: str, line: int, vertex: str | None = None, field: str | None = None) -> None:
        self.problems.append(Problem(message, fix, vertex, field, self.file, line))


class _Cursor:
    """The words of one statement."""

    def __init__(self, text: str, part: list[Token]) -> None:
        self.text = text
        self._tokens = [t for t in part if t.kind not in ("space", "comment")]
        self._next = 0
        self.end = part[-1].end if part else 0
        self.vertex: str | None = None

    @property
    def line(self) -> int:
        """The line of the next word, or of the last one when there is none."""
        return self._tokens[min(self._next, len(self._tokens) - 1)].line

    def peek(self) -> Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def take(self, wanted: str) -> Token:
        token = self.peek()
        if token is None:
            raise self.error(f"the statement ends where {wanted} is expected")
        self._next += 1
        return token

    def take_words(self, *words: str) -> bool:
        """Take `words` when all of them come next."""
        coming = self._tokens[self._next : self._next + len(words)]
        if len(coming) == len(words) and all(t.is_word(w) for t, w in zip(coming, words, strict=True)):
            self._next += len(words)
            return True
        return False

    def take_mark(self, mark: str) -> bool:
        token = self.peek()
        if token is not None and token.kind == "mark" and token.text == mark:
            self._next += 1
            return True
        return False

    def name(self, wanted: str) -> str:
        token = self.take(wanted)
        if token.kind not in ("word", "name"):
            self._next -= 1
            raise self.error(f"found {token.text} where {wanted} is expected")
        return token.value

    def rest(self) -> str:
        """Everything to the end of the statement, as written."""
        token = self.peek()
        self._next = len(self._tokens)
        return self.text[token.start : self.end].strip() if token else ""

    def error(self, message: str, fix: str = f"the forms are {_SHAPES}") -> _StatementError:
        return _StatementError(message, fix, self.line, self.vertex)


class _Statement:
    def __init__(self, cursor: _Cursor) -> None:
        self.at = cursor
        self.vertex: dict[str, Any] = {}
        self.lines: dict[str, int] = {}

    def read(self) -> tuple[dict[str, Any], dict[str, int]]:
        if self.at.take_words("CREATE"):
            self._create()
        elif self.at.take_words("INSERT"):
            self._insert()
        else:
            token = self.at.take("a statement")
            fix = "put Spark settings into settings.spark of the header" if token.is_word("SET") else f"use {_SHAPES}"
            message = f"a statement that begins with {token.text} is not a vertex"
            raise _StatementError(message, fix, token.line)
        if self.at.peek() is not None:
            token = self.at.take("the end")
            fix = "remove it, or end the statement before it with ';'"
            raise _StatementError(f"unexpected '{token.text}'", fix, token.line, self.at.vertex)
        return self.vertex, self.lines

    def _set(self, field: str, value: Any, line: int) -> None:
        self.vertex[field] = value
        self.lines[field] = line

    def _named(self, kind: str) -> None:
        line = self.at.line
        self.at.vertex = self.at.name("the name of the view" if kind != "sink" else "the name of the sink")
        self.vertex = {"kind": kind, "name": self.at.vertex}
        self.lines["name"] = line

    def _create(self) -> None:
        line = self.at.line
        self.at.take_words("OR", "REPLACE")
        if not (self.at.take_words("TEMPORARY", "VIEW") or self.at.take_words("TEMP", "VIEW")):
            raise _StatementError("only temporary views can be created", "write CREATE TEMPORARY VIEW", line)
        self.at.take_words("IF", "NOT", "EXISTS")
        self._named("sql")
        columns_line = self.at.line
        columns = self._columns() if self.at.take_mark("(") else None
        if self.at.take_words("COMMENT"):
            self._set("description", self.at.take("the text of the comment").value, self.at.line)
        if self.at.take_words("AS"):
            if columns is not None:
                raise self.at.error("a view of a query takes no column list", "name the columns in the SELECT")
            line = self.at.line
            self._set("query", self.at.rest(), line)
            return
        if not self.at.take_words("USING"):
            raise self.at.error("there is neither AS nor USING after the name of the view")
        format_line = self.at.line
        format_ = self._format()
        options, option_lines = self._options()
        if format_.lower() == "python":
            self._python(options, option_lines)
            return
        self.vertex["kind"] = "source"
        self._set("format", format_, format_line)
        if columns is not None:
            self._set("schema", columns, columns_line)
        self._place(options, option_lines)

    def _python(self, options: dict[str, str], option_lines: dict[str, int]) -> None:
        self.vertex["kind"] = "python"
        if "function" in options:
            self._set("function", options.pop("function"), option_lines["function"])
        if "inputs" in options:
            names = [name.strip() for name in options.pop("inputs").split(",")]
            self._set("inputs", [n for n in names if n], option_lines["inputs"])
        self.vertex["args"] = {key: scalar(value) for key, value in options.items()}

    def _insert(self) -> None:
        mode_line = self.at.line
        if self.at.take_words("OVERWRITE"):
            mode = "overwrite"
        elif self.at.take_words("INTO"):
            mode = "append"
        else:
            raise self.at.error("INSERT is followed by neither INTO nor OVERWRITE")
        self._named("sink")
        options: dict[str, str] = {}
        option_lines: dict[str, int] = {}
        while True:
            line = self.at.line
            if self.at.take_words("USING"):
                self._set("format", self._format(), line)
                options, option_lines = self._options()
            elif self.at.take_words("PARTITIONED", "BY"):
                self._set("partition_by", self._names(), line)
            else:
                break
        self._set("mode", mode, mode_line)
        self._place(options, option_lines)
        line = self.at.line
        if not (self.at.take_words("TABLE") or self._select_all_from()):
            fix = "end with TABLE view, and put a query into a view of its own"
            raise self.at.error("a sink writes one view as it is", fix)
        self._set("input", self.at.name("the name of the view to write"), line)

    def _select_all_from(self) -> bool:
        if not self.at.take_words("SELECT"):
            return False
        return self.at.take_mark("*") and self.at.take_words("FROM")

    def _place(self, options: dict[str, str], option_lines: dict[str, int]) -> None:
        for key in ("path", "table"):
            if key in options:
                self._set(key, options.pop(key), option_lines[key])
        if options:
            self._set("options", options, min(option_lines[k] for k in options))

    def _format(self) -> str:
        name = self.at.name("a format")
        while self.at.take_mark("."):  # a class name, such as org.example.DefaultSource
            name += f".{self.at.name('the rest of the format')}"
        return name

    def _columns(self) -> str:
        """A column list as DDL text: comments gone, one space between words."""
        depth, out, last = 1, "", None
        while True:
            token = self.at.take("')' after the columns")
            depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "mark" else 0
            if depth == 0:
                return out
            out += (" " if last is not None and last.end < token.start else "") + token.text
            last = token

    def _names(self) -> list[str]:
        if not self.at.take_mark("("):
            raise self.at.error("PARTITIONED BY has no column list", "write PARTITIONED BY (a, b)")
        names = [self.at.name("a column")]
        while self.at.take_mark(","):
            names.append(self.at.name("a column"))
        if not self.at.take_mark(")"):
            raise self.at.error("the column list of PARTITIONED BY is not closed", "write PARTITIONED BY (a, b)")
        return names

    def _options(self) -> tuple[dict[str, str], dict[str, int]]:
        options: dict[str, str] = {}
        lines: dict[str, int] = {}
        if not self.at.take_words("OPTIONS"):
            return options, lines
        fix = "write OPTIONS (key 'value', key 'value')"
        if not self.at.take_mark("("):
            raise self.at.error("OPTIONS has no list", fix)
        while not self.at.take_mark(")"):
            if options and not self.at.take_mark(","):
                raise self.at.error("a ',' is missing between two options", fix)
            line = self.at.line
            key = self._option_key()
            if key in options:
                raise self.at.error(f"the option '{key}' is given twice", "keep one of them")
            self.at.take_mark("=")
            options[key], lines[key] = self._option_value(key), line
        return options, lines

    def _option_key(self) -> str:
        key = self.at.take("an option").value
        while self.at.take_mark("."):
            key += f".{self.at.take('the rest of an option').value}"
        return key

    def _option_value(self, key: str) -> str:
        sign = "-" if self.at.take_mark("-") else ""
        token = self.at.take(f"the value of option '{key}'")
        if token.kind in ("text", "raw", "number") or token.is_word("TRUE", "FALSE"):
            return sign + (token.value.lower() if token.kind == "word" else token.value)
        raise self.at.error(f"the value of option '{key}' is not in quotes", f"write {key} '{token.text}'")
