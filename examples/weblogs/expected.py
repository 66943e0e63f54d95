"""What the pipeline must compute, in plain Python."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

LINE = re.compile(r'(\S+) \S+ \S+ \[([^]]+)] "[A-Z]+ (\S+) [^"]*" (\d{3}) \d+ "[^"]*" "([^"]*)"')


class Visit(NamedTuple):
    ip: str
    agent: str
    visit: int
    started_at: datetime
    seconds: int
    requests: int
    errors: int
    landing_page: str
    exit_page: str
    day: date


class _Request(NamedTuple):
    at: datetime
    page: str
    status: int


def visits(data: Path, gap_minutes: int = 30) -> list[Visit]:
    """By visitor and number."""
    by_visitor: dict[tuple[str, str], list[_Request]] = defaultdict(list)
    for line in (data / "access.log").read_text("utf-8").splitlines():
        match = LINE.fullmatch(line)
        if match and "bot" not in line.lower():
            ip, at, page, status, agent = match.groups()
            when = datetime.strptime(at, "%d/%b/%Y:%H:%M:%S %z").astimezone(UTC)
            by_visitor[ip, agent].append(_Request(when, page, int(status)))
    found = []
    for (ip, agent), requests in sorted(by_visitor.items()):
        for number, visit in enumerate(_cut(sorted(requests), gap_minutes * 60), start=1):
            first, last = visit[0], visit[-1]
            seconds = int((last.at - first.at).total_seconds())
            errors = sum(r.status >= 400 for r in visit)
            found.append(
                Visit(ip, agent, number, first.at, seconds, len(visit), errors, first.page, last.page, first.at.date())
            )
    return found


def _cut(requests: list[_Request], gap_seconds: int) -> list[list[_Request]]:
    out: list[list[_Request]] = []
    for request in requests:
        if not out or (request.at - out[-1][-1].at).total_seconds() > gap_seconds:
            out.append([])
        out[-1].append(request)
    return out
