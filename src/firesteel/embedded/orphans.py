"""Jobs whose supervisor died: their driver and engine may still run. Cancelling one ends what is left, in order."""

from __future__ import annotations

import dataclasses
import time

from firesteel.config import Configuration
from firesteel.driver.attempt import AttemptState
from firesteel.embedded.jobs import JobDirectory
from firesteel.engines.launcher import stop_engine
from firesteel.engines.record import EngineDirectory
from firesteel.errors import FiresteelError
from firesteel.processes import end
from firesteel.sinks.graph import clear
from firesteel.status import JobStatus


def end_orphan(directory: JobDirectory, configuration: Configuration) -> None:
    """Ask the driver to end (it stops its work on the engine), then the engine, then record the result.

    A driver that finished unwatched has written its result; that one counts.
    """
    record = directory.load()
    if record.driver is not None:
        end(record.driver, grace=configuration.driver.cancel_timeout)
    engines = EngineDirectory(configuration.data.dir)
    engine = engines.load(record.engine_id) if record.engine_id else None
    if engine is not None and not engine.shared:
        stop_engine(engines, engine, grace=configuration.engine.stop_timeout)
    attempt = directory.attempt(max(record.attempt, 1))
    result = attempt.read_result()
    status = JobStatus(result.state.value) if result else JobStatus.CANCELED
    directory.save(dataclasses.replace(record, status=status, ended_at=time.time(), driver=None))
    finished = result is not None and result.state is AttemptState.FINISHED
    for sink, error in clear(directory.graph(), directory.job_id, finished=finished):
        raise FiresteelError(f"sink '{sink}': clean-up left files: {error}") from error
