"""Suggestions for misspelt words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

SUGGESTIONS = 20
"""The most problems of one pipeline that come with a suggestion."""
LISTED = 40
"""The most words that a message lists."""


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that `word` was probably meant to be, if any is close; case does not count."""
    by_lower = {c.lower(): c for c in choices}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def suggest(word: str, choices: Iterable[str], otherwise: str) -> str:
    """`did you mean 'x'?`, or `otherwise` when nothing is close."""
    return suggestion(nearest(word, choices), otherwise)


def suggestion(match: str | None, otherwise: str) -> str:
    return f"did you mean '{match}'?" if match else otherwise


class Spelling:
    """Suggestions for the first problems of one pipeline. Each costs a pass over all choices (S25)."""

    def __init__(self, limit: int = SUGGESTIONS) -> None:
        self._left = limit

    def nearest(self, word: str, choices: Iterable[str]) -> str | None:
        """A suggestion from the function of the same name; None once there were enough."""
        if self._left <= 0:
            return None
        self._left -= 1
        return nearest(word, choices)

    def suggest(self, word: str, choices: Iterable[str], otherwise: str) -> str:
        return suggestion(self.nearest(word, choices), otherwise)


def listed(words: Iterable[str]) -> str:
    """The words, separated by commas; if there are very many, only the first ones."""
    first = list(islice(words, LISTED + 1))
    return ", ".join(first) if len(first) <= LISTED else f"{', '.join(first[:LISTED])} and others"
