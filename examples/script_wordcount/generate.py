"""Makes the text that the program reads: `python examples/script_wordcount/generate.py`."""

from __future__ import annotations

import random
from pathlib import Path

# fmt: off
WORDS = [
    "the", "a", "spark", "fire", "flint", "steel", "tinder", "wood", "dry", "wind", "night", "camp", "light", "warm",
    "glow", "ember", "ash", "smoke", "stone", "hand", "strike", "catch", "burn", "wait", "again", "until", "and", "of",
    "in", "on", "with", "from",
]
# fmt: on


def generate(target: Path, seed: int = 2026) -> None:
    """Write text.txt to `target`; the same seed gives the same bytes."""
    draw = random.Random(seed)
    # Some words are common and most are rare, as in any text.
    weights = [1 / (n + 1) for n in range(len(WORDS))]
    lines = []
    for _ in range(400):
        words = draw.choices(WORDS, weights, k=draw.randint(4, 12))
        lines.append(" ".join(words).capitalize() + draw.choice((".", "!", ", -", "")))
    target.mkdir(parents=True, exist_ok=True)
    (target / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    generate(Path(__file__).parent / "data")
