"""Variables `${name}` in the strings of a pipeline.

A variable is declared in `variables:` with its default (null: must be given), or where it is used, as
`${name:-default}`. `$${` is a literal `${`. A value is put in as text; the model turns text into the number or
boolean that a field wants, and the arguments of Python functions, which have no declared type, read a lone `${name}`
as a YAML scalar.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from firesteel.errors import Problem

from .document import Document, Loc, Locator, vertex_at
from .nearest import Spelling
from .yaml_source import scalar

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_-]*?)(?::-([^}]*))?\}|\$\{")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Substituted:
    document: Document
    """The document without `variables`, and with every reference replaced."""
    variables: Mapping[str, str]
    """The value of each variable, except for those without one."""


def substitute(document: Document, given: Mapping[str, str]) -> Substituted:
    """Replace the references in `document`; what is wrong with them is added to its problems."""
    if not isinstance(document.data, dict):
        return Substituted(document, dict(given))
    work = _Substitution(document, given)
    data = {key: work.replace(value, (key,)) for key, value in document.data.items() if key != "variables"}
    work.check_given()
    problems = (*document.problems, *work.problems)
    return Substituted(replace(document, data=data, problems=problems), work.values)


class _Substitution:
    def __init__(self, document: Document, given: Mapping[str, str]) -> None:
        self.data = document.data
        self.at = Locator(document.file, document.lines)
        self.given = given
        self.problems: list[Problem] = []
        self.values: dict[str, str] = {}
        self.names: set[str] = set()
        self._spelling = Spelling()
        self._needed: set[str] = set()
        """Declared without a default, not given, and never used with one."""
        self._declare(document.data.get("variables"))

    def _declare(self, declared: Any) -> None:
        if declared is None:
            return
        if not isinstance(declared, dict):
            self._problem(
                ("variables",), "must be a mapping of names to defaults", "write 'variables: {name: default}'"
            )
            return
        for name, default in declared.items():
            loc = ("variables", name)
            if not _NAME.fullmatch(name):
                self._problem(loc, f"'{name}' is not a variable name", "use letters, digits, '_' and '-'")
            elif name in self.given:
                self.values[name] = self.given[name]
            elif isinstance(default, list | dict):
                self._problem(loc, "the default must be one value, not a list or mapping", "write text or a number")
            elif default is not None:
                self.values[name] = self._text(_as_text(default), loc)
            else:
                self._needed.add(name)
            self.names.add(name)

    def replace(self, value: Any, loc: Loc) -> Any:
        match value:
            case str():
                text = self._text(value, loc)
                untyped = len(loc) > 3 and loc[0] == "vertices" and loc[2] == "args" and isinstance(loc[3], str)
                return scalar(text) if untyped and _is_lone_reference(value) and text != value else text
            case list():
                return [self.replace(v, (*loc, i)) for i, v in enumerate(value)]
            case dict():
                return {k: self.replace(v, (*loc, k)) for k, v in value.items()}
            case _:
                return value

    def _text(self, text: str, loc: Loc) -> str:
        return _REFERENCE.sub(lambda m: self._value(m, loc), text) if "${" in text else text

    def _value(self, match: re.Match[str], loc: Loc) -> str:
        if match[0] == "$${":
            return "${"
        name, inline = match[1], match[2]
        if name is None:
            self._problem(
                loc, "contains a '${' that does not begin a variable", "write ${name}, or $${ for a literal '${'"
            )
            return match[0]
        if inline is not None:
            self.names.add(name)
            self._needed.discard(name)
            if name in self.given:
                self.values[name] = self.given[name]
            return self.values.get(name, inline)
        if name in self.values:
            return self.values[name]
        if name not in self.names:
            fix = self._spelling.suggest(name, self.names, f"declare it at the top: 'variables: {{{name}: default}}'")
            self._problem(loc, f"uses the variable '{name}', which is not declared", fix)
        return match[0]

    def check_given(self) -> None:
        for name in self._needed:
            self._problem(("variables", name), "has no value", f"give one with -D{name}=VALUE, or a default here")
        for name in self.given:
            if name not in self.names:
                declared = (
                    f"the pipeline declares {', '.join(sorted(self.names))}" if self.names else "it declares none"
                )
                fix = self._spelling.suggest(name, self.names, f"remove -D{name}; {declared}")
                message = f"the variable '{name}' was given, but the pipeline does not declare it"
                self.problems.append(Problem(message, fix, file=self.at.file))

    def _problem(self, loc: Loc, message: str, fix: str) -> None:
        self.problems.append(self.at.problem(loc, message, fix, vertex=vertex_at(self.data, loc)))


def _is_lone_reference(text: str) -> bool:
    match = _REFERENCE.fullmatch(text)
    return bool(match and match[1])


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
