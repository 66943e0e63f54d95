"""Resolving entries and declared options to values: the pure heart of the configuration.

Every entry is checked, even one that a stronger source overrides, so that a mistake does not wait for the day on which
the override goes away.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firesteel.config.option import ENVIRONMENT_PREFIX, MASK, Option, variable_of
from firesteel.config.sources import Entry, SettingOrigin, given_twice
from firesteel.config.values import LABELS, LOCATIONS, STRINGS, PathBase
from firesteel.errors import Problem

SPARK_PREFIX = "spark."


@dataclass(slots=True)
class Resolution:
    values: dict[str, Any] = field(default_factory=dict)
    """The value of each option."""
    spark: dict[str, str] = field(default_factory=dict)
    origins: dict[str, SettingOrigin] = field(default_factory=dict)
    """The origin of each value that was set; the others are defaults."""
    problems: list[Problem] = field(default_factory=list)
    deprecations: list[Problem] = field(default_factory=list)
    """Warnings about keys that were set under an old name."""


def resolve(
    options: Sequence[Option], entries: Iterable[Entry], *, environ: Mapping[str, str], home: Path
) -> Resolution:
    """Determine the value of every option.

    Args:
        entries: From the weakest source to the strongest.
        environ: The environment for computed defaults.
        home: The meaning of `~`.
    """
    out = Resolution()
    by_key = {key: o for o in options for key in (o.key, *o.deprecated)}
    seen: dict[tuple[str, str], SettingOrigin] = {}
    for entry in entries:
        found = by_key.get(entry.key)
        key = found.key if found else entry.key
        if found is None and not entry.key.startswith(SPARK_PREFIX):
            if not (entry.value is None and _is_section(entry.key, by_key)):  # `engine:` with all below commented out
                out.problems.append(unknown_key(entry, by_key))
            continue
        if first := seen.get((entry.origin.source, key)):
            out.problems.append(given_twice(key, first, entry.origin))
            continue
        seen[entry.origin.source, key] = entry.origin
        try:
            if found is None:
                out.spark[key] = _spark_value(entry)
            else:
                out.values[key] = _value(found, entry, home)
        except _BadValueError as e:
            out.problems.append(e.problem)
            continue
        out.origins[key] = entry.origin
        if found and entry.key != found.key:
            out.deprecations.append(_deprecation(found, entry))
    # In the order of declaration, which is what a computed default relies on.
    for o in options:
        if o.key not in out.values:
            out.values[o.key] = o.default_value(environ, out.values)
    return out


class _BadValueError(Exception):
    def __init__(self, entry: Entry, message: str, fix: str) -> None:
        self.problem = Problem(message, fix, field=entry.key, file=entry.origin.file, line=entry.origin.line)
        super().__init__(message)


def _from(origin: SettingOrigin) -> str:
    """Where an entry was set. Problems in a file begin with its name and line; other origins are in the sentence."""
    return "" if origin.file else f" from {origin}"


def _value(option: Option, entry: Entry, home: Path) -> Any:
    kind, text = option.kind, entry.value
    if isinstance(text, tuple) and kind.of_words:
        text = shlex.join(text) if kind is LOCATIONS else " ".join(text)
    if isinstance(text, tuple):
        if kind is not STRINGS:
            raise _BadValueError(entry, f"a list is not {kind.noun}", kind.fix)
        return text
    if text is None or not text.strip():
        if kind in (STRINGS, LOCATIONS, LABELS):
            return ()
        if option.optional:
            return None
        raise _BadValueError(entry, f"has no value{_from(entry.origin)}", f"{kind.fix}, or remove it")
    try:
        return kind.parse(text.strip(), PathBase(entry.origin.base, home))
    except ValueError:
        shown = MASK if option.secret else f"'{text}'"
        raise _BadValueError(entry, f"{shown}{_from(entry.origin)} is not {kind.noun}", kind.fix) from None


def _spark_value(entry: Entry) -> str:
    if isinstance(entry.value, tuple):
        raise _BadValueError(
            entry, "a list is not a Spark setting", "write one string, with commas where Spark expects them"
        )
    return entry.value or ""


def _deprecation(option: Option, entry: Entry) -> Problem:
    new = option.variable if entry.origin.variable else option.key
    old = entry.origin.variable or entry.key
    return Problem(f"{old} is now called {new}", f"write {new}", file=entry.origin.file, line=entry.origin.line)


def unknown_key(entry: Entry, by_key: Mapping[str, Option]) -> Problem:
    message, fix = f"no such option{_from(entry.origin)}", "remove it; the configuration reference lists every option"
    outer = next((k for k in by_key if entry.key.startswith(f"{k}.")), None)
    if outer:
        message, fix = f"no such option; '{outer}' takes a value, not a map", f"write `{outer}: value`"
    elif _is_section(entry.key, by_key):
        message, fix = f"is a section, not an option{_from(entry.origin)}", f"write `{entry.key}.<option>: value`"
    elif near := nearest(entry.key, [o.key for o in by_key.values()]):
        fix = f"did you mean '{near}'?"
    return Problem(message, fix, field=entry.key, file=entry.origin.file, line=entry.origin.line)


def unknown_variable(variable: str, options: Sequence[Option]) -> Problem:
    if variable.startswith(variable_of(SPARK_PREFIX)):
        fix = "unset it, and set spark.* keys in the file or with -D"
    elif near := nearest(_key_like(variable), [_key_like(o.variable) for o in options]):
        fix = f"did you mean {ENVIRONMENT_PREFIX}{near.upper().replace('-', '_')}?"
    else:
        fix = "unset it; the configuration reference lists every option"
    return Problem(f"environment variable {variable}: no option has this name", fix)


def nearest(key: str, known: Sequence[str]) -> str | None:
    """The known key that `key` was probably meant to be."""
    plain = key.lower().replace("_", "-").removeprefix("firesteel.")
    if plain in known:
        return plain
    # A forgotten or wrong section is a long edit, but a plain mistake.
    same_name = [k for k in known if k.partition(".")[2] == plain or (k.rpartition(".")[2] == plain.rpartition(".")[2])]
    if len(set(same_name)) == 1:
        return same_name[0]
    close = difflib.get_close_matches(plain, known, n=1, cutoff=0.75)
    return close[0] if close else None


def _key_like(variable: str) -> str:
    """The key without its prefix, which would make all keys look alike."""
    return variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", "-")


def _is_section(key: str, known: Iterable[str]) -> bool:
    return f"{key}." == SPARK_PREFIX or any(k.startswith(f"{key}.") for k in known)
