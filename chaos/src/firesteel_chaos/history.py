"""What happened in a run, written down outside the cluster, where no crash of a node can take it back.

One JSON object a line: when (seconds since the run began, by one clock), what kind, and the particulars. Whoever watches writes
down changes only, so the last event of a kind holds until the next one. The kinds:

| kind | particulars |
|---|---|
| `call` | `id`, `client`, `what` (submit, submit-other, cancel, stop, savepoint, status, result, list, upload), `job`, `args` |
| `answer` | `id` of the call, `outcome` (ok, refused, unknown), `value` or `error` |
| `job` | `job`, `load` (batch, streaming, script), `digest`, `plan`: a job that is meant to exist from its first call on |
| `fault`, `healed` | `id`, `name` (F1 …), `what`, `target`, `harms`: what may rightly suffer (drivers, store, …) |
| `driver` | `job`, `attempt`, `pid`, `started`, `alive`, `taken`, `over` (when), `by` (pid of its node) |
| `query` | `job`, `attempt`, `runs`: run id of each streaming query |
| `engine` | `engine`, `pid`, `started`, `alive` |
| `node` | `node`, `address`, `pid`, `alive`, `rss_kb`, `descriptors`, `threads` |
| `leader` | `node` that was asked, `epoch` and `address` that it named (null when none, or no answer), `asked` |
| `reach` | `ok`: whether the cluster, asked at all its addresses, answered for its jobs; `error` |
| `lag` | `seconds` that the observer was late: the machine had other things to do, the cluster may have waited too |
| `observer` | `thread`, `error`: the watch itself failed |
| `store` | `epoch`, `holder`, `rows` by first part of their path, as seen from outside; `error` when it could not be read |
| `stored` | `job`, `parts` (graphs, jobs, results), `digest`, `attempt`, `cancel`, `result` (status, dirty, …) |
| `write` | `node` (pid), `epoch`, `path`, `began`, `ended`, `outcome` (ok, fenced, …): as a wrapper inside the node saw it |
| `job-state` | `job`, `status`, `attempt`, `restarts`, `node` that said so, `asked` (when) |
| `run` | `job`, `number`, `pid`, `began`, `ended`, `digest`: a program's own diary, written from inside it |
| `output` | `job`, `expected`, `found`, `missing`, `repeated`: rows, counted by the reader of the output |
| `savepoint` | `job`, `path`, `present`: whether it can be started from, when it is looked at |
| `left` | `job` or null, `what`: something found after its job was cleaned up |
| `expectation` | `fault`, `what`, `held`, `invariant`: something that whoever made the fault saw to itself |
| `recovered` | `round`, `seconds` after the last fault was healed until the cluster answered; null when it did not |
| `game` | `seed`, `control`, `nodes`, `lease`, `engines`, `results`, `store`, `faults`: once, what is played |
| `note` | `fault`, `what` |
| `skipped` | `name`, `variant`, `why`: a fault that this cluster cannot have |
| `round` | `number`, `seed`, `plan` |
| `settled` | `open`: jobs that had not ended when the load was told to come to an end and given the time for it |
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

    def at(self, monotonic: float) -> float:
        """A moment of this host's monotonic clock, which all its processes share, as seconds since the run began."""
        return round(monotonic - self._began, 4)

    def at_wall(self, wall: float) -> float:
        """As `at`, of a time of this host's wall clock. As good as that clock: only for moments of now, such as of a file."""
        return self.at(time.monotonic() - (time.time() - wall))

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
