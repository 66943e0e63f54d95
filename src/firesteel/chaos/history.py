"""What happened in a run, written down outside the cluster, where no crash of a node can take it back.

One JSON object a line: when (seconds since the run began, by one clock), what kind, and the particulars. The kinds:

| kind | particulars |
|---|---|
| `call` | `id`, `client`, `what` (submit, cancel, stop, savepoint, status, result, list, upload), `job`, `args` |
| `answer` | `id` of the call, `outcome` (ok, refused, unknown), `value` or `error` |
| `job` | `job`, `load` (batch, streaming, script), `digest`: a job that is meant to exist from its first call on |
| `fault`, `healed` | `id`, `name` (F1 …), `what`, `target` |
| `driver` | `job`, `attempt`, `pid`, `started`, `alive` |
| `query` | `job`, `attempt`, `runs`: run id of each streaming query |
| `engine` | `engine`, `pid`, `started`, `alive` |
| `node` | `node`, `pid`, `alive`, `rss_kb`, `descriptors`, `threads` |
| `leader` | `node` that was asked, `epoch` and `address` that it named (null when it knew of none) |
| `store` | `epoch`, `rows` by first part of their path: the store as seen from outside |
| `job-state` | `job`, `status`, `attempt`, `restarts`, `node` that said so |
| `output` | `job`, `expected`, `found`, `missing`, `repeated`: rows, counted by the reader of the output |
| `left` | `job` or null, `what`: something found after its job was cleaned up |
| `round` | `number`, `seed`, `plan` |
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Event:
    at: float
    kind: str
    data: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.data.get(key, default)


class History:
    """Appended to from any thread; each event is in the file when `record` returns."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        self._output = file.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._events: list[Event] = []

    def record(self, kind: str, **data: Any) -> Event:
        with self._lock:
            event = Event(round(time.monotonic() - self._began, 4), kind, data)
            self._output.write(json.dumps({"at": event.at, "kind": kind, **data}) + "\n")
            self._output.flush()
            self._events.append(event)
        return event

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    def events(self) -> list[Event]:
        with self._lock:
            return list(self._events)

    def close(self) -> None:
        self._output.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_history(file: Path) -> list[Event]:
    """The events of a run that was written down before. A last line that was cut off is passed over."""
    return list(_parse(file.read_text(encoding="utf-8").splitlines()))


def _parse(lines: Iterable[str]) -> Iterator[Event]:
    for line in lines:
        try:
            data = json.loads(line)
        except ValueError:
            continue
        yield Event(data.pop("at"), data.pop("kind"), data)
