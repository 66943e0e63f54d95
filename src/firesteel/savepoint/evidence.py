"""What the checkpoint of a query tells of its state: operators, the columns of their keys and values, and settings.

As Spark 4.3 writes it: `state/<operator>/_metadata/metadata` (or `_metadata/v2/<batch>`) names the operator and its
stores, `state/<operator>/<partition>[/<store>]/_metadata/schema` has the columns, `offsets/<batch>` the settings.
`saved_state` reads through the functions that it is given; the rest is pure.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_OPERATOR = re.compile(r"state/(\d+)/_metadata/(?:metadata|v2/(\d+))")
_SCHEMA = re.compile(r"state/(\d+)/(\d+)/(?:([^/]+)/)?_metadata/schema")
_STATE = re.compile(r"state/(\d+)/")
_SHUFFLE = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
DEFAULT_STORE = "default"
_LARGEST = 4 << 20


@dataclass(frozen=True, slots=True)
class StateColumn:
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class SavedStore:
    keys: tuple[StateColumn, ...]
    values: tuple[StateColumn, ...]


@dataclass(frozen=True, slots=True)
class SavedOperator:
    number: int
    name: str
    """Its name in Spark: stateStoreSave, dedupe, symmetricHashJoin, …"""
    stores: Mapping[str, SavedStore] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SavedState:
    """What is known of the state of one query."""

    operators: tuple[SavedOperator, ...] = ()
    complete: bool = True
    """Whether every operator of the checkpoint could be read."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that Spark keeps with the checkpoint: they apply, whatever a later query sets."""

    @property
    def partitions(self) -> str | None:
        return self.settings.get(_SHUFFLE)

    @property
    def provider(self) -> str | None:
        return self.settings.get(_PROVIDER)


def saved_state(names: Iterable[str], batch: int, read: Callable[[str], bytes | None]) -> SavedState:
    """The state in a checkpoint with the files `names`, after `batch`.

    What cannot be read is left out: Spark checks it again when the query starts.
    """
    there = list(names)
    operators: dict[int, SavedOperator] = {}
    newest: dict[int, int] = {}
    for name in there:
        if not (match := _OPERATOR.fullmatch(name)):
            continue
        number, version = int(match[1]), int(match[2] or 0)
        operator = _operator(_text(read(name)), number)
        if operator is not None and version >= newest.get(number, 0):
            operators[number], newest[number] = operator, version
    stores: dict[int, dict[str, SavedStore]] = {}
    for name in there:
        # All partitions have the same columns.
        if (match := _SCHEMA.fullmatch(name)) and match[2] == "0" and (store := parse_schema(read(name) or b"")):
            stores.setdefault(int(match[1]), {})[match[3] or DEFAULT_STORE] = store
    found = tuple(SavedOperator(o.number, o.name, stores.get(n, {})) for n, o in sorted(operators.items()))
    numbers = {int(m[1]) for name in there if (m := _STATE.match(name))}
    return SavedState(found, numbers == operators.keys(), parse_settings(_text(read(f"offsets/{batch}"))))


def _text(raw: bytes | None) -> str:
    return raw[:_LARGEST].decode(errors="replace") if raw else ""


def _operator(text: str, number: int) -> SavedOperator | None:
    try:
        data = json.loads(text.partition("\n")[2])
        return SavedOperator(number, str(data["operatorInfo"]["operatorName"]))
    except (ValueError, KeyError, TypeError):
        return None


def parse_settings(text: str) -> Mapping[str, str]:
    """The settings in an entry of the offset log: a version, then a line of JSON."""
    try:
        conf = json.loads(text.split("\n")[1])["conf"]
        return {str(k): str(v) for k, v in conf.items()}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return {}


def parse_schema(raw: bytes) -> SavedStore | None:
    """A schema file: the version as Java writes a string, then key and value columns, each in pieces with their number."""
    try:
        version, rest = _utf(raw)
        if version != "v2":
            return None
        keys, rest = _pieces(rest)
        values, _ = _pieces(rest)
        return SavedStore(_columns(json.loads(keys)), _columns(json.loads(values)))
    except (ValueError, KeyError, TypeError, struct.error, UnicodeDecodeError):
        return None


def _utf(raw: bytes) -> tuple[str, bytes]:
    (length,) = struct.unpack_from(">H", raw)
    return raw[2 : 2 + length].decode(), raw[2 + length :]


def _pieces(raw: bytes) -> tuple[str, bytes]:
    (count,) = struct.unpack_from(">i", raw)
    raw = raw[4:]
    text = ""
    for _ in range(min(count, 10_000)):
        piece, raw = _utf(raw)
        text += piece
    return text, raw


def _columns(schema: Mapping[str, Any]) -> tuple[StateColumn, ...]:
    return tuple(StateColumn(str(f["name"]), _type(f["type"])) for f in schema["fields"])


def _type(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind.get("type", "?"))
