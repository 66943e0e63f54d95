"""The form of a row in the contract's table; `coverage` has the rows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any


class How(StrEnum):
    IMPLEMENTED = "implemented"
    EMPTY = "empty by design"
    REFUSED = "refused"


class Asker(Enum):
    """Who gets a fixed answer; `guards` has the checks, and the facts for the answer."""

    ANYBODY = auto()
    SEES_JOB = auto()
    SEES_VERTEX = auto()
    SEES_ATTEMPT = auto()
    CHANGES_JOB = auto()
    SEES_ENGINE = auto()
    DELETES_DATA_SET = auto()
    DELETED_DATA_SET = auto()


@dataclass(frozen=True, slots=True)
class Fixed:
    """An answer that does not depend on running jobs."""

    asker: Asker
    body: Any
    """JSON, or a text. `{name}` in it stands for a parameter of the path, or for a fact of the guard."""
    status: int = 200
    query: tuple[str, ...] = ()
    """Parameters that are checked but have no effect; `fixed.QUERY` has them."""


@dataclass(frozen=True, slots=True)
class ContractRow:
    method: str
    path: str
    how: How
    shows: str
    """What it shows here, or why it is empty or refused."""
    differs: str = ""
    """Where a client that knows Flink might be surprised."""
    specified: bool = True
    """Whether Flink's OpenAPI document has it."""
    answer: Fixed | None = None
    """The answer of an empty or refused operation. A refused operation without one has no route."""

    @property
    def key(self) -> tuple[str, str]:
        return self.method, self.path


@dataclass(frozen=True, slots=True)
class ContractSection:
    title: str
    tag: str
    """The tag of its fixed answers in the OpenAPI document."""
    rows: tuple[ContractRow, ...]
