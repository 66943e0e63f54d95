"""Checks of sources and queries: formats that fit the mode, schemas, SQL, watermarks."""

from __future__ import annotations

from firesteel.jobgraph.ddl import DdlError, column_names
from firesteel.jobgraph.formats import FORMATS, Format, lookup
from firesteel.jobgraph.model import AnyVertex, Interactive, JobGraph, Python, Script, Sink, Source, Sql, inputs_of
from firesteel.jobgraph.nearest import nearest, suggestion

from .context import Context

_INFERENCE = "spark.sql.streaming.schemaInference"


def check(c: Context) -> None:
    for v in c.graph.vertices:
        if isinstance(v, Source):
            _source(c, v)
        if isinstance(v, Sql):
            _sql(c, v)
        if not isinstance(v, Sink | Script | Interactive):
            _cache(c, v)
            _deduplicate(c, v)
    _some_stream(c)


def misspelt(format_: str) -> str | None:
    """The known format that an unknown one was probably meant to be. Third-party formats are close to none."""
    if format_ in FORMATS:
        return None
    match = nearest(format_, FORMATS)
    return match if match and abs(len(match) - len(format_)) <= 1 and len(match) > 2 else None


def _source(c: Context, v: Source) -> None:
    format_ = lookup(v.format)
    _readable(c, v, format_)
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
    if v.schema_ is not None:
        try:
            column_names(v.schema_)
        except DdlError as error:
            c.add(v, "schema", str(error), error.fix)
    elif c.streaming and not v.static and format_.needs_schema and v.path and not _inferred(c):
        message = f"is missing, and a stream of {v.format} files needs it"
        c.add(v, "schema", message, "add 'schema: id BIGINT, ...'")


def _inferred(c: Context) -> bool:
    return str(c.graph.settings.spark.get(_INFERENCE, "")).lower() == "true"


def _readable(c: Context, v: Source, format_: Format) -> None:
    meant = misspelt(v.format)
    if meant:
        message = f"'{v.format}' is not one of Spark's own formats"
        c.add(v, "format", message, f"did you mean '{meant}'?", certain=False)
    if not format_.batch_read and not format_.stream_read:
        c.add(v, "format", f"format '{v.format}' cannot be read", "use it only in a sink")
    elif c.streaming and v.static and not format_.batch_read:
        c.add(v, "static", f"format '{v.format}' can only be read as a stream", "remove static")
    elif c.streaming and not v.static and not format_.stream_read:
        c.add(
            v, "format", f"format '{v.format}' cannot be read as a stream", "add 'static: true' to read it as a table"
        )
    elif not c.streaming and not format_.batch_read:
        message = f"format '{v.format}' can only be read as a stream, and the job is batch"
        c.add(v, "format", message, "set 'mode: streaming' for the job")


def _sql(c: Context, v: Sql) -> None:
    from firesteel.jobgraph.sqltext import read_query

    query = read_query(v.query)
    if query.error:
        line = c.text_line(v, "query", query.error.line) if query.error.line else None
        where = f" (line {query.error.line}, column {query.error.column} of the query)" if query.error.line else ""
        fix = "write one SELECT" if query.error.certain else "check the query; Spark decides when it runs"
        message = (
            f"{'this is not a query' if query.error.certain else 'this may not be Spark SQL'}: {query.error.message}"
        )
        c.add(v, "query", message + where, fix, certain=query.error.certain, line=line)
        return
    reads = {n.lower() for n in query.reads}
    declared = {n.lower() for n in v.inputs}
    for name in query.reads:
        if not c.is_known(name) and name.lower() not in declared:
            others = (o.name for o in c.graph.vertices if not isinstance(o, Sink) and o is not v)  # looked at lazily
            meant = c.spelling.nearest(name, others)
            otherwise = f"add a vertex of that name, or write database.{name} for a table of the catalogue"
            c.add(v, "query", f"reads '{name}', which is not a vertex", suggestion(meant, otherwise))
            c.excused.add((meant or "").lower())
        elif name.lower() in c.names and name.lower() not in declared:
            c.add(v, "inputs", f"the query reads '{name}', which is not in inputs", f"add {name}, or remove inputs")
            c.excused.add(name.lower())
    for name in v.inputs:
        if name.lower() not in reads:
            c.add(v, "inputs", f"the query never reads '{name}'", f"remove {name}, or read it in the query")


def _cache(c: Context, v: Source | Sql | Python) -> None:
    if v.cache and c.streaming and not (isinstance(v, Source) and v.static):
        c.add(v, "cache", "a stream cannot be cached", "remove cache")


def _deduplicate(c: Context, v: Source | Sql | Python) -> None:
    if v.deduplicate is None or not v.deduplicate.within_watermark:
        return
    field = ("deduplicate", "within_watermark")
    if not c.streaming:
        c.add(v, field, "a batch job has no watermark", "remove within_watermark")
        return
    above = _upstream(c.graph, v.name)
    if not any(isinstance(u, Source | Sql | Python) and u.watermark for u in above):
        # A Python function may call withWatermark itself, where we cannot see it.
        certain = not any(isinstance(u, Python) for u in above)
        fix = "add 'watermark: {column: ..., delay: ...}' here or on an input"
        c.add(v, field, "neither this vertex nor one that it reads has a watermark", fix, certain=certain)


def _upstream(graph: JobGraph, name: str) -> list[AnyVertex]:
    """The vertex itself and everything that it reads, directly or not."""
    seen: dict[str, AnyVertex] = {}
    todo = [name]
    while todo:
        v = graph.by_name.get(todo.pop())
        if v is not None and v.name not in seen:
            seen[v.name] = v
            todo.extend(inputs_of(v))
    return list(seen.values())


def _some_stream(c: Context) -> None:
    if not c.streaming or c.partial or c.graph.is_program:
        return
    makes_stream = any(
        (isinstance(v, Source) and not v.static) or (isinstance(v, Python) and not v.inputs) for v in c.graph.vertices
    )
    if not makes_stream:
        static = [v.name for v in c.graph.vertices if isinstance(v, Source)]
        fix = f"remove 'static: true' from {' or '.join(static)}, or set 'mode: batch'" if static else "add a source"
        c.add_top("mode", "a streaming job needs a source that is a stream", fix)
