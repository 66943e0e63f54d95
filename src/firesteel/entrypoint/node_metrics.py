"""The metrics of a node that do not depend on leadership, and the reporters that it sends all metrics to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Mapping

from firesteel import __version__
from firesteel.concurrency import OwnedTasks
from firesteel.config import Configuration
from firesteel.errors import InvalidConfigError, Problem
from firesteel.metrics.declarations import (
    CPU,
    DESCRIPTORS,
    INFO,
    LOOP_LAG,
    MAX_DESCRIPTORS,
    REPORTS,
    RESIDENT,
    STARTED,
    THREADS,
)
from firesteel.metrics.process import own_measures
from firesteel.metrics.registry import MetricRegistry
from firesteel.metrics.reporters import MetricReporter, ReporterSetup, load_reporters

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""How often the lag of the event loop is measured."""
CLOSE_SECONDS = 5.0
"""How long the last report may take when a node ends."""


@contextlib.asynccontextmanager
async def measuring(configuration: Configuration, registry: MetricRegistry) -> AsyncIterator[None]:
    """Keep the node's own metrics in the registry, and send all metrics to the reporters, while this is open.

    Raises InvalidConfigError for a reporter that does not exist.
    """
    setup = reporter_setup(configuration)
    reporters = await asyncio.to_thread(load_reporters, configuration.metrics.reporters, setup)
    registry.set(INFO, 1, setup.cluster_id, __version__)
    registry.set(STARTED, time.time())

    async def measure_process() -> None:
        for metric, value in (await asyncio.to_thread(own_measures)).items():
            registry.set(metric, value)

    tasks = OwnedTasks("metrics", lambda error: logger.error("collecting metrics failed: %s", error))
    with registry.collecting(measure_process, (CPU, DESCRIPTORS, MAX_DESCRIPTORS, RESIDENT, THREADS)):
        tasks.start(_watch_loop(registry), "event-loop")
        for name, reporter in reporters.items():
            tasks.start(_keep_reporting(registry, name, reporter, configuration.metrics.report_interval), name)
        try:
            yield
        finally:
            await tasks.close()
            await _part(registry, reporters)


def reporter_setup(configuration: Configuration) -> ReporterSetup:
    options = configuration.metrics
    headers = dict[str, str]()
    for text in filter(None, (options.otlp_headers or "").split(",")):
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            # The text may be a secret, so the message does not repeat it.
            problem = Problem(
                "a header has no name or no value",
                "write name=value pairs, separated by commas",
                field="metrics.otlp.headers",
            )
            raise InvalidConfigError([problem])
        headers[name] = value
    return ReporterSetup(
        cluster_id=configuration.high_availability.cluster_id,
        instance=f"{os.uname().nodename}:{os.getpid()}",
        version=__version__,
        otlp_endpoint=options.otlp_endpoint,
        otlp_headers=headers,
    )


async def _watch_loop(registry: MetricRegistry) -> None:
    while True:
        due = time.monotonic() + LOOK_SECONDS
        await asyncio.sleep(LOOK_SECONDS)
        registry.observe(LOOP_LAG, max(0.0, time.monotonic() - due))


async def _keep_reporting(registry: MetricRegistry, name: str, reporter: MetricReporter, interval: float) -> None:
    while True:
        await asyncio.sleep(interval)
        await _report(registry, name, reporter)


async def _report(registry: MetricRegistry, name: str, reporter: MetricReporter) -> None:
    await registry.collect()
    try:
        await asyncio.to_thread(reporter.report, registry.snapshot())
    except Exception as error:
        if not registry.value(REPORTS, name, "failed"):  # logged once; the counter shows the others
            logger.warning("the metric reporter '%s' failed: %s: %s", name, type(error).__name__, error)
        registry.count(REPORTS, name, "failed")
    else:
        registry.count(REPORTS, name, "sent")


async def _part(registry: MetricRegistry, reporters: Mapping[str, MetricReporter]) -> None:
    """Send a last report, waiting only for a moment, and close the reporters."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await asyncio.gather(*(_report(registry, name, reporter) for name, reporter in reporters.items()))
    for reporter in reporters.values():
        with contextlib.suppress(Exception):
            await asyncio.to_thread(reporter.close)
