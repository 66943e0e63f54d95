"""Ends what an interrupted session leaves behind on its engine.

Spark interrupts the thread of an operation. One that is still planning may swallow that and start its job afterwards:
the operation is told as cancelled, its session can be released, and its job runs on for good, on cores that all jobs
share (seen with Spark 4.3, for interrupts in the first third of a second). Only the monitoring API still knows of it.
So code that ends the work of an attempt looks there, kills what it finds, and is satisfied only when no thread could
start anything more.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping

from firesteel.engines.api import EngineApi
from firesteel.engines.record import EngineRecord
from firesteel.spark_connect.session import EngineSession

_THREAD = "SparkConnectExecuteThread_opId="
PATIENCE_SECONDS = 3.0
POLL_SECONDS = 0.1
QUIET_SECONDS = 0.5
"""How long nothing must be seen: Spark hears of its own jobs a moment after they have started, and threads of its own pools,
which cannot be told apart, start stages for others that have ended."""


def end_leftovers(
    engine: EngineRecord, session_ids: Collection[str], operation_ids: Collection[str], *, quiet: float = QUIET_SECONDS
) -> bool:
    """End all jobs of these sessions; False when there may still be some after a few seconds.

    `operation_ids` are those that the sessions may have, as far as they can be known: their threads are waited for. An engine
    without a monitoring API is believed. Raises OSError when the API does not answer.
    """
    if not engine.ui_port:
        return True
    api = EngineApi(engine)
    deadline = time.monotonic() + PATIENCE_SECONDS + quiet
    quiet_since = time.monotonic()
    while True:
        # The threads first: what one of them has started before it ended will be seen among the jobs.
        planning = _threads(api) & set(operation_ids)
        jobs = _jobs(api, session_ids)
        if jobs or planning:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > quiet:
            return True
        if time.monotonic() > deadline:
            return False
        if jobs:
            # The first request for an engine's pages takes seconds.
            asked = time.monotonic()
            api.kill_jobs(jobs)
            deadline += time.monotonic() - asked
        time.sleep(POLL_SECONDS)


def end_sessions(
    engine: EngineRecord,
    sessions: Mapping[str, EngineSession],
    operation_ids: Collection[str],
    *,
    quiet: float = QUIET_SECONDS,
) -> bool:
    """End sessions, by id, with all that they run. False when something may still run; raises when one is not released."""
    for session in sessions.values():
        session.interrupt()
        # Ends streaming queries, which go on after an interrupt. Refused while an operation is between two of its states.
        with contextlib.suppress(Exception):
            session.release()
    ended = end_leftovers(engine, sessions, operation_ids, quiet=quiet)
    for session in sessions.values():
        session.release()
    return ended


def _threads(api: EngineApi) -> set[str]:
    """The operations that have a thread on the engine."""
    found = api.get("executors/driver/threads") or []
    names = (str(thread.get("threadName", "")) for thread in found)
    return {name.removeprefix(_THREAD) for name in names if name.startswith(_THREAD)}


def _jobs(api: EngineApi, session_ids: Collection[str]) -> list[int]:
    found = api.get("jobs", status="running") or []
    return [
        int(job["jobId"])
        for job in found
        if any(f"_Session_{session}_" in tag for session in session_ids for tag in job.get("jobTags", ()))
    ]
