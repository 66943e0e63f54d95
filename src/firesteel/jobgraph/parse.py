"""Parsing plain data into the model, with the model's complaints in our own words.

When only some vertices are wrong, the rest still becomes a graph, so that one run can report what is wrong with those
too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from firesteel.errors import Problem
from firesteel.types import LABEL_RULE, RequiredSandbox

from . import model
from .document import Loc, Locator, dotted, vertex_at
from .nearest import Spelling, listed, nearest

KINDS: Mapping[str, type[BaseModel]] = {
    "source": model.Source,
    "sql": model.Sql,
    "python": model.Python,
    "sink": model.Sink,
    "script": model.Script,
    "session": model.Interactive,
}
RESTARTS: Mapping[str, type[BaseModel]] = {
    "none": model.NoRestart,
    "fixed-delay": model.FixedDelayRestart,
    "exponential-delay": model.ExponentialDelayRestart,
    "failure-rate": model.FailureRateRestart,
}
_PARTS: Mapping[str, type[BaseModel]] = {
    "settings": model.Settings,
    "settings.artifacts": model.Artifacts,
    "settings.restore": model.SavepointRestore,
    "settings.placement": model.PlacementSettings,
    "watermark": model.Watermark,
    "deduplicate": model.Deduplicate,
    "resources": model.Resources,
}


@dataclass(frozen=True)
class Parsed:
    graph: model.JobGraph | None
    """The readable part of the graph; None when there is none."""
    problems: tuple[Problem, ...]
    at: Locator
    """Locates the vertices of `graph`, which are fewer than those of the data when some are broken."""
    partial: bool = False
    """Whether vertices of the data are missing from `graph`, so that what seems unread or missing may be theirs."""


def parse(data: Any, at: Locator) -> Parsed:
    if not isinstance(data, dict):
        problem = at.problem((), "a pipeline is a mapping of fields", "begin with 'name: ...' and 'vertices:'")
        return Parsed(None, (problem,), at, partial=True)
    try:
        return Parsed(model.JobGraph.model_validate(data), (), at)
    except ValidationError as error:
        details = [d for d in error.errors(include_url=False) if not _is_echo(d, data)]
    problems = _problems(details, data, at)
    sound, positions = _without_broken(data, [_loc(d) for d in details])
    try:
        graph = model.JobGraph.model_validate(sound)
    except ValidationError:
        return Parsed(None, problems, at, partial=True)
    partial = len(graph.vertices) < len(data["vertices"])
    return Parsed(graph, problems, replace(at, positions=positions), partial)


def _is_echo(detail: ErrorDetails, data: dict[str, Any]) -> bool:
    """pydantic counts only valid vertices, so a file whose vertices are all invalid is also "too short"."""
    return detail["type"] == "too_short" and detail["loc"] == ("vertices",) and bool(data["vertices"])


def _without_broken(data: dict[str, Any], broken: list[Loc]) -> tuple[dict[str, Any], tuple[int, ...]]:
    """`data` without the vertices, settings and top-level fields that `broken` points into, and where its vertices are."""
    fields = {loc[0] for loc in broken if loc and loc[0] != "vertices" and (loc[0] != "settings" or len(loc) == 1)}
    sound = {k: v for k, v in data.items() if k not in fields}
    sound.setdefault("name", "unnamed")
    if "mode" in fields:  # much depends on the mode, so take the one that was probably meant
        sound["mode"] = nearest(str(data["mode"]), list(model.Mode)) or model.Mode.BATCH
    settings = {loc[1] for loc in broken if loc[:1] == ("settings",) and len(loc) > 1}
    if settings:
        sound["settings"] = {k: v for k, v in data["settings"].items() if k not in settings}
    vertices = data.get("vertices")
    if not isinstance(vertices, list):
        return sound, ()
    bad = {loc[1] for loc in broken if loc[:1] == ("vertices",) and len(loc) > 1}
    positions = tuple(i for i in range(len(vertices)) if i not in bad)
    sound["vertices"] = [vertices[i] for i in positions]
    return sound, positions


def _loc(detail: ErrorDetails) -> Loc:
    """Where the complaint is in the data: without the tags that pydantic puts in for the members of a union."""
    loc = detail["loc"]
    tagged = loc[:1] == ("vertices",) or loc[:2] == ("settings", "restart")
    if tagged and len(loc) > 2 and loc[2] in (KINDS if loc[0] == "vertices" else RESTARTS):
        loc = (*loc[:2], *loc[3:])
    return tuple(part for part in loc if part != "[key]")


def _problems(details: Sequence[ErrorDetails], data: dict[str, Any], at: Locator) -> tuple[Problem, ...]:
    spelling = Spelling()
    return tuple(_problem(d, data, at, spelling) for d in details)


def _problem(detail: ErrorDetails, data: dict[str, Any], at: Locator, spelling: Spelling) -> Problem:
    loc = _loc(detail)
    ctx: dict[str, Any] = detail.get("ctx") or {}
    explain = _EXPLAIN.get(detail["type"], _other)
    message, fix, loc = explain(_Complaint(loc, detail["input"], ctx, detail["msg"], data, spelling))
    return at.problem(loc, message, fix, vertex=vertex_at(data, loc))


@dataclass(frozen=True)
class _Complaint:
    loc: Loc
    value: Any
    ctx: Mapping[str, Any]
    message: str
    data: dict[str, Any]
    spelling: Spelling


_Explanation = tuple[str, str, Loc]


def _unknown_field(c: _Complaint) -> _Explanation:
    fields = _fields_at(c.loc[:-1], c.data)
    return (
        "no such field",
        c.spelling.suggest(str(c.loc[-1]), fields, f"the fields here are {listed(fields)}"),
        c.loc,
    )


def _fields_at(loc: Loc, data: Any) -> list[str]:
    """The fields that may stand at `loc`."""
    cls: type[BaseModel] = model.JobGraph
    if loc[:1] == ("vertices",):
        cls = KINDS[data["vertices"][loc[1]]["kind"]] if len(loc) == 2 else _PARTS[dotted(loc[2:])]
    elif loc == ("settings", "restart"):
        cls = RESTARTS[data["settings"]["restart"]["type"]]
    elif loc:
        cls = _PARTS[dotted(loc)]
    names = [f.alias or name for name, f in cls.model_fields.items()]
    return [*names, "variables"] if cls is model.JobGraph else names


def _missing(c: _Complaint) -> _Explanation:
    name = str(c.loc[-1])
    example = _EXAMPLES.get((c.loc[0] if c.loc[0] == "settings" else None, name)) or _EXAMPLES.get((None, name), "...")
    return "is missing", f"add '{name}: {example}'", c.loc


_EXAMPLES: Mapping[tuple[Any, str], str] = {
    (None, "name"): "NAME",
    (None, "vertices"): "[...]",
    (None, "format"): "csv",
    (None, "query"): "SELECT ...",
    (None, "function"): "module:function",
    (None, "input"): "VERTEX",
    (None, "file"): "job.py",
    (None, "column"): "COLUMN",
    (None, "columns"): "[COLUMN]",
    (None, "delay"): "10 minutes",
}


def _no_kind(c: _Complaint) -> _Explanation:
    choices = KINDS if c.loc[0] == "vertices" else RESTARTS
    return "is missing", f"add one of {listed(choices)}", (*c.loc, "kind" if c.loc[0] == "vertices" else "type")


def _bad_kind(c: _Complaint) -> _Explanation:
    choices = KINDS if c.loc[0] == "vertices" else RESTARTS
    field = "kind" if c.loc[0] == "vertices" else "type"
    word = str(c.ctx["tag"])
    return (
        f"'{word}' is not one of {listed(choices)}",
        c.spelling.suggest(word, choices, "use one of them"),
        (*c.loc, field),
    )


def _bad_choice(c: _Complaint) -> _Explanation:
    choices = _choices_at(c)
    if len(choices) == 1:
        return f"must be {choices[0]}, not {_shown(c.value)}", f"write {choices[0]}", c.loc
    return (
        f"{_shown(c.value)} is not one of {listed(choices)}",
        c.spelling.suggest(str(c.value), choices, "use one of them"),
        c.loc,
    )


def _choices_at(c: _Complaint) -> list[str]:
    enums: dict[str, type[Enum]] = {
        "output_mode": model.OutputMode,
        "delivery": model.Delivery,
        "api": model.ScriptApi,
        "row_metrics": model.RowMetrics,
        "sandbox": RequiredSandbox,
        "overwrite": model.Overwrite,
        "mode": model.SaveMode if c.loc[0] == "vertices" else model.Mode,
    }
    found = enums.get(str(c.loc[-1]))
    return [str(m.value) for m in found] if found else [str(c.ctx.get("expected", "")).strip("'")]


def _bad_pattern(c: _Complaint) -> _Explanation:
    field = next((str(p) for p in reversed(c.loc) if isinstance(p, str)), "")
    shown = _shown(c.value)
    if field in ("function", "foreach_batch"):
        return f"{shown} is not a function reference", "write module:function, such as cleaning:drop_bots", c.loc
    if c.loc[:3] == ("settings", "placement", "labels"):
        return f"{shown} cannot be the name or the value of a label", f"use {LABEL_RULE}", c.loc
    if field == "memory":
        return f"{shown} is not an amount of memory", "write a whole number with k, m, g or t, such as 512m", c.loc
    if field in ("name", "inputs", "input"):
        fix = "use up to 128 letters (a-z, A-Z), digits and underscores, beginning with a letter"
        return f"{shown} cannot be the name of a vertex", fix, c.loc
    return f"{shown} is not a duration", "write a number with a unit, such as 10 seconds, 5 min or 500 ms", c.loc


def _must_be(what: str, fix: str) -> Callable[[_Complaint], _Explanation]:
    return lambda c: (f"must be {what}, not {_shown(c.value)}", fix, c.loc)


def _list(c: _Complaint) -> _Explanation:
    if isinstance(c.value, str | int | float):
        return f"must be a list, not {_shown(c.value)}", f"write [{c.value}]", c.loc
    return f"must be a list, not {_shown(c.value)}", "write [a, b]", c.loc


def _too_short(c: _Complaint) -> _Explanation:
    if c.loc == ("vertices",):
        return "is empty", "add a source and a sink, or a script", c.loc
    return "is empty", "list at least one column", c.loc


def _bound(word: str, key: str) -> Callable[[_Complaint], _Explanation]:
    return lambda c: (f"must be {word} {c.ctx[key]:g}, not {_shown(c.value)}", "use a larger number", c.loc)


def _other(c: _Complaint) -> _Explanation:
    return f"{_shown(c.value)} is not valid: {c.message}", "see the pipeline reference", c.loc


def _shown(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{value if len(value) <= 60 else value[:57] + '...'}'"
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return str(value)


_NUMBER = _must_be("a whole number", "write a number without quotes or unit")
_REAL = _must_be("a number", "write a number without unit")
_BOOL = _must_be("true or false", "write true or false")
_MAP = _must_be("a mapping", "write 'field: value' lines below it")
_TEXT = _must_be("text", "write one line of text, in quotes if it looks like a number")

_EXPLAIN: Mapping[str, Callable[[_Complaint], _Explanation]] = {
    "extra_forbidden": _unknown_field,
    "missing": _missing,
    "union_tag_not_found": _no_kind,
    "union_tag_invalid": _bad_kind,
    "enum": _bad_choice,
    "literal_error": _bad_choice,
    "string_pattern_mismatch": _bad_pattern,
    "string_type": _TEXT,
    "string_too_short": lambda c: ("is empty", "write a name", c.loc),
    "string_too_long": lambda c: (f"is longer than {c.ctx['max_length']} characters", "shorten it", c.loc),
    "int_type": _NUMBER,
    "int_parsing": _NUMBER,
    "int_from_float": _NUMBER,
    "float_type": _REAL,
    "float_parsing": _REAL,
    "bool_type": _BOOL,
    "bool_parsing": _BOOL,
    "tuple_type": _list,
    "mapping_type": _MAP,
    "dict_type": _MAP,
    "model_type": _MAP,
    "model_attributes_type": _MAP,
    "too_short": _too_short,
    "greater_than": _bound("greater than", "gt"),
    "greater_than_equal": _bound("at least", "ge"),
}
