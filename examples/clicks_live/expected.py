"""What the pipeline must compute, in plain Python.

When the clicks happen is known only to Spark's clock, but the source counts them from 0 in the order of time. So windows
one after the other hold the next so many clicks, and how many is the rate times the length of the window.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple


class Click(NamedTuple):
    click_id: int
    bought: bool
    product: str
    category: str
    price: Decimal


class Count(NamedTuple):
    clicks: int
    bought: int
    revenue: Decimal


def click(data: Path, click_id: int) -> Click:
    chance = (click_id % 10007) ** 2 * 31 % 10007
    product = _products(data)[chance % 12 + 1]
    return Click(click_id, chance % 5 == 0, product["product"], product["category"], Decimal(product["price"]))


def counts(data: Path, click_ids: Iterable[int]) -> dict[str, Count]:
    """What a window with these clicks says of each category."""
    found: dict[str, Count] = {}
    for c in (click(data, i) for i in click_ids):
        before = found.get(c.category, Count(0, 0, Decimal()))
        revenue = before.revenue + (c.price if c.bought else 0)
        found[c.category] = Count(before.clicks + 1, before.bought + c.bought, revenue)
    return found


def _products(data: Path) -> Mapping[int, Mapping[str, str]]:
    with (data / "products.csv").open(newline="", encoding="utf-8") as f:
        return {int(p["product_id"]): p for p in csv.DictReader(f)}
