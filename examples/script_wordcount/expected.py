"""What the program must compute, in plain Python."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path


def top_words(data: Path, top: int = 10, min_length: int = 1) -> list[tuple[str, int]]:
    """Most frequent first, equals by the alphabet."""
    words = re.findall(r"[a-z]+", (data / "text.txt").read_text("utf-8").lower())
    counts = Counter(w for w in words if len(w) >= min_length)
    return sorted(counts.items(), key=lambda c: (-c[1], c[0]))[:top]
