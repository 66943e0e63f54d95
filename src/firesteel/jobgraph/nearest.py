"""Suggestions for misspelt words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that `word` was probably meant to be, if any is close; case does not count."""
    by_lower = {c.lower(): c for c in choices}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def suggest(word: str, choices: Iterable[str], otherwise: str) -> str:
    """`did you mean 'x'?`, or `otherwise` when nothing is close."""
    match = nearest(word, choices)
    return f"did you mean '{match}'?" if match else otherwise


def listed(words: Iterable[str]) -> str:
    return ", ".join(words)
