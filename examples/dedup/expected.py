"""What the pipeline must compute, in plain Python."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple


class Payment(NamedTuple):
    payment_id: str
    paid_at: datetime
    amount: Decimal
    currency: str


def payments(data: Path) -> list[Payment]:
    """Each once, by id."""
    return sorted(set(callbacks(data)))


def callbacks(data: Path) -> list[Payment]:
    """Everything that was sent, repeats included."""
    out = []
    for file in sorted((data / "callbacks").glob("*.json")):
        for line in file.read_text("utf-8").splitlines():
            p = json.loads(line)
            paid_at = datetime.fromisoformat(p["paid_at"])
            out.append(Payment(p["payment_id"], paid_at, Decimal(p["amount"]), p["currency"]))
    return out
