"""Makes the orders and customers that the pipeline reads: `python examples/orders/generate.py`."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

COUNTRIES = ("Austria", "Brazil", "Canada", "Denmark", "Estonia")
NAMES = ("Ada", "Bram", "Cleo", "Dora", "Emil", "Fay", "Gil", "Hana", "Ivo", "Juno")
SURNAMES = ("Adler", "Bright", "Costa", "Duarte", "Eriksen", "Frost", "Gallo", "Holm")
PRICES = ("4.99", "12.50", "19.90", "34.00", "79.95", "149.00")
STATUSES = ("paid", "shipped", "shipped", "shipped", "cancelled")
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)


def generate(target: Path, seed: int = 2026) -> None:
    """Write orders.csv and customers.csv to `target`; the same seed gives the same bytes."""
    draw = random.Random(seed)
    target.mkdir(parents=True, exist_ok=True)
    customers = [(1000 + n, f"{draw.choice(NAMES)} {draw.choice(SURNAMES)}", draw.choice(COUNTRIES)) for n in range(60)]
    orders = []
    for n in range(500):
        # Some orders are from customers that the shop has forgotten: they must not appear in the result.
        customer = draw.choice(customers)[0] if draw.random() > 0.03 else 9000 + n
        ordered_at = FIRST_DAY + timedelta(seconds=draw.randrange(90 * 24 * 3600))
        orders.append(
            (
                n + 1,
                customer,
                ordered_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
                draw.randint(1, 5),
                draw.choice(PRICES),
                draw.choice(STATUSES),
            )
        )
    _write(target / "customers.csv", ("customer_id", "name", "country"), customers)
    _write(
        target / "orders.csv",
        ("order_id", "customer_id", "ordered_at", "quantity", "unit_price", "status"),
        orders,
    )


def _write(file: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


if __name__ == "__main__":
    generate(Path(__file__).parent / "data")
