"""Makes the access log that the pipeline reads: `python examples/weblogs/generate.py`."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

FIRST_DAY = datetime(2026, 3, 2, tzinfo=UTC)
DAYS = 3
PAGES = ("/", "/products", "/products/7", "/products/12", "/cart", "/checkout", "/help", "/about")
AGENTS = ("Firefox/148.0", "Chrome/146.0", "Safari/26.2")
ROBOT = "ExampleBot/2.1"
GAP_SECONDS = 30 * 60
BROKEN_LINES = ("-", "192.0.2.200 - - [02/Mar/2026:11:", "\x16\x03\x01 not HTTP at all")


class Request(NamedTuple):
    at: datetime
    ip: str
    page: str
    status: int
    agent: str

    def line(self) -> str:
        at = self.at.strftime("%d/%b/%Y:%H:%M:%S +0000")
        return f'{self.ip} - - [{at}] "GET {self.page} HTTP/1.1" {self.status} {512 + len(self.page) * 97} "-" "{self.agent}"'


def generate(target: Path, seed: int = 2026) -> None:
    """Write access.log to `target`; the same seed gives the same bytes."""
    draw = random.Random(seed)
    requests = _edge_cases()
    for n in range(20):
        # Two people behind one address are two visitors when their browsers differ.
        ip, agent = f"192.0.2.{n // 2 + 1}", AGENTS[n % 3]
        at = FIRST_DAY + timedelta(seconds=draw.randrange(8 * 3600))
        while at < FIRST_DAY + timedelta(days=DAYS):
            for _ in range(draw.randint(1, 6)):
                status = 200 if draw.random() > 0.08 else draw.choice((404, 500))
                requests.append(Request(at, ip, draw.choice(PAGES), status, agent))
                at += timedelta(seconds=draw.randint(5, 600))
            at += timedelta(seconds=draw.randint(GAP_SECONDS, 20 * 3600))
    requests += [
        Request(FIRST_DAY + timedelta(minutes=37 * n), "198.51.100.9", draw.choice(PAGES), 200, ROBOT)
        for n in range(40)
    ]
    lines = [r.line() for r in sorted(requests)]
    for n, broken in enumerate(BROKEN_LINES):
        lines.insert(50 * (n + 1), broken)
    target.mkdir(parents=True, exist_ok=True)
    (target / "access.log").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def _edge_cases() -> list[Request]:
    """A pause of exactly the gap does not end a visit, one second more does; a visit may go on past midnight."""
    noon, midnight = FIRST_DAY + timedelta(hours=12), FIRST_DAY + timedelta(days=1)
    pauses = (0, GAP_SECONDS, 2 * GAP_SECONDS + 1)
    return [
        *(Request(noon + timedelta(seconds=s), "203.0.113.1", "/cart", 200, AGENTS[0]) for s in pauses),
        Request(midnight - timedelta(minutes=5), "203.0.113.2", "/", 200, AGENTS[1]),
        Request(midnight + timedelta(minutes=5), "203.0.113.2", "/checkout", 200, AGENTS[1]),
    ]


if __name__ == "__main__":
    generate(Path(__file__).parent / "data")
