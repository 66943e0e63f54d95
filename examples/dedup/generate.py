"""Makes the callbacks that the pipeline reads: `python examples/dedup/generate.py`.

All payments are of one hour, and ids are remembered for two: the result is the same in whichever order Spark reads the files.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
FILES = 4
PAYMENTS = 300


def generate(target: Path, seed: int = 2026) -> None:
    """Write callbacks/*.json to `target`; the same seed gives the same bytes."""
    draw = random.Random(seed)
    files: list[list[str]] = [[] for _ in range(FILES)]
    for n in range(PAYMENTS):
        paid_at = START + timedelta(seconds=draw.randrange(3600))
        line = json.dumps(
            {
                "payment_id": f"pay-{draw.getrandbits(32):08x}",
                "paid_at": paid_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "amount": f"{draw.randint(1, 500)}.{draw.randint(10, 99)}",
                "currency": draw.choice(("EUR", "USD")),
            }
        )
        # A third of the payments is reported again, in the same file or in any other.
        first = n * FILES // PAYMENTS
        for file in [first, *draw.choices(range(FILES), k=draw.choice((0, 0, 0, 0, 1, 3)))]:
            files[file].append(line)
    directory = target / "callbacks"
    directory.mkdir(parents=True, exist_ok=True)
    for n, lines in enumerate(files):
        draw.shuffle(lines)
        (directory / f"callbacks-{n}.json").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    generate(Path(__file__).parent / "data")
