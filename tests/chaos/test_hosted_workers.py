"""Workers on hosts of their own, jobs that verify themselves, and faults of whole hosts: a few rounds of the real thing.

`python -m tests.chaos.with_servers run --workers 4 --backend zookeeper` plays many more.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import needs
from tests.chaos.with_servers import hosted_stage

from firesteel_chaos.game import Game, play
from firesteel_chaos.invariants import Bounds, check
from firesteel_chaos.main import StageOptions
from firesteel_chaos.report import summary

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.xdist_group("hosts"),
    pytest.mark.timeout(900),
]

ISOLATION = 15.0
FAULTS = ("F27/crash-leader-host", "F27/crash-worker-host", "F28/cut-worker")


def test_hosts_are_lost_and_cut_off_and_no_row_is_lost_or_doubled(tmp_path: Path) -> None:
    """F27, F28: I2, I8, I9, I15, I27."""
    needs.hosts()
    needs.package("kazoo", "zookeeper")
    said: list[str] = []
    wish = StageOptions(tmp_path, "zookeeper", "", 2, 4.0, {}, None, 2, ISOLATION)
    with hosted_stage(wish) as stage:
        game = Game(
            root=tmp_path,
            history=tmp_path / "history.jsonl",
            seed=2,
            rounds=3,
            faults=FAULTS,
            streams=1,
            scripts=False,
            say=said.append,
        )
        events = play(game, stage)
    warm = next(event["seconds"] for event in events if event.kind == "warm")
    violations = check(events, bounds=Bounds(isolation=ISOLATION, engine_start=warm))
    found = summary(events, violations)
    assert found.good, found.to_text()
    assert found.rows > 0
    assert {event["name"] for event in events if event.kind == "fault"} == {"F27", "F28"}, said
