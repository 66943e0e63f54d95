"""Making the class archive of this machine: start an engine that records, exercise it, and keep what it writes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from firesteel.engines.archive import archive_path
from firesteel.engines.java import class_path, find_java, spark_home
from firesteel.engines.launcher import LaunchOptions, remove, start_engine
from firesteel.engines.record import RECORD, EngineDirectory, EngineSpec
from firesteel.errors import EngineStartError
from firesteel.fs.files import tail
from firesteel.processes import end
from firesteel.worker.pool import DriverPool

TOUR_SECONDS = 600.0
"""How long the tour may take: half a minute on an idle machine, and minutes on one where everybody builds."""
WRITE_SECONDS = 120.0
"""How long Java may take to write the archive at its exit."""


def current_archive(options: LaunchOptions) -> Path:
    """Where the archive for this Java and this Spark is, or would be."""
    return archive_path(options.cache_dir, find_java(options.java_home), class_path(spark_home()))


def train(directory: EngineDirectory, options: LaunchOptions) -> Path:
    """Write the archive. Other archives in the cache, of older Javas or Sparks, go: they are 200 MB each."""
    target = current_archive(options)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="firesteel-train-"))
    recorded = scratch / target.name
    try:
        record = start_engine(directory, EngineSpec(master="local[2]"), options, record_archive=recorded)
        log = scratch / "tour.log"
        try:
            with DriverPool(python=options.python, log=log, passed=options.passed_variables) as pool:
                tour = pool.spawn(
                    "train",
                    {"engine": str(directory.home(record.engine_id) / RECORD), "scratch": str(scratch)},
                    stdout=log,
                    stderr=log,
                    cwd=scratch,
                )
                try:
                    status = tour.exited.result(timeout=TOUR_SECONDS).status
                except TimeoutError:
                    late = f"the tour of Spark did not end within {TOUR_SECONDS:g} s; try again when the machine is less busy"
                    raise EngineStartError(late, tail(log)) from None
            if status != 0:
                raise EngineStartError("the training run on Spark failed", tail(log))
        finally:
            assert record.process is not None
            end(record.process, grace=WRITE_SECONDS)
            written = tail(directory.log(record.engine_id))
            remove(directory, record.engine_id)
        if not recorded.exists():
            raise EngineStartError("Java wrote no class archive", written)
        for old in target.parent.iterdir():
            old.unlink()
        shutil.move(recorded, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target
