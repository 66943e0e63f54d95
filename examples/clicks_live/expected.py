"""What must hold of the output, in plain Python.

Clicks are made while the job runs, so nobody knows them before; but the counts must follow from the clicks that were
written, and those from the products.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Click(NamedTuple):
    click_id: int
    clicked_at: datetime
    bought: bool
    product: str
    category: str
    price: Decimal


class Count(NamedTuple):
    window_start: datetime
    category: str
    clicks: int
    bought: int
    revenue: Decimal


def products(data: Path) -> set[tuple[str, str, Decimal]]:
    """Name, category and price."""
    with (data / "products.csv").open(newline="", encoding="utf-8") as f:
        return {(p["product"], p["category"], Decimal(p["price"])) for p in csv.DictReader(f)}


def counts(clicks: Iterable[Click], window: timedelta) -> list[Count]:
    """By window and category."""
    groups: dict[tuple[datetime, str], list[Click]] = defaultdict(list)
    for click in clicks:
        groups[click.clicked_at - (click.clicked_at - EPOCH) % window, click.category].append(click)
    return [
        Count(start, category, len(c), sum(x.bought for x in c), sum((x.price for x in c if x.bought), Decimal()))
        for (start, category), c in sorted(groups.items())
    ]
