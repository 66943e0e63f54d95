"""Kinds of option values: how each is written, read and shown.

A Kind turns text into a value and back. It knows nothing of keys or of where the text came from; the resolver puts
those around the ValueError that a Kind raises.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from firesteel.durations import seconds, show_seconds
from firesteel.types import LABEL_PATTERN


@dataclass(frozen=True, slots=True)
class PathBase:
    """The meaning of a relative path and of `~` for one piece of text."""

    base: Path
    home: Path

    def path(self, text: str) -> Path:
        if text == "~" or text.startswith("~/"):
            return self.home / text[2:]
        return self.base / text


@dataclass(frozen=True, slots=True)
class ValueKind:
    """One kind of value.

    `parse` gets text that is not empty, and raises ValueError for text that is not of this kind; what `show` gives,
    `parse` reads back as the same value.
    """

    name: str
    """Its name in the reference: `duration`."""
    noun: str
    """Its name after "is not": `a duration`."""
    fix: str
    """The fix in a message: what to write instead."""
    parse: Callable[[str, PathBase], Any]
    show: Callable[[Any], str] = str
    of_words: bool = False
    """Whether it may be a list of such words in a file, too."""


def _parse_bool(text: str, _: PathBase) -> bool:
    match text.lower():
        case "true" | "yes" | "on":
            return True
        case "false" | "no" | "off":
            return False
    raise ValueError(text)


def integer(*, at_least: int | None = None) -> ValueKind:
    def parse(text: str, _: PathBase) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text) or (at_least is not None and int(text) < at_least):
            raise ValueError(text)
        return int(text)

    bound = "" if at_least is None else f" of {at_least} or more"
    return ValueKind("integer", f"a whole number{bound}", f"write a whole number{bound}", parse)


def _parse_float(text: str, _: PathBase) -> float:
    if not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", text):  # no nan, inf or 1e9: they are never meant
        raise ValueError(text)
    return float(text)


def duration(*, positive: bool = False) -> ValueKind:
    def parse(text: str, _: PathBase) -> float:
        value = seconds(text)
        if positive and value == 0:
            raise ValueError(text)
        return value

    above = " above zero" if positive else ""
    fix = "write a number and a unit, such as 10 s, 500 ms or 2 min"
    return ValueKind("duration", f"a duration{above}", fix, parse, show_seconds)


_MEMORY = re.compile(r"([0-9]+)\s*([kmgt])b?")
_MEMORY_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def memory_bytes(text: str) -> int:
    """The bytes in `512m`, `1g` or `2GB`; ValueError for anything else."""
    found = _MEMORY.fullmatch(text.strip().lower())
    if not found:
        raise ValueError(text)
    return int(found[1]) * _MEMORY_UNITS[found[2]]


def memory(*, at_least: str = "1k") -> ValueKind:
    """Memory sizes, kept as the text that both Java and Spark read: digits and one letter."""

    def parse(text: str, _: PathBase) -> str:
        if memory_bytes(text) < memory_bytes(at_least):
            raise ValueError(text)
        number, unit = _MEMORY.fullmatch(text.strip().lower()).groups()  # type: ignore[union-attr]
        return f"{int(number)}{unit}"

    fix = "write a whole number and k, m, g or t, such as 512m or 2g"
    return ValueKind("memory size", f"a memory size of {at_least} or more", fix, parse)


def _parse_words(text: str, _: PathBase) -> tuple[str, ...]:
    return tuple(shlex.split(text))


def _parse_labels(text: str, _: PathBase) -> tuple[tuple[str, str], ...]:
    pairs = [word.partition("=")[::2] for word in text.replace(",", " ").split()]
    bad = [pair for pair in pairs if not all(re.fullmatch(LABEL_PATTERN, part) for part in pair)]
    if bad or len(dict(pairs)) < len(pairs):
        raise ValueError(text)
    return tuple(sorted(pairs))


def _show_labels(value: tuple[tuple[str, str], ...]) -> str:
    return ",".join(f"{name}={label}" for name, label in value)


def _parse_location(text: str, place: PathBase) -> str:
    """A path, made absolute, or a URL as it is (`s3a://bucket/x`)."""
    return text if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", text) else str(place.path(text))


def _parse_locations(text: str, place: PathBase) -> tuple[str, ...]:
    return tuple(_parse_location(word, place) for word in shlex.split(text))


_HOST_PORT = r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})"
_LOCAL_MASTER = re.compile(r"local\[(\*|[1-9][0-9]*)\]")
_STANDALONE_MASTER = re.compile(rf"spark://{_HOST_PORT}(?:,{_HOST_PORT})*")
_CONNECT_MASTER = re.compile(rf"sc://{_HOST_PORT}")


def _parse_master(text: str, _: PathBase) -> str:
    if _LOCAL_MASTER.fullmatch(text):
        return text
    if not (_STANDALONE_MASTER.fullmatch(text) or _CONNECT_MASTER.fullmatch(text)):
        raise ValueError(text)
    if not all(1 <= int(port) <= 65535 for port in re.findall(r":([0-9]+)(?=,|$)", text)):
        raise ValueError(text)
    return text


STRING = ValueKind("string", "text", "write some text", lambda text, _: text)
BOOL = ValueKind(
    "boolean", "true or false", "write true or false", _parse_bool, lambda value: "true" if value else "false"
)
FLOAT = ValueKind("number", "a number", "write a number, such as 1.5", _parse_float)
PATH = ValueKind("path", "a path", "write a path", lambda text, place: place.path(text))
STRINGS = ValueKind("list of strings", "a list of words", "close the quotes", _parse_words, shlex.join)
MASTER = ValueKind(
    "master", "a master", "write local[*], local[N], spark://host:port or sc://host:port", _parse_master
)  # a token never stands in it: a master is shown everywhere
LOCATIONS = ValueKind(
    "paths or URLs", "a list of paths and URLs", "close the quotes", _parse_locations, shlex.join, of_words=True
)
LABELS = ValueKind(
    "labels",
    "a list of labels",
    "write name=value, separated by commas, such as zone=a,disk=ssd, and each name once",
    _parse_labels,
    _show_labels,
    of_words=True,
)
LOCATION = ValueKind("path or URL", "a path or URL", "write a path or a URL", _parse_location)

Duration = Annotated[float, duration()]
"""Seconds. Zero is allowed."""
PositiveDuration = Annotated[float, duration(positive=True)]
PositiveInt = Annotated[int, integer(at_least=1)]
MemorySize = Annotated[str, memory()]
EngineMemory = Annotated[str, memory(at_least="512m")]
"""Spark refuses to start with less than 450 MiB."""
Master = Annotated[str, MASTER]
Location = Annotated[str, LOCATION]
Locations = Annotated[tuple[str, ...], LOCATIONS]
WorkerLabels = Annotated[tuple[tuple[str, str], ...], LABELS]
"""Sorted by name."""

_PLAIN: dict[object, ValueKind] = {
    str: STRING,
    bool: BOOL,
    int: integer(),
    float: FLOAT,
    Path: PATH,
    tuple[str, ...]: STRINGS,
}


def _choice(members: Iterable[Enum]) -> ValueKind:
    members = tuple(members)
    by_text = {str(m.value).lower(): m for m in members}

    def parse(text: str, _: PathBase) -> Enum:
        if text.lower() not in by_text:
            raise ValueError(text)
        return by_text[text.lower()]

    words = [str(m.value) for m in members]
    listed = " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    return ValueKind(
        " \\| ".join(f"`{w}`" for w in words), f"one of {', '.join(words)}", f"write {listed}", parse, _show_choice
    )


def one_of(*members: Enum) -> ValueKind:
    """One of some members of an enum."""
    return _choice(members)


def several(members: type[Enum]) -> ValueKind:
    """One or more members of an enum, as words."""
    one = _choice(members)

    def parse(text: str, place: PathBase) -> tuple[Enum, ...]:
        words = text.replace(",", " ").split()
        if not words:
            raise ValueError(text)
        return tuple(dict.fromkeys(one.parse(word, place) for word in words))

    def show(value: tuple[Enum, ...]) -> str:
        return " ".join(_show_choice(v) for v in value)

    return ValueKind(f"{one.name}, several", f"some words, each {one.noun}", one.fix, parse, show, of_words=True)


def _show_choice(value: Enum) -> str:
    return str(value.value)


def kind_of(annotation: object) -> ValueKind | None:
    """The kind of a plain annotation (`int`, `Path`, an enum), or None when there is none for it."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _choice(annotation)
    return _PLAIN.get(annotation)
