"""Runs batch graphs: every sink is staged first, and all become visible together at the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from firesteel.attempts.attempt import AttemptSpec, EventLog
from firesteel.driver import artifacts, foreign_files
from firesteel.driver.cancel import CancelSwitch
from firesteel.errors import OutputError, SupersededError
from firesteel.jobgraph.formats import BatchCommit, lookup
from firesteel.jobgraph.model import Mode, Overwrite, SaveMode, Sink
from firesteel.jobgraph.modes import PARTITION_OVERWRITE, save_mode
from firesteel.sinks import Begin, StagedFileSink
from firesteel.sinks.graph import staged
from firesteel.spark_connect.compiler import ROWS, CompiledGraph, registered_format
from firesteel.spark_connect.operation import OperationProgress
from firesteel.spark_connect.session import EngineSession

T = TypeVar("T")


def run(
    spec: AttemptSpec, session: EngineSession, compiled: CompiledGraph, log: EventLog, cancel: CancelSwitch
) -> dict[str, int]:
    """Write all sinks, then commit them. Returns exact rows per vertex where the graph asked for them."""
    rows: dict[str, int] = {}
    written: list[tuple[Sink, StagedFileSink]] = []
    log.emit("phase", phase="running")
    sinks = [(sink, staged(sink, spec.attempt.job_id, given_up=spec.given_up)) for sink in spec.graph.sinks]
    # All of them before Spark works for the first: one that must not be written to is known at once.
    number = spec.attempt.number
    begun = {s.name: opened(s, partial(files.begin, number)) for s, files in sinks if files is not None}
    for sink, files in sinks:
        if begun.get(sink.name, Begin.RUN) is not Begin.RUN:
            log.emit("sink", vertex=sink.name, state=_STATES[begun[sink.name]])
            continue
        try:
            command = _command(sink, spec, files, session, compiled.frames[sink.name])
            result = session.execute(command, spec.ids.operation_id(sink.name), partial(_progress, log, sink.name))
        except Exception as error:
            late = _superseded(files, number)
            (late or error).firesteel_sink = sink.name  # type: ignore[attr-defined]
            if late is not None:
                raise late from error
            raise
        rows |= {name: int(values[ROWS]) for name, values in result.observed.items() if values.get(ROWS) is not None}
        log.emit("sink", vertex=sink.name, state="written")
        if files is not None:
            written.append((sink, files))
    cancel.reached_commit()
    log.emit("phase", phase="committing")
    for sink, files in written:
        opened(sink, partial(files.commit, number))
        log.emit("sink", vertex=sink.name, state="committed")
    return rows


def opened(sink: Sink, work: Callable[[], T]) -> T:
    """Run an operation on the files of a sink with the owner's rights. Raises OutputError where the file system
    refuses."""
    try:
        return foreign_files.call(work)
    except OSError as error:
        raise OutputError(sink.name, sink.path or "", error) from error


def _superseded(files: StagedFileSink | None, attempt: int) -> SupersededError | None:
    """Whether Spark has failed because the files of an attempt that was given up were removed under its hands."""
    try:
        if files is not None:
            foreign_files.call(partial(files.check, attempt))
    except SupersededError as error:
        return error
    except Exception:
        return None  # what Spark says is the reason, then
    return None


_STATES = {Begin.ALREADY_COMMITTED: "already-committed", Begin.IGNORED: "ignored"}


def _command(sink: Sink, spec: AttemptSpec, files: StagedFileSink | None, session: EngineSession, frame: Any) -> Any:
    assert sink.format is not None
    if sink.mode is SaveMode.UPSERT:
        return _merge(sink, session, frame)
    options = dict(sink.options)
    kind = registered_format(sink.format, session.spark, artifacts.resolve_by(spec))
    writer = frame.write.format(kind).partitionBy(*sink.partition_by)
    if files is not None:
        options |= {
            # Version 2 saves a rename, but leaves the files of a task that died while it committed.
            "mapreduce.fileoutputcommitter.algorithm.version": "1",
            "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
            # The staging directory is always replaced whole; which partitions of the target go is our commit's matter.
            PARTITION_OVERWRITE: "static",
        }
        return session.write_command(
            writer.mode("overwrite").options(**options), path=files.staging_path(spec.attempt.number)
        )
    if lookup(sink.format).commit is BatchCommit.TRANSACTION_ID:
        # The same for every attempt: whichever commits first is the one, the table refuses the others.
        options |= {"txnAppId": f"firesteel-{spec.attempt.job_id}-{sink.name}", "txnVersion": "1"}
    if sink.overwrite is not None:
        options[PARTITION_OVERWRITE] = "dynamic" if sink.overwrite is Overwrite.DYNAMIC else "static"
    mode = save_mode(sink, Mode.BATCH).value
    return session.write_command(writer.mode(mode).options(**options), path=sink.path, table=sink.table)


def _merge(sink: Sink, session: EngineSession, frame: Any) -> Any:
    """Upsert as the table format's own MERGE, which gives the same table however often it runs."""
    view = f"__firesteel_upsert_{sink.name}"
    frame.createOrReplaceTempView(view)
    target = _table(sink.table) if sink.table else f"{sink.format}.{_quoted(sink.path or '')}"
    on = " AND ".join(f"t.{_quoted(k)} <=> s.{_quoted(k)}" for k in sink.keys)
    return session.sql_command(
        f"MERGE INTO {target} AS t USING {view} AS s ON {on} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")


def _table(name: str) -> str:
    """A table's name in SQL, quoted part by part, so that any text in it stays a name (S18)."""
    parts, rest = [], name
    while found := _PART.match(rest):
        parts.append(_quoted(found[1].replace("``", "`") if found[1] else found[2].strip()))
        rest = rest[found.end() :]
        if not rest.startswith("."):
            break
        rest = rest[1:]
    return ".".join(parts) if parts and not rest else _quoted(name)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _progress(log: EventLog, vertex: str, progress: OperationProgress) -> None:
    log.emit(
        "progress",
        vertex=vertex,
        tasks=sum(s.tasks for s in progress.stages),
        completed=sum(s.completed for s in progress.stages),
        running=progress.running_tasks,
        stages=len(progress.stages),
        stages_done=sum(s.done for s in progress.stages),
        bytes_read=sum(s.bytes_read for s in progress.stages),
    )
