"""The plan of a frame as Spark has analysed it, for a stream that has not begun."""

from __future__ import annotations

from typing import Any


def analysed(frame: Any) -> str | None:
    """What `explain(extended=True)` prints; None where it is not available. Nothing is run."""
    try:
        text: str = frame._explain_string(extended=True)
    except Exception:  # this is only additional information: any error in the frame shows when the query starts
        return None
    return text
