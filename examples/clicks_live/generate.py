"""Makes the products that the clicks are on: `python examples/clicks_live/generate.py`."""

from __future__ import annotations

import csv
import random
from pathlib import Path

CATEGORIES = {
    "camping": ("tent", "stove", "lantern", "hammock"),
    "kitchen": ("kettle", "pan", "knife", "board"),
    "tools": ("axe", "saw", "rope", "firesteel"),
}


def generate(target: Path, seed: int = 2026) -> None:
    """Write products.csv to `target`; the same seed gives the same bytes."""
    draw = random.Random(seed)
    products = [(product, category) for category, names in CATEGORIES.items() for product in names]
    target.mkdir(parents=True, exist_ok=True)
    with (target / "products.csv").open("w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(("product_id", "product", "category", "price"))
        for n, (product, category) in enumerate(products, start=1):
            writer.writerow((n, product, category, f"{draw.randint(5, 120)}.90"))


if __name__ == "__main__":
    generate(Path(__file__).parent / "data")
