"""What a leader's registry is told when a report is due: jobs, streams, slots.

Nothing is kept up to date in between. The numbers of a stream or a script are read from the account that its driver keeps
anyway: a look at what has come to one file since the last one, in a thread, for each of them that runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from firesteel.attempts.committed import Committed
from firesteel.dispatcher.gateway import JobOverview
from firesteel.dispatcher.job_table import JobTable
from firesteel.dispatcher.services import DispatcherServices
from firesteel.errors import FiresteelError
from firesteel.jobgraph.model import Mode, inputs_of
from firesteel.jobmaster.measures import (
    OF_JOB,
    OF_STREAM,
    OF_VERTEX,
    job_measures,
    stream_measures,
    vertex_measures,
)
from firesteel.jobmaster.rows import io_of_vertices
from firesteel.jobmaster.runner import JobManagerRunner
from firesteel.metrics.declarations import (
    DECLARED,
    JOB_STATE,
    JOBS,
    RECOVERED_JOBS,
    SERIES_REFUSED,
    UNFINISHED_JOBS,
    USER_VALUE,
)
from firesteel.metrics.metric import Group, Metric
from firesteel.metrics.registry import Labels, label
from firesteel.resourcemanager.measures import engine_measures, resource_measures
from firesteel.resourcemanager.overview import NO_RESOURCES
from firesteel.status import JobStatus

logger = logging.getLogger(__name__)

TOGETHER = 16
"""Streams and programs whose files are looked at at a time."""

OF_ENGINE = tuple(metric for metric in DECLARED if metric.group is Group.ENGINE)
OF_EACH_JOB = (JOB_STATE, USER_VALUE, *OF_JOB, *OF_VERTEX, *OF_STREAM)
OF_LEADER = (JOBS, UNFINISHED_JOBS, RECOVERED_JOBS, *resource_measures(NO_RESOURCES), *OF_ENGINE, *OF_EACH_JOB)

Series = dict[Metric, dict[Labels, float]]


class DispatcherMeasures:
    """Owned by the Dispatcher, at whose table it looks."""

    def __init__(
        self,
        services: DispatcherServices,
        table: JobTable,
        list_jobs: Callable[[], Awaitable[Sequence[JobOverview]]],
    ) -> None:
        self._services = services
        self._table = table
        self._list_jobs = list_jobs

    def reporting(self) -> contextlib.AbstractContextManager[None]:
        """In it, the registry has the numbers of this leadership, and afterwards none of them."""
        return self._services.metrics.collecting(self.collect, OF_LEADER)

    async def collect(self) -> None:
        self._count_jobs(await self._list_jobs())
        for metric, value in resource_measures(self._services.resources.overview()).items():
            self._services.metrics.replace(metric, {(): value})
        await self._look_at_engines()
        await self._look_at_jobs()

    def _count_jobs(self, rows: Sequence[JobOverview]) -> None:
        counts = Counter(row.status for row in rows)
        registry = self._services.metrics
        registry.replace(JOBS, {(status.value,): counts[status] for status in JobStatus})
        registry.replace(UNFINISHED_JOBS, {(): sum(n for status, n in counts.items() if not status.terminal)})

    async def _look_at_engines(self) -> None:
        engines = self._services.resources.engines()
        measured = await asyncio.to_thread(lambda: [(e.engine_id, engine_measures(e, r)) for e, r in engines])
        series: Series = {metric: {} for metric in OF_ENGINE}
        for engine_id, measures in measured:
            for metric, value in measures.items():
                series[metric][(engine_id,)] = value
        self._replace(series)

    async def _look_at_jobs(self) -> None:
        """Of each job that has not ended; of many only the first ones, and it is counted how many are left out."""
        options = self._services.configuration.metrics
        live = self._table.live() if options.jobs else []
        if len(live) > options.max_jobs:
            self._services.metrics.count(SERIES_REFUSED, by=len(live) - options.max_jobs)
            live = live[: options.max_jobs]
        series: Series = {metric: {} for metric in OF_EACH_JOB}
        telling: list[JobManagerRunner] = []
        for runner in live:
            self._tell_of_job(runner, series)
            graph = runner.submission.graph
            if (graph.mode is Mode.STREAMING or graph.is_program) and runner.last_attempt is not None:
                telling.append(runner)
        for several in _parts(telling, TOGETHER):
            told = await asyncio.gather(*(self._progress(runner) for runner in several))
            for runner, progress in zip(several, told, strict=True):
                self._tell_of_progress(runner, progress, series)
        self._replace(series)

    def _replace(self, series: Series) -> None:
        for metric, values in series.items():
            self._services.metrics.replace(metric, values)

    def _tell_of_job(self, runner: JobManagerRunner, series: Series) -> None:
        job, state = _labels(runner), runner.shown
        since = state.timestamps.get(state.status.value, runner.submission.submitted_at)
        in_state = max(0.0, self._services.now() - since)
        for metric, value in job_measures(state.status, state.restarts, in_state).items():
            series[metric][job] = value
        series[JOB_STATE][(*job, state.status.value)] = 1

    async def _progress(self, runner: JobManagerRunner) -> Mapping[str, Any]:
        attempt = runner.last_attempt
        if attempt is None:
            return {}
        try:
            told = await self._services.executor.progress(attempt)
        except (FiresteelError, OSError) as error:
            logger.debug("how far %s is cannot be read: %s", attempt, error)
            return {}
        return runner.state.past.with_progress(attempt.number, told)

    def _tell_of_progress(self, runner: JobManagerRunner, progress: Mapping[str, Any], series: Series) -> None:
        job, now = _labels(runner), self._services.now()
        logs = progress.get("checkpoints") or {}
        for sink, told in (progress.get("sinks") or {}).items():
            log = Committed.from_json(logs[sink]) if sink in logs else Committed()
            for metric, value in stream_measures(told, log, now).items():
                series[metric][(*job, label(sink))] = value
        for vertex, io in io_of_vertices(_graph_of(runner, progress), {}).items():
            for metric, value in vertex_measures(io).items():
                series[metric][(*job, label(vertex))] = value
        for name, value in (progress.get("metrics") or {}).items():
            series[USER_VALUE][(*job, name)] = value


def _graph_of(runner: JobManagerRunner, progress: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the job's execution graph that row counts are made of."""
    state, graph = runner.shown, runner.submission.graph
    return {
        "mode": graph.mode.value,
        "status": state.status.value,
        "progress": progress,
        "attempt": state.attempt,
        "started_at": state.started_at,
        "timestamps": state.timestamps,
        "vertices": [{"name": v.name, "kind": v.kind, "inputs": list(inputs_of(v))} for v in graph.vertices],
        "graph": {
            "vertices": [{"name": v.name, "static": True} for v in graph.vertices if getattr(v, "static", False)]
        },
    }


def _labels(runner: JobManagerRunner) -> Labels:
    submission = runner.submission
    return (submission.job_id, label(submission.graph.name), label(submission.owner))


def _parts(runners: Sequence[JobManagerRunner], size: int) -> Iterator[Sequence[JobManagerRunner]]:
    for first in range(0, len(runners), size):
        yield runners[first : first + size]
