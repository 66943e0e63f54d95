"""What the program must compute, in plain Python."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

STOP_WORDS = {"the", "a", "and", "of", "in", "on", "with", "from"}


def index(data: Path) -> dict[str, list[str]]:
    """Each word with the documents that it is in, both by the alphabet."""
    found: dict[str, set[str]] = defaultdict(set)
    for file, words in _documents(data).items():
        for word in words:
            if word not in STOP_WORDS:
                found[word].add(file)
    return {word: sorted(files) for word, files in sorted(found.items())}


def words_read(data: Path) -> int:
    return sum(len(words) for words in _documents(data).values())


def _documents(data: Path) -> dict[str, list[str]]:
    files = (data / "documents").glob("*.txt")
    return {f.stem: re.findall(r"[a-z]+", f.read_text("utf-8").lower()) for f in files}
