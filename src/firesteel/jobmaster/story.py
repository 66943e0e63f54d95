"""The story of a job: each state that it entered, when, why, in which attempt and under which leader. Pure.

It is a part of the job's record, so it outlives leaders. A cause names what happened, never what user code said: messages of
failures are in the exception history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.records import from_json, to_json
from firesteel.status import JobStatus

MOST_CHAPTERS = 100
"""A stream that is restarted for years has a story without end; the record of a job has not."""


@dataclass(frozen=True, slots=True)
class Chapter:
    at: float
    status: JobStatus
    """The status that the job entered."""
    cause: str
    attempt: int
    """The last attempt that had begun by then; 0 before the first."""
    epoch: int
    """The leader's epoch."""


@dataclass(frozen=True, slots=True)
class Story:
    chapters: tuple[Chapter, ...] = ()
    left_out: int = 0
    """Chapters before these, which are not kept."""

    def after(self, chapter: Chapter) -> Story:
        chapters = (*self.chapters, chapter)
        return Story(chapters[-MOST_CHAPTERS:], self.left_out + max(0, len(chapters) - MOST_CHAPTERS))

    @property
    def last(self) -> Chapter | None:
        return self.chapters[-1] if self.chapters else None

    def before_the_end(self) -> Story:
        """The story without an end that is not durable, and so has not happened (I5)."""
        ended = self.last is not None and self.last.status.terminal
        return Story(self.chapters[:-1], self.left_out) if ended else self

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Story:
        """Raises ValueError."""
        return from_json(data, Story)


NO_STORY = Story()


def story_makes_sense(data: object) -> bool:
    """Whether it is what `Story.to_json` writes (S17)."""
    try:
        from_json(data, Story)
    except ValueError:
        return False
    return True
