"""Pipelines written in YAML or JSON, with the line of every field.

Scalars follow YAML 1.2: only `true` and `false` are booleans, dates and times stay text, and a number with a leading
zero is text. Where Spark wants text anyway (options, settings, variables) a number is taken as it was written, so
`0.10` stays `0.10`.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from firesteel.errors import Problem

from .document import TEXT, Document, Loc, Locator, vertex_at

_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_NULL = re.compile(r"~|null|Null|NULL|")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_AS_WRITTEN = re.compile(r"variables\.[^.]+|settings\.spark\..+|vertices\.\d+\.(?:options\..+|args\.\d+)")


def scalar(text: str) -> Any:
    """What a plain YAML scalar stands for."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text, 16) if text.startswith("0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def read_yaml(text: str, *, file: str | None = None, first_line: int = 1) -> Document:
    """The document in `text`; `first_line` is where `text` begins in `file`."""
    reader = _Reader(file, first_line)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        return Document(None, problems=(_syntax_problem(error, file, first_line),), file=file)
    if root is None:
        return Document(None, {(): first_line}, (Problem("the file is empty", _EMPTY_FIX, file=file),), file)
    data = reader.build(root, ())
    at = Locator(file, reader.lines)
    problems = (at.problem(loc, m, fix, vertex=vertex_at(data, loc), line=n) for loc, m, fix, n in reader.found)
    return Document(data, reader.lines, tuple(problems), file)


def read_json(text: str, *, file: str | None = None) -> Document:
    """The JSON document in `text`.

    JSON is YAML but for rare corners, so the YAML reader finds lines and duplicate keys.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        problem = Problem(f"this is not JSON: {error.msg}", "fix the syntax", file=file, line=error.lineno)
        return Document(None, problems=(problem,), file=file)
    marked = read_yaml(text.replace("\t", " "), file=file)  # JSON strings hold no tabs, and YAML takes none
    if marked.data is None:
        return Document(data, file=file)
    return Document(data, marked.lines, marked.problems, file)


_EMPTY_FIX = "write at least name and vertices"


def _syntax_problem(error: yaml.YAMLError, file: str | None, first_line: int) -> Problem:
    line, what = None, str(error).splitlines()[0]
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + first_line if mark else None
        what = error.problem or what
    fix = "indent with spaces" if "'\\t'" in what else "fix the syntax; text with ':' or '#' in it needs quotes"
    return Problem(f"this is not YAML: {what}", fix, file=file, line=line)


class _Reader:
    def __init__(self, file: str | None, first_line: int) -> None:
        self.file = file
        self.first_line = first_line
        self.lines: dict[Loc, int] = {}
        self.found: list[tuple[Loc, str, str, int]] = []
        """(where, message, fix, line); they become Problems when the names of the vertices are known."""
        self._open: list[int] = []
        """Nodes being built; an alias to one of them is a value inside itself."""

    def build(self, node: yaml.Node, loc: Loc) -> Any:
        self.lines.setdefault(loc, self._line(node))
        if id(node) in self._open:
            self._problem(loc, "the value contains itself", "write it out instead of using an alias", self._line(node))
            return None
        self._open.append(id(node))
        try:
            match node:
                case yaml.MappingNode():
                    return self._mapping(node, loc)
                case yaml.SequenceNode():
                    return [self.build(child, (*loc, i)) for i, child in enumerate(node.value)]
                case yaml.ScalarNode():
                    return self._scalar(node, loc)
            raise AssertionError(node)
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        out: dict[str, Any] = {}
        written: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = self._line(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(loc, "a key must be text", "write 'name: value'", line)
                continue
            key = str(key_node.value)
            if key == "<<" and key_node.style is None:
                self._merge(out, value_node, loc)
                continue
            at = (*loc, key)
            if key in written:
                self._problem(at, f"is written twice, first on line {written[key]}", "keep one of them", line)
                continue
            written[key] = line
            self.lines[at] = line
            out[key] = self.build(value_node, at)
        return out

    def _merge(self, out: dict[str, Any], node: yaml.Node, loc: Loc) -> None:
        """`<<: *defaults`: fields of the other mapping that this one does not write itself."""
        own = dict(self.lines)
        for part in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if isinstance(part, yaml.MappingNode):
                for key, value in self._mapping(part, loc).items():
                    out.setdefault(key, value)
        self.lines.update(own)

    def _scalar(self, node: yaml.ScalarNode, loc: Loc) -> Any:
        text = str(node.value)
        if node.style is not None:
            self.lines[(*loc, TEXT)] = self._line(node) + (1 if node.style in "|>" else 0)
            return text
        self.lines[(*loc, TEXT)] = self._line(node)
        value = scalar(text)
        if isinstance(value, bool | int | float) and _AS_WRITTEN.fullmatch(".".join(map(str, loc))):
            return text.lower() if isinstance(value, bool) else text
        return value

    def _line(self, node: yaml.Node) -> int:
        return int(node.start_mark.line) + self.first_line

    def _problem(self, loc: Loc, message: str, fix: str, line: int) -> None:
        self.found.append((loc, message, fix, line))
