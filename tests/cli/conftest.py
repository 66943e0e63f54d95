"""Commands in this process, against servers that pretend to be clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import Command, isolated
from tests.client.fake_cluster import FakeCluster, Node, serving
from tests.rest.desk import ADMIN, Desk


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """`firesteel` with a data directory of its own, in which no cluster runs."""
    isolated(monkeypatch, tmp_path / "data")
    return Command(capfd)


@pytest.fixture
def fake() -> FakeCluster:
    """Answers as it is told to, and breaks when it is told to."""
    return FakeCluster()


@pytest.fixture
def node(fake: FakeCluster) -> Iterator[Node]:
    with serving(fake) as made:
        yield made


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """The REST application itself, over a Dispatcher that pretends."""
    return Desk(tmp_path / "cluster")


@pytest.fixture
def rest(desk: Desk) -> Iterator[Node]:
    with serving(desk.client(ADMIN).app) as made:
        yield made
