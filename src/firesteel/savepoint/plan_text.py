"""The state that a query keeps according to Spark's analysed plan, for code that becomes a plan only when it has run.

The plan is text (`explain extended`), one operator per line, deeper ones below. The name of a column ends with its
number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from firesteel.jobgraph.state_sql import KeptState, StateKind

_SECTION = re.compile(r"== Analyzed Logical Plan ==\n(.*?)(?:\n== |\Z)", re.DOTALL)
_LINE = re.compile(r"^((?:[:| ] {2})*(?:[:+]- )?)~?(\w+)(.*)$")
_NUMBER = re.compile(r"#\d+L?(?:-T\d+ms)?")
_STREAM = "StreamingRelation"
_KINDS = {
    "Aggregate": StateKind.AGGREGATION,
    "Distinct": StateKind.AGGREGATION,
    "Deduplicate": StateKind.DEDUPLICATION,
    "DeduplicateWithinWatermark": StateKind.DEDUPLICATION_IN_WATERMARK,
    "GlobalLimit": StateKind.LIMIT,
    "Join": StateKind.JOIN,
}


def kept_by_plan(explained: str) -> tuple[KeptState, ...] | None:
    """The state of the query that `explained` describes; None when it is unclear, or when code keeps its own state."""
    section = _SECTION.search(explained)
    if section is None:
        return None
    lines = [m for line in section[1].splitlines()[1:] if (m := _LINE.match(line))]
    kept: list[KeptState] = []
    for n, line in enumerate(lines):
        below = _below(lines, n)
        streams = [child for child in below if any(_STREAM in m[2] for m in child)]
        if "WithState" in line[2] and streams:
            return None
        kind = _KINDS.get(line[2])
        if kind is None or not streams or (kind is StateKind.JOIN and len(streams) < 2):
            continue
        keys = _keys(line[3]) if line[2] not in ("Distinct", "Join", "GlobalLimit") else ("*",)
        if any(k.startswith("session_window") for k in keys):
            kind, keys = StateKind.SESSION, tuple(k for k in keys if not k.startswith("session_window"))
        kept.insert(0, KeptState(kind, keys))
    return tuple(kept)


def _below(lines: Sequence[re.Match[str]], n: int) -> list[list[re.Match[str]]]:
    """The lines below line `n`, one list for each child."""
    depth = len(lines[n][1])
    children: list[list[re.Match[str]]] = []
    for line in lines[n + 1 :]:
        if len(line[1]) <= depth:
            break
        if len(line[1]) == depth + 3:
            children.append([])
        if children:
            children[-1].append(line)
    return children


def _keys(text: str) -> tuple[str, ...]:
    """The names in the first list of an operator; `*` for a truncated list, or for anything but a plain column."""
    match = re.match(r"\s*\[(.*?)\](?:, \[|$|,)", text)
    if match is None:
        return ("*",)
    names = [_NUMBER.sub("", part.strip()) for part in match[1].split(", ")] if match[1] else []
    return tuple(names) if all(re.fullmatch(r"\w+", name) for name in names) else ("*",)
