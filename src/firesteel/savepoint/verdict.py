"""The verdict of comparing a savepoint with a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """Levels of compatibility, the best one first."""

    COMPATIBLE = "compatible"
    CHANGES = "compatible with changes"
    UNKNOWN = "unknown"
    NOT = "not compatible"


_RANK = tuple(Level)


@dataclass(frozen=True, slots=True)
class RestoreFinding:
    level: Level
    vertex: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    findings: tuple[RestoreFinding, ...]

    @property
    def level(self) -> Level:
        return max((f.level for f in self.findings), key=_RANK.index, default=Level.COMPATIBLE)

    @property
    def refusals(self) -> tuple[RestoreFinding, ...]:
        return tuple(f for f in self.findings if f.level is Level.NOT)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Verdict:
        return Verdict(tuple(RestoreFinding(Level(f["level"]), f["vertex"], f["text"]) for f in data["findings"]))

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.level.value,
            "findings": [{"level": f.level.value, "vertex": f.vertex, "text": f.text} for f in self.findings],
        }
