"""Tools to test what is built on Firesteel: a pipeline, a high-availability backend, a failure enricher, an engine provider.

The contract of high-availability backends is in `firesteel.testing.ha_contract`, fixtures are in `firesteel.testing.fixtures`;
these two need pytest. Firesteel itself uses none of it.
"""

from __future__ import annotations

from firesteel.testing.fakes import FakeEngines, FakeExecutor, fails, finishes, runs_on
from firesteel.testing.memory_ha import SteeredHighAvailabilityServices
from firesteel.testing.mini_cluster import MiniCluster
from firesteel.testing.pipelines import PipelineRun, run_pipeline
from firesteel.testing.virtual_time import StalledError, run_in_virtual_time

__all__ = [
    "FakeEngines",
    "FakeExecutor",
    "MiniCluster",
    "PipelineRun",
    "StalledError",
    "SteeredHighAvailabilityServices",
    "fails",
    "finishes",
    "run_in_virtual_time",
    "run_pipeline",
    "runs_on",
]
