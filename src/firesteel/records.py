"""Frozen dataclasses as JSON and back, by their annotations: what is stored, or handed to another process.

Reading is strict, as records may be damaged: text does not count as a number, and fields without a default are required. Fields
that a newer Firesteel has added are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def to_json(record: object) -> dict[str, Any]:
    """`record`, a dataclass, as a JSON object, its fields in their order."""
    data: dict[str, Any] = msgspec.to_builtins(record)
    return data


def from_json(data: object, kind: type[T], *, other: Callable[[Any, Any], object] | None = None) -> T:
    """The `kind`, a dataclass or a list of them, that `data` holds; `other` makes what is of another type, given that and the
    JSON.

    Raises ValueError, which names the field.
    """
    try:
        return msgspec.convert(data, kind, dec_hook=other)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
