"""Fixtures for pytest. Enable them in `conftest.py` with `pytest_plugins = ["firesteel.testing.fixtures"]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pytest

from firesteel.testing import pipelines
from firesteel.testing.mini_cluster import MiniCluster


@pytest.fixture(scope="session")
def firesteel_options() -> Mapping[str, str]:
    """The options of `firesteel_cluster`. Override this fixture to set some."""
    return {}


@pytest.fixture(scope="session")
def firesteel_cluster(firesteel_options: Mapping[str, str]) -> Iterator[MiniCluster]:
    """A cluster for all tests of a run, with a shared engine."""
    with MiniCluster(firesteel_options) as cluster:
        yield cluster


@pytest.fixture
def run_pipeline(firesteel_cluster: MiniCluster) -> Callable[..., pipelines.PipelineRun]:
    """`firesteel.testing.run_pipeline` on the cluster of this run."""
    return partial(pipelines.run_pipeline, firesteel_cluster)
