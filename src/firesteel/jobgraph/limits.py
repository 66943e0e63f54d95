"""Bounds on every job graph from the network, for everything that later steps cannot bound (S25).

Those steps recurse, compare each with each, and cannot be interrupted. All of this runs in threads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from firesteel.durations import DURATION_PATTERN, seconds
from firesteel.errors import Problem
from firesteel.types import hides_nothing

from .document import Document, Loc, Locator, vertex_at

MAX_DEPTH = 64
"""Levels of nested lists and mappings."""
MAX_VERTICES = 2000
MAX_SINKS = 500
"""Every sink is compared with every other."""
MAX_QUERY = 200_000
"""Characters of one query."""
MAX_SQL = 1_000_000
"""Characters of all queries of a graph."""
MAX_PATTERNS = 1000
"""Paths that the `{a,b}` in one path may stand for."""
MAX_SUBSTITUTED = 16 << 20
"""Characters that variables may bring in."""
MAX_YAML = 1 << 20
MAX_NODES = 200_000
"""Values of a YAML text, with aliases written out."""
MAX_FOUND = 100
LONGEST_DURATION = 100 * 365 * 86400
"""The longest time in seconds. With a longer one, milliseconds and points in time would not fit everywhere."""

_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1
_DURATION = re.compile(DURATION_PATTERN)
_DURATIONS = frozenset({"checkpoint_interval", "delay", "initial_delay", "interval", "max_delay", "trigger"})
_BRACES = re.compile(r"\{([^{}]*)\}")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def unfit(document: Document) -> list[Problem]:
    """Reasons why the graph in `document` cannot even be examined; not necessarily all of them."""
    data = document.data
    at = Locator(document.file, document.lines)
    if too_deep(data):
        return [Problem(f"the graph is nested more than {MAX_DEPTH} levels deep", "flatten it", file=document.file)]
    found = []
    for loc, message, fix in _complaints(data):
        found.append(at.problem(loc, message, fix, vertex=vertex_at(data, loc)))
        if len(found) >= MAX_FOUND:
            break
    return found


def too_deep(value: Any) -> bool:
    """Whether lists and mappings are nested more than MAX_DEPTH levels deep. Does not recurse itself (S25)."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [v for v in level if isinstance(v, dict | list)]
        if not level:
            return False
        level = [inner for v in level for inner in (v.values() if isinstance(v, dict) else v)]
    return True


def too_much_substitution(data: Any, variables: Mapping[str, str]) -> bool:
    """Whether substituting the variables would make the graph too large."""
    declared = data.get("variables") if isinstance(data, dict) else None
    longest = longest_value(declared, variables)
    references = sum(v.count("${") for _, v in _leaves(data, ()) if isinstance(v, str))
    return references * longest > MAX_SUBSTITUTED


def longest_value(declared: Any, given: Mapping[str, str]) -> int:
    """Characters of the longest variable, at most. A default may hold other variables, each twice as long as the last."""
    lengths = {name: len(value) for name, value in given.items()}
    for name, default in declared.items() if isinstance(declared, dict) else ():
        text = str(default)
        if name not in given:
            longest = max(lengths.values(), default=0)
            lengths[name] = min(len(text) + text.count("${") * longest, MAX_SUBSTITUTED + 1)
    return max(lengths.values(), default=0)


def unfit_yaml(text: str, file: str) -> Problem | None:
    """Why `text` cannot be read as YAML: it is too deep or too large, perhaps only with its aliases written out."""
    if len(text) > MAX_YAML:
        return Problem(f"the pipeline has more than {MAX_YAML:,} characters", "send it as JSON", file=file)
    try:
        return _unfit_events(text, file)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        fix = "fix the syntax; text with ':' or '#' in it needs quotes"
        return Problem(f"this is not YAML: {what}", fix, file=file, line=mark.line + 1 if mark else None)


def _unfit_events(text: str, file: str) -> Problem | None:
    anchors: dict[str, tuple[int, int]] = {}
    """Size and height of what each anchor stands for."""
    opened: list[tuple[str | None, int, int]] = [(None, 0, 0)]
    """Anchor, size and height so far of the collections that we are in, the document first."""

    def add(size: int, height: int) -> None:
        anchor, so_far, highest = opened[-1]
        opened[-1] = (anchor, so_far + size, max(highest, height))

    for event in yaml.parse(text, Loader=_LOADER):
        match event:
            case yaml.CollectionStartEvent():
                opened.append((event.anchor, 1, 1))
            case yaml.CollectionEndEvent():
                anchor, size, height = opened.pop()
                if anchor is not None:
                    anchors[anchor] = (size, height)
                add(size, height + 1)
            case yaml.AliasEvent():
                size, height = anchors.get(event.anchor or "", (1, 0))
                add(size, height)
            case yaml.ScalarEvent():
                add(1, 0)
                if event.anchor is not None:
                    anchors[event.anchor] = (1, 0)
            case _:
                continue
        if len(opened) - 1 + opened[-1][2] > MAX_DEPTH:
            return Problem(f"it is nested more than {MAX_DEPTH} levels deep", "flatten it", file=file)
        if sum(size for _, size, _ in opened) > MAX_NODES:
            return Problem(f"it holds more than {MAX_NODES:,} values, aliases included", "write less", file=file)
    return None


def _complaints(data: Any) -> Iterator[tuple[Loc, str, str]]:
    if not isinstance(data, dict):
        return  # the next step says so
    vertices = data.get("vertices")
    vertices = vertices if isinstance(vertices, list) else []
    if len(vertices) > MAX_VERTICES:
        yield (
            ("vertices",),
            f"there are {len(vertices)} of them, and a graph may have at most {MAX_VERTICES}",
            "split the job",
        )
        return
    sinks = sum(isinstance(v, dict) and v.get("kind") == "sink" for v in vertices)
    if sinks > MAX_SINKS:
        yield ("vertices",), f"{sinks} of them are sinks, and a graph may have at most {MAX_SINKS}", "split the job"
    sql = sum(len(q) for v in vertices if isinstance(v, dict) and isinstance(q := v.get("query"), str))
    if sql > MAX_SQL:
        yield (
            ("vertices",),
            f"their queries have {sql:,} characters, and a graph may have at most {MAX_SQL:,}",
            "split the job",
        )
        return
    name = data.get("name")
    if isinstance(name, str) and not hides_nothing(name):
        yield ("name",), "contains a control character or an invisible one", "write one line of plain text"
    for i, vertex in enumerate(vertices):
        if isinstance(vertex, dict):
            yield from _in_vertex(vertex, ("vertices", i))
    for loc, value in _leaves(data, ()):
        if why := _unfit_value(value) or _unfit_duration(loc, value):
            yield loc, *why


def _in_vertex(vertex: Mapping[Any, Any], loc: Loc) -> Iterator[tuple[Loc, str, str]]:
    query, path = vertex.get("query"), vertex.get("path")
    if isinstance(query, str) and len(query) > MAX_QUERY:
        yield (
            (*loc, "query"),
            f"has {len(query):,} characters, and a query may have at most {MAX_QUERY:,}",
            "split the query",
        )
    if isinstance(path, str) and _patterns(path) > MAX_PATTERNS:
        yield (*loc, "path"), f"stands for more than {MAX_PATTERNS:,} paths", "use * in place of some {a,b}"


def _patterns(path: str) -> int:
    """An upper bound on the number of paths that the braces in a path stand for."""
    count = 1
    while count <= MAX_PATTERNS and (match := _BRACES.search(path)):
        count *= match[1].count(",") + 1
        path = f"{path[: match.start()]}_{path[match.end() :]}"
    return count


def _leaves(value: Any, loc: Loc) -> Iterator[tuple[Loc, Any]]:
    """Scalars and keys, with where they are."""
    match value:
        case dict():
            for key, inner in value.items():
                yield loc, key
                yield from _leaves(inner, (*loc, str(key)[:100]))
        case list():
            for i, inner in enumerate(value):
                yield from _leaves(inner, (*loc, i))
        case _:
            yield loc, value


def _unfit_duration(loc: Loc, value: Any) -> tuple[str, str] | None:
    if not (loc and loc[-1] in _DURATIONS and isinstance(value, str) and _DURATION.match(value)):
        return None
    return ("is longer than a hundred years", "use a shorter time") if seconds(value) > LONGEST_DURATION else None


def _unfit_value(value: Any) -> tuple[str, str] | None:
    match value:
        case str():
            if "\0" in value:
                return "contains the character U+0000", "remove it"
            if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
                return "contains half a character (a lone surrogate)", "write it as UTF-8"
        case int() if not _SMALLEST <= value <= _LARGEST:
            return "is a number of more than 64 bits", "use a smaller one"
        case float() if not math.isfinite(value):
            return "is not a finite number", "write a number"
    return None
