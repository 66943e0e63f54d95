"""Two processes never act for one worker at a time."""

from __future__ import annotations

from pathlib import Path

from firesteel.worker.one_process import acting_for


def test_the_second_one_is_told_and_may_when_the_first_has_ended(tmp_path: Path) -> None:
    with acting_for(tmp_path, "w1") as first:
        assert first
        with acting_for(tmp_path, "w1") as second:
            assert not second
        with acting_for(tmp_path, "w2") as other:
            assert other
    with acting_for(tmp_path, "w1") as next_one:
        assert next_one
