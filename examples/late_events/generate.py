"""Makes the deliveries that the pipeline reads: `python examples/late_events/generate.py`.

Spark reads files in the order of their modification times, and which events are late depends on that order. Git does not
keep the times, so run this once after a checkout.
"""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
ACTIONS = ("open", "search", "buy")
FILES = 8
EVENTS_PER_FILE = 40
LATE = {
    # file: how many minutes before the file's own ten minutes its latecomers happened
    3: (4, 9),  # within the watermark: counted
    5: (45, 50),  # long written: dropped
    6: (7, 55),  # one of each
}


def generate(target: Path, seed: int = 2026) -> None:
    """Write events/*.json to `target`, each file a minute older than the next; the same seed gives the same bytes."""
    draw = random.Random(seed)
    directory = target / "events"
    directory.mkdir(parents=True, exist_ok=True)
    event_id = 0
    for n in range(FILES):
        begin = START + timedelta(minutes=10 * n)
        # The last event of a delivery is always in its last seconds, so the watermark moves ten minutes per file.
        seconds = [draw.randrange(590) for _ in range(EVENTS_PER_FILE - 1)] + [595]
        times = [begin + timedelta(seconds=s) for s in seconds]
        times += [begin - timedelta(minutes=m) for m in LATE.get(n, ())]
        draw.shuffle(times)
        lines = []
        for at in times:
            event_id += 1
            happened_at = at.strftime("%Y-%m-%dT%H:%M:%SZ")
            lines.append(json.dumps({"event_id": event_id, "action": draw.choice(ACTIONS), "happened_at": happened_at}))
        file = directory / f"delivery-{n}.json"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
        delivered_at = (begin + timedelta(minutes=10)).timestamp()
        os.utime(file, (delivered_at, delivered_at))


if __name__ == "__main__":
    generate(Path(__file__).parent / "data")
