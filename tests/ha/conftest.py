"""Servers that tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.needs import missing
from tests.support import kubernetes as kubernetes_server
from tests.support.postgresql import HOW_TO_GET_IT, PostgreSqlServer, binaries, servers
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSqlServer]:
    """A server that tests may stop and start; whoever stops it starts it again."""
    if binaries() is None:
        missing("a PostgreSQL server", HOW_TO_GET_IT)
    with servers() as server:
        yield server


@pytest.fixture(scope="session")
def postgresql_url(request: pytest.FixtureRequest) -> str:
    """Any database, which others may use too: each test has a cluster id of its own."""
    given = os.environ.get("FIRESTEEL_TEST_POSTGRESQL_URL")
    if given:
        return given
    server: PostgreSqlServer = request.getfixturevalue("postgresql")
    return server.url


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[kubernetes_server.KubernetesServer]:
    """An API server that tests may stop and start; whoever stops it starts it again."""
    if kubernetes_server.binaries() is None:
        missing("a kube-apiserver with etcd", kubernetes_server.HOW_TO_GET_IT)
    with kubernetes_server.server() as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One server for all; those who stop or pause servers have their own."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
