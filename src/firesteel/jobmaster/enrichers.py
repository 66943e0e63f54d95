"""FailureEnrichers: labels on failures, for those who count, route or alert on them.

An enricher is a callable `(Failure) -> Mapping[str, str]`, registered under the entry point group
`firesteel.failure_enrichers` and named in `jobmanager.failure-enrichers`. It runs in a thread and its errors are logged, never
raised: a label is not worth a job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint, entry_points

from firesteel.errors import InvalidConfigError, Problem
from firesteel.failure import Failure, FailureKind

FailureEnricher = Callable[[Failure], Mapping[str, str]]
GROUP = "firesteel.failure_enrichers"
TIMEOUT_SECONDS = 5.0
logger = logging.getLogger(__name__)

_TYPES: Mapping[FailureKind, str] = {
    FailureKind.USER_CODE: "USER_ERROR",
    FailureKind.INVALID_PIPELINE: "USER_ERROR",
    FailureKind.IMPORT: "USER_ERROR",
    FailureKind.EXIT_CODE: "USER_ERROR",
    FailureKind.DATA: "DATA_ERROR",
    FailureKind.OUTPUT: "OUTPUT_ERROR",
    FailureKind.OUT_OF_MEMORY: "OUT_OF_MEMORY",
    FailureKind.ENGINE_LOST: "ENGINE_LOST",
    FailureKind.ENGINE_START: "ENGINE_LOST",
    FailureKind.WORKER_LOST: "WORKER_LOST",
    FailureKind.KILLED: "KILLED",
    FailureKind.INTERNAL: "INTERNAL",
}


def type_label(failure: Failure) -> Mapping[str, str]:
    """Firesteel's own enricher: whose fault the failure was, as one word."""
    return {"type": _TYPES[failure.kind]}


def load_enrichers(names: Sequence[str]) -> tuple[FailureEnricher, ...]:
    """Firesteel's own enricher, then those that the configuration names."""
    found = {e.name: e for e in entry_points(group=GROUP)}
    missing = [n for n in names if n not in found]
    if missing:
        there = ", ".join(sorted(found)) or "none"
        raise InvalidConfigError(
            [
                Problem(
                    f"no failure enricher '{name}' is installed (installed: {there})",
                    f"install the package that registers it under the entry point group {GROUP}, or remove it",
                    field="jobmanager.failure-enrichers",
                )
                for name in missing
            ]
        )
    return (type_label, *(_loaded(found[n]) for n in names))


def _loaded(entry: EntryPoint) -> FailureEnricher:
    try:
        enricher: FailureEnricher = entry.load()
    except Exception as error:
        problem = Problem(
            f"the failure enricher '{entry.name}' cannot be loaded: {type(error).__name__}: {error}",
            "fix the package that registers it, or remove it from the list",
            field="jobmanager.failure-enrichers",
        )
        raise InvalidConfigError([problem]) from error
    return enricher


def _contained(enricher: FailureEnricher, failure: Failure) -> Mapping[str, str]:
    """Call an enricher; one that exits must not end this process."""
    try:
        return enricher(failure)
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise RuntimeError(f"the enricher tried to exit: {error!r}") from error


class FailureEnrichers:
    """Enrichers, with threads of their own: one that hangs keeps its thread, and must not keep those of the stores."""

    def __init__(self, enrichers: Sequence[FailureEnricher]) -> None:
        self._enrichers = tuple(enrichers)
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="failure-enrichers")

    async def labels_of(self, failure: Failure) -> dict[str, str]:
        """All labels; where two enrichers use one key, the first has it."""
        labels: dict[str, str] = {}
        for enricher in self._enrichers:
            try:
                if enricher is type_label:
                    found = enricher(failure)
                else:
                    work = asyncio.get_running_loop().run_in_executor(self._threads, _contained, enricher, failure)
                    found = await asyncio.wait_for(work, TIMEOUT_SECONDS)
                labels = {str(k): str(v) for k, v in found.items()} | labels
            except Exception:
                logger.exception("failure enricher %r failed; its labels are missing", enricher)
        return labels

    def close(self) -> None:
        """End the threads; one that hangs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)
