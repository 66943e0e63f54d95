"""The streaming examples, run on a real engine, give what plain Python computes."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from firesteel.jobgraph import load_pipeline
from firesteel.status import JobStatus

if TYPE_CHECKING:
    from tests.conftest import Cluster, Run
    from tests.examples.example_files import EXAMPLES, module, read_json, read_parquet, streamed_files
else:
    from example_files import EXAMPLES, module, read_json, read_parquet, streamed_files

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _finished(run: Run) -> None:
    assert run.result.status is JobStatus.FINISHED, f"{run.result.failure}\n{run.stderr}"


def _batches(events: list[dict[str, Any]], vertex: str) -> list[int]:
    return [e["batch"] for e in events if e["type"] == "batch" and e["vertex"] == vertex]


def _rows_read(run: Run) -> int:
    return sum(e["rows"] for e in run.events if e["type"] == "batch")


def _reaches(vertex: str, batch: int) -> Callable[[dict[str, Any]], bool]:
    return lambda e: e["type"] == "batch" and e["vertex"] == vertex and e["batch"] >= batch


def test_late_events_are_counted_or_dropped_as_the_page_of_the_example_says(tmp_path: Path) -> None:
    generate, expected = module("late_events", "generate"), module("late_events", "expected")
    generate.generate(tmp_path)
    outcome = expected.outcome(tmp_path)
    minutes_late = [m for file in (3, 5, 6) for m in generate.LATE[file]]
    assert len(outcome.dropped) == sum(m > 15 for m in minutes_late) == 3
    counted = sum(w.events for w in (*outcome.written, *outcome.open))
    assert counted == generate.FILES * generate.EVENTS_PER_FILE + sum(m <= 15 for m in minutes_late)
    assert {w.window_start for w in outcome.open} == {generate.START + timedelta(minutes=10 * n) for n in (6, 7)}


@pytest.mark.parametrize("order", ["as delivered", "newest first"])
def test_late_events(cluster: Cluster, tmp_path: Path, order: str) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    module("late_events", "generate").generate(data)
    files = sorted((data / "events").iterdir())
    if order == "newest first":
        for age, file in enumerate(files):
            os.utime(file, (1_700_000_000 - 60 * age,) * 2)
    run = cluster.run(EXAMPLES / "late_events" / "pipeline.yaml", {"data": str(data), "out": str(out)})
    _finished(run)
    outcome = module("late_events", "expected").outcome(data)
    assert outcome.written
    assert sorted(tuple(row.values()) for row in read_parquet(out / "counts")) == outcome.written
    assert _batches(run.events, "events_per_window")[: len(files)] == list(range(len(files)))
    assert _rows_read(run) == sum(len(f.read_text().splitlines()) for f in files)


def test_dedup(cluster: Cluster, tmp_path: Path) -> None:
    run = cluster.run(EXAMPLES / "dedup" / "pipeline.yaml", {"out": str(tmp_path)})
    _finished(run)
    expected, data = module("dedup", "expected"), EXAMPLES / "dedup" / "data"
    payments = expected.payments(data)
    assert sorted(tuple(row.values()) for row in read_parquet(tmp_path / "payments")) == payments
    assert len(payments) < len(expected.callbacks(data)), "there is nothing to deduplicate"
    assert set(_batches(run.events, "payments")) >= {0, 1, 2, 3}
    assert _rows_read(run) == len(expected.callbacks(data))


def test_clicks_live_runs_until_it_is_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    per_second, window = 60, timedelta(seconds=2)
    variables = {
        "out": str(tmp_path),
        "clicks_per_second": str(per_second),
        "window": f"{window.seconds} seconds",
        "lateness": "1 second",
        "every": "1 second",
    }
    graph = load_pipeline(EXAMPLES / "clicks_live" / "pipeline.yaml", variables=variables).graph
    running = cluster.start_graph(graph)
    # With a batch a second, three windows of two seconds have been passed by the watermark well before batch 9.
    running.wait_for(_reaches("clicks_per_category", 9))
    running.wait_for(_reaches("all_clicks", 3))
    running.job.cancel()
    run = running.ended()
    assert run.result.status is JobStatus.CANCELED, f"{run.result.failure}\n{run.stderr}"
    _check_clicks(tmp_path / "clicks")
    _check_counts(tmp_path / "clicks_per_category", per_second * window.seconds, window)


def _check_clicks(directory: Path) -> None:
    """Every click once and none left out, each with the product that it is on."""
    expected, data = module("clicks_live", "expected"), EXAMPLES / "clicks_live" / "data"
    seen = {}
    for file in streamed_files(directory):
        for row in read_json([file]):
            click = expected.Click(
                row["click_id"], row["bought"], row["product"], file.parent.name.removeprefix("category="), row["price"]
            )
            assert click.click_id not in seen
            seen[click.click_id] = click
    assert seen
    assert sorted(seen) == list(range(len(seen)))
    assert all(click == expected.click(data, click.click_id) for click in seen.values())


def _check_counts(directory: Path, per_window: int, length: timedelta) -> None:
    """Windows without a hole between them, each with the clicks that come next; only the first may be cut short."""
    expected, data = module("clicks_live", "expected"), EXAMPLES / "clicks_live" / "data"
    windows: dict[datetime, dict[str, Any]] = defaultdict(dict)
    for row in read_json(streamed_files(directory)):
        at = datetime.fromisoformat(row["window_start"])
        assert row["category"] not in windows[at], "a window was written twice"
        windows[at][row["category"]] = expected.Count(row["clicks"], row["bought"], row["revenue"])
    starts = sorted(windows)
    assert len(starts) >= 2
    assert all(b - a == length for a, b in pairwise(starts))
    begin = 0
    for n, start in enumerate(starts):
        end = begin + sum(c.clicks for c in windows[start].values())
        assert windows[start] == expected.counts(data, range(begin, end))
        assert end - begin == per_window or n == 0
        begin = end
