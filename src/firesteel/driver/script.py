"""Runs a plain PySpark program as `python program.py` would, with a session that we choose."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from firesteel.attempts.attempt import AttemptDirectory, AttemptSpec, settings_of
from firesteel.driver import artifacts, gateway
from firesteel.engines.record import EngineRecord
from firesteel.jobgraph.model import Artifacts, Script
from firesteel.spark_connect import relative_paths
from firesteel.spark_connect.leftovers import end_leftovers
from firesteel.spark_connect.script_api import ARCHIVES
from firesteel.spark_connect.session import EngineSession


def run_connect(program: Script, spec: AttemptSpec, engine: EngineRecord, directory: AttemptDirectory) -> None:
    """The program gets a session on the shared engine through SPARK_REMOTE."""
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    os.environ["SPARK_REMOTE"] = spec.remote()
    settings = settings_of(spec)
    given = spec.graph.settings.artifacts
    beside = artifacts.beside(Path(program.file), given.py_files, directory.modules)
    if settings or beside or given != Artifacts():
        # The program will find the session as we leave it: it is named by the same id.
        session = EngineSession(os.environ["SPARK_REMOTE"])
        session.configure(settings)
        artifacts.send(given, session.spark)
        if beside:
            session.spark.addArtifacts(beside, pyfile=True)
    _accept_masters(SparkSession.Builder)
    _accept_masters(ConnectSession.Builder)
    _renew_session_after_stop(ConnectSession, spec, engine, directory)
    if engine.shares_files:
        relative_paths.for_connect(Path.cwd())
    try:
        _run(program)
    except BaseException:
        # Interrupted in the middle of something: what it was at may go on by itself.
        with contextlib.suppress(Exception):
            released = _release(ConnectSession)
            sessions = directory.session_ids(spec.ids)
            if end_leftovers(engine, sessions, ()) and released:
                directory.released_by_driver.touch(mode=0o600)
        raise
    if _release(ConnectSession):
        directory.released_by_driver.touch(mode=0o600)


def run_classic(program: Script, spec: AttemptSpec, home: Path, directory: AttemptDirectory) -> None:
    """The program gets a JVM of its own, as under spark-submit in client mode."""
    for name in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"):
        os.environ.pop(name, None)
    gateway.take(home)
    relative_paths.for_classic(Path.cwd())
    _ship_modules(program, spec, directory)
    _run(program)


def run_alone(program: Script) -> None:
    """The program uses no Spark: it submits jobs to the cluster that it runs in, which its environment names."""
    for name in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"):
        os.environ.pop(name, None)
    _run(program)


def _ship_modules(program: Script, spec: AttemptSpec, directory: AttemptDirectory) -> None:
    """Have SparkContext send the job's files to its workers, as `--py-files`, `--files` and `--archives` would."""
    from pyspark import SparkContext

    given = spec.graph.settings.artifacts
    modules = [m for p in given.py_files if (m := artifacts.shippable(Path(p)))]
    if beside := artifacts.beside(Path(program.file), given.py_files, directory.modules):
        modules.append(beside)
    if not (modules or given.files or given.archives):
        return
    original = SparkContext._do_init

    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for module in modules:
            self.addPyFile(module)
        for file in given.files:
            self.addFile(file)
        for archive in given.archives:
            self.addArchive(archive)

    SparkContext._do_init = initialise


def _run(program: Script) -> None:
    file = str(Path(program.file))
    sys.argv = [file, *program.args]
    sys.path.insert(0, file if Path(file).suffix in ARCHIVES else str(Path(file).parent))
    try:
        if program.module is not None:
            runpy.run_module(program.module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(file, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise


def _accept_masters(builder: Any) -> None:
    """Ignore the master that many programs name for a laptop: the engine is already chosen, and PySpark would
    refuse."""

    def master(self: Any, name: str) -> Any:
        sys.stderr.write(f"firesteel: master({name!r}) is ignored; the program runs on the engine it was given\n")
        return self

    builder.master = master


def _renew_session_after_stop(
    session_class: Any, spec: AttemptSpec, engine: EngineRecord, directory: AttemptDirectory
) -> None:
    """A stopped session's id can never be used again; a program that makes another session gets the next derived id."""
    original = session_class.stop
    count = 1

    def stop(self: Any) -> None:
        nonlocal count
        count += 1
        original(self)
        renewed = spec.ids.further_session_id(count)
        directory.note_session(renewed)
        os.environ["SPARK_REMOTE"] = spec.remote(renewed)

    session_class.stop = stop


def _release(session_class: Any) -> bool:
    """End the program's session with the program, as a driver's end would: queries it left running stop. True when the
    engine has confirmed it."""
    with contextlib.suppress(Exception):
        session = session_class.getActiveSession() or session_class._default_session
        if session is not None and not session.is_stopped:
            session.client.release_session()
            return True
    return False
