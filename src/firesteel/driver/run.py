"""Runs one attempt, from its spec to its result, inside a driver process."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from firesteel.attempts.attempt import AttemptDirectory, AttemptResult, AttemptSpec, AttemptState, EventLog, settings_of
from firesteel.attempts.bell import ring
from firesteel.attempts.harvest_budget import book_of, worth_counting
from firesteel.driver import artifacts, batch, interactive, script, streaming
from firesteel.driver.artifacts import resolve_by
from firesteel.driver.cancel import Cancelled, CancelSwitch
from firesteel.driver.failure import classify
from firesteel.driver.places import vertex_of
from firesteel.driver.stop import StopSwitch
from firesteel.driver.stream_facts import tell_edges
from firesteel.durations import seconds
from firesteel.engines.record import EngineRecord
from firesteel.errors import FiresteelError
from firesteel.failure import Failure, FailureKind
from firesteel.jobgraph.model import Interactive, Mode, ScriptApi, runs_user_code
from firesteel.metrics import jobs as job_metrics
from firesteel.processes import ProcessIdentity
from firesteel.spark_connect.compiler import CompiledGraph, compile_graph, locate, queries_of
from firesteel.spark_connect.leftovers import end_sessions
from firesteel.spark_connect.metrics import harvest
from firesteel.spark_connect.plain_session import begin_plainly
from firesteel.spark_connect.query_text import in_own_lines
from firesteel.spark_connect.session import EngineSession, quiet_client_logs

EXIT_CODES = {AttemptState.FINISHED: 0, AttemptState.FAILED: 1, AttemptState.CANCELED: 130}


TIDY_SECONDS = 10.0
"""How long a driver may tidy up after its result is written: an engine that hangs must not keep it."""


def take(args: dict[str, Any]) -> bool:
    """Become the driver of the attempt, before the process is confined: user code cannot write what is written here."""
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    directory = AttemptDirectory(Path(args["directory"]))
    _SPEC.clear()
    if not directory.take(me):
        return False
    with contextlib.suppress(FiresteelError):  # told where it is needed
        _SPEC.append(directory.read_spec())
    return True


_SPEC: list[AttemptSpec] = []
"""Of the attempt that was taken. It has secrets, and is not for the user that this process may become."""


def _spec_of(directory: AttemptDirectory) -> AttemptSpec:
    return _SPEC[0] if _SPEC else directory.read_spec()


def main(args: dict[str, Any]) -> int:
    """After `take`."""
    directory = AttemptDirectory(Path(args["directory"]))
    # A Ctrl-C reaches the whole terminal; the command that shows the job decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = EventLog(directory.events)
    job_metrics.OWN.begin(lambda values: log.emit("metrics", values=dict(values)))
    cancel = CancelSwitch()
    work = _Work(directory, log)
    _WORK.append(work)
    try:
        cancel.install()
        result = _run(work, cancel)
    except Cancelled:
        result = _record(directory, log, AttemptResult(AttemptState.CANCELED, ended_at=time.time()))
    except BaseException as error:
        failure = classify(error, work.place_of(error))
        failure = dataclasses.replace(failure, message=in_own_lines(failure.message, work.queries))
        if failure.traceback:
            sys.stderr.write(failure.traceback)
        result = _record(directory, log, AttemptResult(AttemptState.FAILED, failure, time.time()))
    return EXIT_CODES[result.state]


@dataclasses.dataclass(frozen=True)
class _Work:
    """What a process holds of its current attempt."""

    directory: AttemptDirectory
    log: EventLog
    over: threading.Event = dataclasses.field(default_factory=threading.Event)
    """For the threads that look after it."""
    queries: list[str] = dataclasses.field(default_factory=list)
    """Of its graph, once that is known."""

    def place_of(self, error: BaseException) -> str | None:
        """The vertex that an error came from; None when nothing tells."""
        try:
            return vertex_of(error, _spec_of(self.directory).graph)
        except FiresteelError:
            return None


_WORK: list[_Work] = []


def let_go() -> bool:
    """After a `main` that returned 0: whether this process has let go of the attempt and can run another."""
    work = _WORK.pop()
    work.over.set()
    if not work.directory.let_go():
        return False
    work.log.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return True


def _run(work: _Work, cancel: CancelSwitch) -> AttemptResult:
    spec = _spec_of(work.directory)
    work.queries.extend(queries_of(spec.graph))
    if spec.engine is not None:
        _watch_engine(spec.engine, work, spec.attempt.job_id)
    if spec.graph.script is not None:
        return _run_script(spec, work.log, work.directory)
    if spec.graph.interactive is not None:
        return _run_session(spec, spec.graph.interactive, work.log, work.directory)
    return _run_graph(spec, work.log, cancel, work.directory)


def _record(directory: AttemptDirectory, log: EventLog, result: AttemptResult) -> AttemptResult:
    """Write the result once; a second writer (the engine watch) finds it there and keeps quiet."""
    with _RESULT_LOCK:
        there = directory.read_result()
        if there is not None:
            return there
        directory.write_result(result)
    job_metrics.OWN.end()
    log.emit("result", state=result.state.value, failure=result.failure.to_json() if result.failure else None)
    with contextlib.suppress(ValueError):  # an attempt in a directory of another layout, which no node listens for
        ring(directory.jobs, directory.attempt)
    return result


_RESULT_LOCK = threading.Lock()


def _run_graph(spec: AttemptSpec, log: EventLog, cancel: CancelSwitch, directory: AttemptDirectory) -> AttemptResult:
    assert spec.engine is not None
    quiet_client_logs()
    log.emit("phase", phase="connecting")
    session = EngineSession(spec.remote())
    graph = spec.graph
    result = AttemptResult(AttemptState.FINISHED)
    compiled: CompiledGraph | None = None
    try:
        if graph.mode is Mode.BATCH and not runs_user_code(graph):
            begin_plainly(session, spec.engine)
        session.configure(settings_of(spec))
        artifacts.put_on_path(graph.settings.artifacts)
        artifacts.send(graph.settings.artifacts, session.spark)
        log.emit("phase", phase="compiling")
        began = time.perf_counter()
        compiled = compile_graph(graph, session, resolve_by(spec), mark=str(spec.attempt))
        log.emit("compiled", milliseconds=round((time.perf_counter() - began) * 1000, 1))
        try:
            if graph.mode is Mode.STREAMING:
                stop = StopSwitch(directory.stop_request)
                stop.install()
                end = streaming.run(spec, session, compiled, log, cancel, stop)
                result = dataclasses.replace(result, stopped=end.stopped, batches=end.batches)
            else:
                result = dataclasses.replace(result, rows=batch.run(spec, session, compiled, log, cancel))
        except Exception as error:
            raise locate(compiled, error, fallback=_sink_of(error)) from error
    except BaseException as error:
        with contextlib.suppress(Cancelled):
            _end_work(spec, directory, session, compiled, error)
        raise
    result = _record(directory, log, dataclasses.replace(result, ended_at=time.time()))
    # What follows tells more about a job that is done; nothing depends on it.
    with _leaving_after(TIDY_SECONDS, EXIT_CODES[result.state]):
        with contextlib.suppress(Exception):
            compiled.release()
            book = book_of(directory.jobs, spec.engine.engine_id)
            if graph.mode is Mode.BATCH and worth_counting(time.perf_counter() - began, book):
                tell_edges(graph, compiled.frames, log)
                directory.write_operators(harvest(spec.engine, spec.ids, graph))
        session.close()
    return result


def _end_work(
    spec: AttemptSpec,
    directory: AttemptDirectory,
    session: EngineSession,
    compiled: CompiledGraph | None,
    error: BaseException,
) -> None:
    """End what an attempt that fails or is cancelled has on its engine; what cannot be ended here is seen to later."""
    assert spec.engine is not None
    if compiled is None and isinstance(error, Exception) and not runs_user_code(spec.graph):
        # The engine has just refused the only operation that was started: there is nothing to look for.
        with contextlib.suppress(Exception):
            session.release()
            directory.released_by_driver.touch(mode=0o600)
        return
    if compiled is not None:
        session.interrupt()
        with contextlib.suppress(Exception):
            compiled.release()
    with contextlib.suppress(Exception):
        operations = [spec.ids.operation_id(sink.name) for sink in spec.graph.sinks]
        if end_sessions(spec.engine, {spec.ids.session_id: session}, operations):
            directory.released_by_driver.touch(mode=0o600)
        else:
            sys.stderr.write(
                "firesteel: Spark jobs of this attempt have not ended yet; the control plane will end them\n"
            )


def _sink_of(error: Exception) -> str:
    return getattr(error, "firesteel_sink", "") or "?"


def _run_script(spec: AttemptSpec, log: EventLog, directory: AttemptDirectory) -> AttemptResult:
    program = spec.graph.script
    assert program is not None
    artifacts.put_on_path(spec.graph.settings.artifacts)
    # Not when the process is started: what a process begins with can be read from outside.
    os.environ.update(spec.environment)
    if program.api is ScriptApi.NONE:
        log.emit("phase", phase="running", api="none")
        script.run_alone(program)
    elif spec.gateway is not None:
        log.emit("phase", phase="running", api="classic")
        script.run_classic(program, spec, Path(spec.gateway), directory)
    else:
        assert spec.engine is not None
        log.emit("phase", phase="running", api="connect")
        script.run_connect(program, spec, spec.engine, directory)
    return _record(directory, log, AttemptResult(AttemptState.FINISHED, ended_at=time.time()))


def _run_session(spec: AttemptSpec, vertex: Interactive, log: EventLog, directory: AttemptDirectory) -> AttemptResult:
    assert spec.engine is not None
    quiet_client_logs()
    log.emit("phase", phase="connecting")
    session = EngineSession(spec.remote())
    try:
        session.begin()
        session.configure(settings_of(spec))
        artifacts.send(spec.graph.settings.artifacts, session.spark)
        log.emit("phase", phase="running", api="connect")
        ending = interactive.keep(session, seconds(vertex.idle_timeout))
    except BaseException as error:
        with contextlib.suppress(Cancelled):
            _end_work(spec, directory, session, None, error)
        raise
    if ending is interactive.SessionEnd.IDLE:
        with contextlib.suppress(Exception):
            if end_sessions(spec.engine, {spec.ids.session_id: session}, ()):
                directory.released_by_driver.touch(mode=0o600)
    result = AttemptResult(AttemptState.FINISHED, ended_at=time.time(), note=ending.value)
    return _record(directory, log, result)


@contextlib.contextmanager
def _leaving_after(seconds: float, code: int) -> Iterator[None]:
    """End the process when the body takes longer than this."""
    limit = threading.Timer(seconds, os._exit, [code])
    limit.daemon = True
    limit.start()
    try:
        yield
    finally:
        limit.cancel()


def _watch_engine(engine: EngineRecord, work: _Work, job_id: str) -> None:
    """PySpark waits ten minutes for a server that is gone; we know at once when its process is."""
    process = engine.process
    if process is None:
        return

    def watch() -> None:
        while process.alive:
            if work.over.wait(0.5):
                return
        hint = (
            f"; `firesteel logs --engine {job_id[:8]}` has the end of its log" if engine.spec.owner is not None else ""
        )
        # The main thread may be about to report the same loss in more detail, or may just have finished.
        if work.over.wait(0.3):
            return
        failure = Failure(
            FailureKind.ENGINE_LOST, f"the Spark engine {engine.engine_id} (pid {process.pid}) is gone{hint}"
        )
        result = _record(work.directory, work.log, AttemptResult(AttemptState.FAILED, failure, time.time()))
        if result.failure is failure:
            os._exit(EXIT_CODES[AttemptState.FAILED])

    threading.Thread(target=watch, name="engine-watch", daemon=True).start()
