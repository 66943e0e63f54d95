"""What a row of the contract's table says; `coverage` has the rows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any


class How(StrEnum):
    IMPLEMENTED = "implemented"
    EMPTY = "empty by design"
    REFUSED = "refused"


class Asker(Enum):
    """Who gets a fixed answer; `guards` has what is asked of them, and what they learn."""

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
    """An answer that does not depend on what runs."""

    asker: Asker
    body: Any
    """JSON, or a text. `{name}` in it stands for a parameter of the path, or for what the guard knows of what was asked for."""
    status: int = 200
    query: tuple[str, ...] = ()
    """Parameters that are checked and make no difference; `fixed.QUERY` has them."""


@dataclass(frozen=True, slots=True)
class ContractRow:
    method: str
    path: str
    how: How
    shows: str
    """What it means here, or why it is empty or refused."""
    differs: str = ""
    """Where a client that knows Flink might be surprised."""
    specified: bool = True
    """Whether Flink's OpenAPI document has it."""
    answer: Fixed | None = None
    """Of what is empty or refused. A refused operation without one is a path that is not there."""

    @property
    def key(self) -> tuple[str, str]:
        return self.method, self.path


@dataclass(frozen=True, slots=True)
class ContractSection:
    title: str
    tag: str
    """Under which the OpenAPI document has its fixed answers."""
    rows: tuple[ContractRow, ...]
