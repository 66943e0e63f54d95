"""Columns with their types in the forms of Spark: DDL, the JSON schema, and the `ReadSchema` of a scan."""

from __future__ import annotations

import json
import re
from typing import Any

from typing_extensions import TypedDict

from firesteel.jobgraph.ddl import DdlError, column_names

_OPENING, _CLOSING = "<(", ">)"
_PIECE = re.compile(r"`(?:[^`]|``)*`|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|--[^\n]*|/\*.*?\*/|.", re.DOTALL)
_COLUMN = re.compile(r"\s*(?:`(?:[^`]|``)*`|\w+)\s*:?\s*(?P<type>.*?)\s*", re.DOTALL)
_AFTER_TYPE = re.compile(r"\s+(?:NOT\s+NULL|COMMENT\s).*", re.IGNORECASE | re.DOTALL)
_READ_SCHEMA = re.compile(r"ReadSchema: struct(?P<columns><.*)", re.DOTALL)


class Column(TypedDict):
    name: str
    type: str


def columns_of_schema(schema: str) -> list[Column] | None:
    """The columns of a source's schema; None if it cannot be parsed."""
    try:
        names = column_names(schema)
        if schema.lstrip().startswith("{"):
            fields = json.loads(schema)["fields"]
            return [{"name": n, "type": simple_type(f["type"])} for n, f in zip(names, fields, strict=True)]
        types = [_type_of(part) for part in _split(schema)]
        return [{"name": n, "type": t} for n, t in zip(names, types, strict=True)]
    except (DdlError, ValueError, KeyError, TypeError, RecursionError):
        return None


def columns_of_scan(description: str) -> list[Column] | None:
    """The columns that a physical scan reads; None when they are not listed, or not all of them."""
    found = _READ_SCHEMA.search(description)
    inner = None if found is None else _inside(found["columns"])
    if inner is None or "..." in inner:
        return None
    columns: list[Column] = []
    for part in _split(inner):
        name, colon, kind = part.partition(":")
        if not colon:
            return None
        columns.append({"name": name.strip(), "type": kind.strip()})
    return columns


def simple_type(kind: Any) -> str:
    """A type of Spark's JSON schema in one word, or as `array<...>`, `map<..., ...>`, `struct<...>`."""
    match kind:
        case str():
            return kind
        case {"type": "array", "elementType": element}:
            return f"array<{simple_type(element)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"map<{simple_type(key)},{simple_type(value)}>"
        case {"type": "struct", "fields": list(fields)}:
            inner = ",".join(f"{f['name']}:{simple_type(f['type'])}" for f in fields)
            return f"struct<{inner}>"
        case {"type": "udt", "sqlType": plain}:
            return simple_type(plain)
    raise ValueError(f"{kind!r} is not a type")


def _type_of(part: str) -> str:
    match = _COLUMN.fullmatch(part)
    if match is None:
        raise ValueError(part)
    return " ".join(_AFTER_TYPE.sub("", match["type"]).split())


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets and quotes, without comments."""
    parts, depth = [""], 0
    for piece in _PIECE.findall(text):
        if piece.startswith(("--", "/*")):
            continue
        depth += (piece in _OPENING) - (piece in _CLOSING)
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return [p for p in parts if p.strip()]


def _inside(text: str) -> str | None:
    """The text between the first bracket and its closing bracket."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c in _OPENING) - (c in _CLOSING)
        if depth == 0:
            return text[1:i]
    return None
