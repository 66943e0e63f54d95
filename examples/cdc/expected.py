"""What the pipeline must compute, in plain Python: the log replayed in order."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

END = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)


class Account(NamedTuple):
    account_id: int
    owner: str
    plan: str
    balance: Decimal
    changed_at: datetime


def accounts(data: Path, as_of: datetime = END) -> list[Account]:
    """By account id."""
    log: list[dict[str, Any]] = []
    for file in (data / "changes").glob("*.json"):
        log += [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    table: dict[int, Account] = {}
    for change in sorted(log, key=lambda c: int(c["lsn"])):
        changed_at = datetime.fromisoformat(change["changed_at"])
        if changed_at > as_of:
            continue
        account = change["account_id"]
        if change["op"] == "delete":
            table.pop(account, None)
        else:
            table[account] = Account(account, change["owner"], change["plan"], Decimal(change["balance"]), changed_at)
    return sorted(table.values())
