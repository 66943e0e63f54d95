"""The same tests for both clients: blocking, and on an event loop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.client.fake_cluster import FakeCluster, Node, Switch, serving
from tests.client.twins import Twin

from firesteel.client import AsyncClusterClient, ClusterClient


@pytest.fixture(params=[ClusterClient, AsyncClusterClient], ids=["sync", "async"])
def twin(request: pytest.FixtureRequest) -> Iterator[Twin]:
    made = Twin(request.param)
    yield made
    made.close()


@pytest.fixture(scope="session")
def server() -> Iterator[tuple[Node, Switch]]:
    """One server for all tests: starting and stopping one takes longer than most of them."""
    switch = Switch()
    with serving(switch) as node:
        yield node, switch


@pytest.fixture
def fake() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def node(server: tuple[Node, Switch], fake: FakeCluster) -> Node:
    """Serves `fake`. A test that wants to stop a node makes one of its own."""
    node, switch = server
    switch.app = fake
    return node
