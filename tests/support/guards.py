"""The guard of a test in which nobody else leads."""

from __future__ import annotations

from typing import Any

GUARDED = {"cancel", "fence", "forget"}


def certain() -> None:
    """A `Guard` that lets everything pass."""


def call(executor: object, name: str, attempt: object) -> Any:
    """What the executor's method `name` answers of an attempt; with a guard, if it wants one."""
    return getattr(executor, name)(attempt, **({"guard": certain} if name in GUARDED else {}))
