"""The plan of a frame as Spark has analysed it, for a stream that has not begun."""

from __future__ import annotations

from typing import Any


def analysed(frame: Any) -> str | None:
    """What `explain(extended=True)` prints; None where it cannot be had. Nothing is run."""
    try:
        text: str = frame._explain_string(extended=True)
    except Exception:  # it is one more look, and whatever is wrong with the frame shows when the query starts
        return None
    return text
