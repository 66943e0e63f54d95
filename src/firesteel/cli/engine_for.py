"""The engine of a command that needs one: a running engine that fits, or one of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from firesteel.config import Configuration
from firesteel.engines.launcher import attach, healthy, start_engine, stop_engine
from firesteel.engines.record import EngineDirectory, EngineRecord
from firesteel.jobmaster.plan import RunPlan
from firesteel.worker.launch_options import launch_options


def acquire(plan: RunPlan, configuration: Configuration) -> EngineRecord:
    """Attach to an engine, reuse one or start one. Pass the result to `dispose`, which ends what was started here."""
    if plan.engine.attached:
        return attach(plan.engine.master, configuration.engine.token or "")
    directory = EngineDirectory(configuration.data.dir)
    if configuration.engine.reuse:
        for record in directory.alive():
            if record.shared and record.spec == plan.engine and healthy(record):
                return record
    return start_engine(directory, plan.engine, launch_options(configuration))


def dispose(engine: EngineRecord, configuration: Configuration) -> None:
    """Stop an engine that belongs to one run; leave those of others alone."""
    if not engine.shared and not engine.spec.attached:
        stop_engine(EngineDirectory(configuration.data.dir), engine, grace=configuration.engine.stop_timeout)


@contextlib.contextmanager
def engine_for(plan: RunPlan, configuration: Configuration) -> Iterator[EngineRecord]:
    engine = acquire(plan, configuration)
    try:
        yield engine
    finally:
        dispose(engine, configuration)
