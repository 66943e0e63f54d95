"""The id of a worker: drawn once, kept, and the same for all who ask at once."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from firesteel.errors import EnvironmentNotReadyError
from firesteel.hosts import Host
from firesteel.worker import identity
from firesteel.worker.identity import WORKER_FILE, worker_id


def test_id_is_drawn_once_and_kept(tmp_path: Path) -> None:
    drawn = worker_id(tmp_path / "clusters" / "default")
    assert re.fullmatch("w[0-9a-f]{16}", drawn)
    assert worker_id(tmp_path / "clusters" / "default") == drawn
    assert worker_id(tmp_path / "clusters" / "other") != drawn
    home = tmp_path / "clusters" / "default"
    assert os.listdir(home) == [WORKER_FILE]
    assert (home / WORKER_FILE).stat().st_mode & 0o777 == 0o600


def test_two_that_draw_at_once_get_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All have seen that there is none before the first has written one."""
    count = 6
    barrier = threading.Barrier(count)
    link = os.link

    def link_together(source: Path, target: Path) -> None:
        barrier.wait(10)
        link(source, target)

    monkeypatch.setattr(os, "link", link_together)
    drawn: list[str] = []
    threads = [threading.Thread(target=lambda: drawn.append(worker_id(tmp_path))) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == count
    assert len(set(drawn)) == 1


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"id": 3}', '{"id": "../x"}'])
def test_damaged_file_is_no_reason_to_draw_another(tmp_path: Path, content: str) -> None:
    (tmp_path / WORKER_FILE).write_text(content)
    with pytest.raises(EnvironmentNotReadyError, match=re.escape(str(tmp_path / WORKER_FILE))):
        worker_id(tmp_path)
    assert (tmp_path / WORKER_FILE).read_text() == content


def test_hosts_that_share_a_directory_are_two_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of them runs, the other cannot see: it must not take it for its own."""
    here = worker_id(tmp_path)
    monkeypatch.setattr(identity, "this_host", lambda: Host("other-host", "another-machine", "b"))
    there = worker_id(tmp_path)
    assert there != here
    assert worker_id(tmp_path) == there
