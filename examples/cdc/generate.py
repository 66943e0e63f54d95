"""Makes the change log that the pipeline reads: `python examples/cdc/generate.py`."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
OWNERS = ("Ada", "Bram", "Cleo", "Dora", "Emil", "Fay", "Gil", "Hana")
PLANS = ("free", "team", "business")
FILES = 3


def generate(target: Path, seed: int = 2026) -> None:
    """Write changes/*.json to `target`; the same seed gives the same bytes."""
    draw = random.Random(seed)
    changes = _history(draw)
    # The reader delivers some changes twice, and nothing in order.
    changes += draw.sample(changes, len(changes) // 20)
    draw.shuffle(changes)
    directory = target / "changes"
    directory.mkdir(parents=True, exist_ok=True)
    for n in range(FILES):
        lines = [json.dumps(c) for c in changes[n::FILES]]
        (directory / f"part-{n}.json").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def _history(draw: random.Random) -> list[dict[str, Any]]:
    """Ninety days of a table: accounts are opened, changed, closed, and some are opened again."""
    open_accounts: dict[int, dict[str, Any]] = {}
    closed: list[int] = []
    changes = []
    for lsn in range(1, 301):
        at = FIRST_DAY + timedelta(hours=7.2 * lsn)
        choice = draw.random()
        if not open_accounts or choice < 0.25:
            account = closed.pop() if closed and draw.random() < 0.5 else 100 + lsn
            row = {"owner": draw.choice(OWNERS), "plan": draw.choice(PLANS), "balance": f"{draw.randint(0, 9999)}.50"}
            op, open_accounts[account] = "insert", row
        elif choice < 0.85:
            account = draw.choice(list(open_accounts))
            row = {**open_accounts[account], "balance": f"{draw.randint(0, 9999)}.{draw.randint(10, 99)}"}
            if draw.random() < 0.3:
                row["plan"] = draw.choice(PLANS)
            op, open_accounts[account] = "update", row
        else:
            account = draw.choice(list(open_accounts))
            del open_accounts[account]
            closed.append(account)
            op, row = "delete", {}  # a delete carries the key only
        changed_at = at.strftime("%Y-%m-%dT%H:%M:%SZ")
        changes.append({"lsn": lsn, "op": op, "changed_at": changed_at, "account_id": account, **row})
    return changes


if __name__ == "__main__":
    generate(Path(__file__).parent / "data")
