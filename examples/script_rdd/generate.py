"""Makes the documents that the program reads: `python examples/script_rdd/generate.py`."""

from __future__ import annotations

import random
from pathlib import Path

COMMON = ["the", "a", "and", "of", "in", "on", "with", "from", "fire", "light", "wood"]
RARE = [
    "flint",
    "steel",
    "tinder",
    "ember",
    "ash",
    "smoke",
    "stone",
    "spark",
    "glow",
    "moss",
    "birch",
    "hearth",
    "match",
]


def generate(target: Path, seed: int = 2026) -> None:
    """Write documents/*.txt to `target`; the same seed gives the same bytes."""
    draw = random.Random(seed)
    directory = target / "documents"
    directory.mkdir(parents=True, exist_ok=True)
    for n in range(12):
        topics = draw.sample(RARE, 4)
        sentences = [" ".join(draw.choices(COMMON + topics, k=draw.randint(5, 10))) for _ in range(10)]
        text = ".\n".join(s.capitalize() for s in sentences)
        (directory / f"note-{n:02}.txt").write_text(f"{text}.\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    generate(Path(__file__).parent / "data")
