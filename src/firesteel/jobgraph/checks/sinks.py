"""Checks of sinks: formats, places, modes, and whether a repeated attempt could write rows twice."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from itertools import combinations

from firesteel.durations import DURATION_PATTERN
from firesteel.jobgraph.formats import BatchCommit, Format, lookup
from firesteel.jobgraph.model import AVAILABLE_NOW, Delivery, OutputMode, SaveMode, Sink, Source
from firesteel.jobgraph.modes import CHECKPOINT_LOCATION, PARTITION_OVERWRITE, option, overwritten

from .context import Context
from .relations import misspelt


def check(c: Context) -> None:
    for v in c.graph.sinks:
        if v.foreach_batch:
            _foreach_batch(c, v)
        elif v.format is None:
            other = ", or foreach_batch" if c.streaming else ""
            c.add(v, "format", "is missing", f"add 'format: parquet' or another{other}")
        else:
            _format(c, v, lookup(v.format))
        _keys(c, v)
        _overwrite(c, v)
        if c.streaming:
            _streaming(c, v)
        else:
            _batch(c, v)
    _same_place(c)
    if not c.streaming:
        _overwritten_sources(c)


def _foreach_batch(c: Context, v: Sink) -> None:
    for field in ("format", "path", "table", "partition_by", "options"):
        if getattr(v, field):
            message = f"foreach_batch and {field} exclude each other: the function does the writing"
            c.add(v, field, message, "keep one of them")


def _format(c: Context, v: Sink, format_: Format) -> None:
    meant = misspelt(v.format or "")
    if meant:
        message = f"'{v.format}' is not one of Spark's own formats"
        c.add(v, "format", message, f"did you mean '{meant}'?", certain=False)
    if c.streaming and not format_.stream_write:
        c.add(v, "format", f"format '{v.format}' cannot be written by a stream", "use foreach_batch")
    if not c.streaming and not format_.batch_write:
        fix = "set 'mode: streaming' for the job" if format_.stream_write else "use another format"
        c.add(v, "format", f"format '{v.format}' cannot be written by a batch job", fix)
    if v.path and v.table:
        c.add(v, "table", "path and table exclude each other", "keep one of them")
    elif not format_.takes_place and (v.path or v.table):
        field = "path" if v.path else "table"
        fix = "give the table in options: {dbtable: ...}" if v.format == "jdbc" else "remove it"
        c.add(v, field, f"format '{v.format}' has no {field}", fix)
    elif (format_.needs_path or format_.upsert) and not v.path and not v.table:
        c.add(v, "path", f"is missing, and format '{v.format}' needs it", "add 'path: ...', or 'table: ...'")
    option = next((o for o in v.options if o.lower() == "path"), None)
    if option and (format_.needs_path or format_.upsert):
        c.add(v, ("options", option), "a path is a field, not an option", "write it as 'path: ...' beside options")
    if v.partition_by and not format_.takes_place:
        c.add(v, "partition_by", f"format '{v.format}' has no partitions", "remove partition_by")


def _keys(c: Context, v: Sink) -> None:
    if v.mode is not SaveMode.UPSERT:
        if v.keys:
            c.add(v, "keys", "is allowed only with 'mode: upsert'", "remove keys, or set 'mode: upsert'")
        return
    if not v.keys:
        c.add(
            v,
            "keys",
            "is missing, and 'mode: upsert' needs it",
            "add 'keys: [COLUMN]', the columns that identify a row",
        )
    if v.format is not None and not lookup(v.format).upsert:
        fix = "use delta or iceberg, or 'mode: overwrite'" if not c.streaming else "use delta, iceberg or foreach_batch"
        c.add(v, "mode", f"format '{v.format}' cannot upsert", fix)


def _overwrite(c: Context, v: Sink) -> None:
    """An overwrite that drops other partitions than those it writes is asked for by name."""
    if v.mode is not SaveMode.OVERWRITE:
        if v.overwrite is not None:
            c.add(v, "overwrite", "is allowed only with 'mode: overwrite'", "remove it, or set 'mode: overwrite'")
        return
    by_option = option(v, PARTITION_OVERWRITE)
    if v.overwrite is not None and by_option is not None:
        message = f"overwrite and the option {PARTITION_OVERWRITE} exclude each other"
        c.add(v, "overwrite", message, "keep one of them")
    elif v.overwrite is not None and not v.partition_by and not v.table:
        c.add(v, "overwrite", "is allowed only with partition_by", "remove it, or add partition_by")
    elif v.partition_by and overwritten(v) is None and option(v, "replaceWhere") is None and not c.streaming:
        c.add(
            v,
            "overwrite",
            "is missing, and 'mode: overwrite' with partition_by needs it",
            "add 'overwrite: dynamic' to replace only the partitions that get rows, "
            "or 'overwrite: all' to remove the others too",
        )


def _streaming(c: Context, v: Sink) -> None:
    if v.mode is SaveMode.OVERWRITE:
        fix = "use 'output_mode: complete', or foreach_batch"
        c.add(v, "mode", "a stream cannot overwrite its sink", fix)
    if v.mode in (SaveMode.ERROR, SaveMode.IGNORE):
        message = f"a stream appends to its sink; 'mode: {v.mode}' is for batch jobs"
        c.add(v, "mode", message, "remove it, or write 'mode: append'")
    if option(v, CHECKPOINT_LOCATION) == "":
        message = "is empty"
        c.add(v, ("options", CHECKPOINT_LOCATION), message, "give a directory, or remove the option")
    if v.trigger is not None and v.trigger != AVAILABLE_NOW and not re.fullmatch(DURATION_PATTERN, v.trigger):
        fix = f"write an interval such as 10 seconds, or {AVAILABLE_NOW}"
        c.add(v, "trigger", f"'{v.trigger}' is neither an interval nor {AVAILABLE_NOW}", fix)
    files = v.format is not None and lookup(v.format).commit is BatchCommit.STAGED_FILES
    if files and v.output_mode in (OutputMode.UPDATE, OutputMode.COMPLETE) and v.path:
        fix = "remove output_mode, or use foreach_batch"
        c.add(v, "output_mode", f"files can only be appended to, not written in mode {v.output_mode}", fix)


def _batch(c: Context, v: Sink) -> None:
    for field in ("trigger", "output_mode", "foreach_batch"):
        if getattr(v, field) is not None:
            fix = f"remove {field}, or set 'mode: streaming' for the job"
            c.add(v, field, "is for streaming jobs, and the job is batch", fix)
    if v.format is None or v.delivery is Delivery.AT_LEAST_ONCE:
        return
    format_ = lookup(v.format)
    if format_.commit is BatchCommit.NONE and format_.batch_write:
        what = f"format '{v.format}'"
    elif v.table and format_.commit is not BatchCommit.TRANSACTION_ID and format_.takes_place:
        what = f"a table of format '{v.format}'"
    else:
        return
    message = f"{what} cannot be written exactly once: a repeated attempt may write rows again"
    c.add(v, "delivery", message, "add 'delivery: at-least-once' if that is acceptable")


def _same_place(c: Context) -> None:
    for first, second in combinations(c.graph.sinks, 2):
        if first.table and second.table and first.table.lower() == second.table.lower():
            message = f"the sink '{first.name}' writes to the same table"
            c.add(second, "table", message, "give each sink a table of its own, or write one UNION")
        if first.path and second.path and _overlap(first.path, second.path):
            same = _segments(first.path) == _segments(second.path)
            message = (
                f"the sink '{first.name}' writes to {'the same path' if same else f'{first.path}, which overlaps'}"
            )
            c.add(second, "path", message, "give each sink a directory of its own")


def _overwritten_sources(c: Context) -> None:
    sources = [v for v in c.graph.vertices if isinstance(v, Source)]
    for sink in c.graph.sinks:
        if sink.mode is not SaveMode.OVERWRITE:
            continue
        for source in sources:
            if sink.path and source.path and any(_overlap(p, sink.path) for p in _without_braces(source.path)):
                message = f"overwrites what the source '{source.name}' reads"
                c.add(sink, "path", message, "write to another directory")
            if sink.table and source.table and sink.table.lower() == source.table.lower():
                c.add(sink, "table", f"overwrites what the source '{source.name}' reads", "write to another table")


def _segments(path: str) -> list[str]:
    path = re.sub(r"^file:(?://)?(?=/)", "", path)
    return [s for s in path.split("/") if s not in ("", ".")]


def _overlap(pattern: str, path: str) -> bool:
    """Whether one lies in the other; `pattern` may be a glob."""
    pairs = zip(_segments(pattern), _segments(path), strict=False)
    return all(fnmatch.fnmatchcase(s, p) for p, s in pairs)


def _without_braces(pattern: str) -> Iterator[str]:
    """`a/{b,c}` as `a/b` and `a/c`."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if not match:
        yield pattern
        return
    for choice in match[1].split(","):
        yield from _without_braces(pattern[: match.start()] + choice + pattern[match.end() :])
