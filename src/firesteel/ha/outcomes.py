"""Group commit, the part that all stores share: many requests, one batch, and to each its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class WriteRequest(Generic[B]):
    """What somebody waits for. `action` works on the batch; what it raises must come before any change."""

    action: Callable[[B], Any]
    future: asyncio.Future[Any]

    def attempt(self, batch: B) -> WriteOutcome:
        try:
            return WriteOutcome(self.future, self.action(batch))
        except Exception as error:  # the caller's, whatever it is: it is raised there
            return self.failed(error)

    def failed(self, error: Exception) -> WriteOutcome:
        return WriteOutcome(self.future, error=error)


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None


def resolve(outcomes: Iterable[WriteOutcome]) -> None:
    """Tell those who wait. For the event loop of their futures."""
    for outcome in outcomes:
        if outcome.future.done():  # cancelled meanwhile
            continue
        if outcome.error is not None:
            outcome.future.set_exception(outcome.error)
        else:
            outcome.future.set_result(outcome.result)
