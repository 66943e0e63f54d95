"""A worker's isolation time is the one that leaders know, until one has heard of another."""

from __future__ import annotations

from pathlib import Path

from firesteel.worker.isolation import LeaderContact


def test_a_process_with_a_longer_time_keeps_to_the_shorter_one_until_a_leader_knows(tmp_path: Path) -> None:
    """I27: the leader gives the worker up after the time that it was told."""
    now = 100.0
    before = LeaderContact(tmp_path, 10.0, lambda: now)
    before.registered(100.0)
    contact = LeaderContact(tmp_path, 60.0, lambda: now)
    assert contact.left == 10.0
    contact.registered(100.0)
    assert contact.left == 60.0
    assert LeaderContact(tmp_path, 60.0, lambda: now).left == 60.0


def test_a_process_with_a_shorter_time_keeps_to_it_at_once(tmp_path: Path) -> None:
    LeaderContact(tmp_path, 60.0, lambda: 100.0).registered(100.0)
    assert LeaderContact(tmp_path, 10.0, lambda: 100.0).left == 10.0
