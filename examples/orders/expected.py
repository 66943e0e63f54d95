"""What the pipeline must compute, in plain Python."""

from __future__ import annotations

import csv
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple


class Revenue(NamedTuple):
    country: str
    month: str
    orders: int
    customers: int
    revenue: Decimal


class BestCustomer(NamedTuple):
    customer_id: int
    name: str
    country: str
    orders: int
    revenue: Decimal


class Sale(NamedTuple):
    customer_id: int
    name: str
    country: str
    month: str
    amount: Decimal


def revenue(data: Path) -> list[Revenue]:
    """Per country and month, in that order."""
    groups: dict[tuple[str, str], list[Sale]] = defaultdict(list)
    for sale in _sales(data):
        groups[sale.country, sale.month].append(sale)
    return [
        Revenue(country, month, len(sales), len({s.customer_id for s in sales}), _total(sales))
        for (country, month), sales in sorted(groups.items())
    ]


def best_customers(data: Path) -> list[BestCustomer]:
    """The ten with most revenue, best first."""
    groups: dict[tuple[int, str, str], list[Sale]] = defaultdict(list)
    for sale in _sales(data):
        groups[sale.customer_id, sale.name, sale.country].append(sale)
    rows = [BestCustomer(*key, len(sales), _total(sales)) for key, sales in groups.items()]
    return sorted(rows, key=lambda r: (-r.revenue, r.customer_id))[:10]


def _sales(data: Path) -> list[Sale]:
    customers = {c["customer_id"]: c for c in _read(data / "customers.csv")}
    return [
        Sale(
            int(o["customer_id"]),
            customers[o["customer_id"]]["name"],
            customers[o["customer_id"]]["country"],
            o["ordered_at"][:7],
            int(o["quantity"]) * Decimal(o["unit_price"]),
        )
        for o in _read(data / "orders.csv")
        if o["customer_id"] in customers and o["status"] != "cancelled"
    ]


def _total(sales: list[Sale]) -> Decimal:
    return sum((s.amount for s in sales), Decimal())


def _read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))
