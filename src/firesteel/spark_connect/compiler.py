"""Compiles a JobGraph to one lazy DataFrame per vertex on a Spark Connect session, and one plan per sink.

Spark optimises across vertices; what we cost is building the plan. A vertex with one reader is inlined into its reader's
plan without a round trip; a vertex with several becomes a view of the session, which the engine analyses once.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.connect.functions import count, lit

from firesteel.errors import InvalidPipelineError, Problem
from firesteel.jobgraph.model import (
    JobGraph,
    Mode,
    Python,
    Relation,
    RowMetrics,
    Sink,
    Source,
    Sql,
    inputs_of,
    spark_interval,
)
from firesteel.spark_connect.operation import error_class
from firesteel.spark_connect.query_text import as_query, in_own_lines
from firesteel.spark_connect.session import EngineSession

FunctionResolver = Callable[[str], Callable[..., Any]]
"""Maps `module:function` to the function. Only a driver process has one: it is user code."""

ROWS = "rows"
_MARK = "__firesteel_attempt"
_POSITION = re.compile(r"\bline (\d+),? pos(?:ition)? (\d+)")


@dataclass(slots=True)
class CompiledGraph:
    graph: JobGraph
    frames: dict[str, Any] = field(default_factory=dict)
    """Output of every source, sql and python vertex, input of every sink."""

    cached: list[Any] = field(default_factory=list)

    def release(self) -> None:
        """Release the memory of cached vertices, which the engine would keep forever."""
        for frame in self.cached:
            frame.unpersist()

    def schemas(self) -> dict[str, Any]:
        """The schema at each vertex, as Spark's analyser finds it."""
        return {name: frame.schema for name, frame in self.frames.items()}


def compile_graph(
    graph: JobGraph, session: EngineSession, resolve: FunctionResolver, *, mark: str = ""
) -> CompiledGraph:
    """Build the plans. Raises InvalidPipelineError with the vertex at fault when Spark's analyser objects.

    `mark` names the attempt: cached rows are found by plan, engine-wide, and must not be those of an earlier run over
    files that have changed since.
    """
    compiled = CompiledGraph(graph)
    for vertex in graph.topological():
        try:
            match vertex:
                case Source():
                    frame = _source(vertex, graph.mode, session.spark, resolve)
                case Sql():
                    frame = session.sql(as_query(vertex.query), _inlined(vertex, compiled))
                case Python():
                    frame = _python(vertex, compiled, session.spark, resolve)
                case Sink():
                    frame = compiled.frames[vertex.input]
                    compiled.frames[vertex.name] = (
                        frame.repartition(vertex.parallelism) if vertex.parallelism else frame
                    )
                    continue
                case _:
                    raise AssertionError("a script is not compiled")
            compiled.frames[vertex.name] = _finish(vertex, frame, compiled, session, mark)
        except InvalidPipelineError:
            raise
        except Exception as error:
            with contextlib.suppress(AttributeError):  # a class of the user's, without room for it
                error.firesteel_vertex = vertex.name  # type: ignore[attr-defined]
            raise locate(compiled, error, fallback=vertex.name) from error
    return compiled


def check(compiled: CompiledGraph) -> list[Problem]:
    """Have Spark analyse every vertex; each that it rejects is a problem, except those that only read a rejected
    one."""
    problems: list[Problem] = []
    bad: set[str] = set()
    for vertex in compiled.graph.topological():
        if isinstance(vertex, Sink) or vertex.name not in compiled.frames:
            continue
        upstream = _upstream(compiled.graph, vertex.name)
        if upstream & bad:
            continue
        try:
            _ = compiled.frames[vertex.name].schema
        except Exception as error:
            bad.add(vertex.name)
            problems.append(problem_of(compiled.graph, vertex.name, error))
    return problems


def locate(compiled: CompiledGraph, error: Exception, fallback: str) -> Exception:
    """The same error, attributed to the vertex that Spark's analyser rejects.

    A plan is analysed as a whole, so the error comes up at a sink or at a shared vertex; asking vertex by vertex finds
    where it was made. Errors that are not about the plan come back unchanged.
    """
    from pyspark.errors import AnalysisException

    if not isinstance(error, AnalysisException):
        return error
    found = check(compiled)
    return InvalidPipelineError(found or [problem_of(compiled.graph, fallback, error)])


def queries_of(graph: JobGraph) -> list[str]:
    """The queries of a graph as they were written, for `in_own_lines`."""
    return [v.query for v in graph.vertices if isinstance(v, Sql)]


def problem_of(graph: JobGraph, vertex: str, error: Exception) -> Problem:
    """What Spark rejects in a vertex: its first sentence, the position in the query, and a fix where one is known."""
    text = str(error).partition("\n\nJVM stacktrace")[0].strip()
    written = graph.by_name.get(vertex)
    text = in_own_lines(text, [written.query] if isinstance(written, Sql) else queries_of(graph))
    first, _, rest = text.partition("\n")
    del rest
    message = first.partition(" SQLSTATE")[0].rstrip(". ")
    kind = error_class(first)
    if (at := _POSITION.search(first)) is not None and isinstance(written, Sql):
        message += f" (line {at[1]}, column {int(at[2]) + 1} of the query)"
    field_name = "query" if kind.startswith(("PARSE", "UNRESOLVED", "TABLE_OR_VIEW", "DATATYPE")) else None
    return Problem(message or type(error).__name__, _fix(message, kind), vertex=vertex, field=field_name)


def _fix(message: str, kind: str) -> str:
    if kind.startswith("UNRESOLVED_ROUTINE") and (name := re.search(r"`([^`]+)`", message)):
        from pyspark.sql import functions

        near = difflib.get_close_matches(name[1].lower(), [n for n in dir(functions) if n[:1].islower()], n=1)
        return f"did you mean '{near[0]}'?" if near else ""
    if "data source: kafka" in message.lower():
        import pyspark

        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
        return f"add its package to spark.jars.packages: -Dspark.jars.packages={package}"
    return ""


def _upstream(graph: JobGraph, name: str) -> set[str]:
    found: set[str] = set()
    todo = [name]
    while todo:
        for i in inputs_of(graph.by_name[todo.pop()]):
            if i not in found:
                found.add(i)
                todo.append(i)
    return found


def registered_format(name: str, spark: Any, resolve: FunctionResolver) -> str:
    """Spark's name of a format; `module:Class` is a Python DataSource of the job, registered in its session."""
    if ":" not in name:
        return name
    source: Any = resolve(name)
    spark.dataSource.register(source)
    registered: str = source.name()
    return registered


def _source(vertex: Source, mode: Mode, spark: Any, resolve: FunctionResolver) -> Any:
    streaming = mode is Mode.STREAMING and not vertex.static
    reader = (spark.readStream if streaming else spark.read).format(registered_format(vertex.format, spark, resolve))
    if vertex.schema_:
        reader = reader.schema(vertex.schema_)
    reader = reader.options(**vertex.options)
    if vertex.table:
        return reader.table(vertex.table)
    return reader.load(vertex.path) if vertex.path else reader.load()


def _inlined(vertex: Sql, compiled: CompiledGraph) -> dict[str, Any]:
    """The inputs that are not views of the session, those furthest down first.

    While the server analyses an input, it makes and drops views of that input's own inputs. Going upstream, no name that
    was just made can be dropped by the next.
    """
    order = {v.name: n for n, v in enumerate(compiled.graph.topological())}
    inlined = sorted((i for i in vertex.inputs if not shared(compiled.graph, i)), key=lambda i: -order[i])
    return {i: compiled.frames[i] for i in inlined}


def shared(graph: JobGraph, name: str) -> bool:
    """Whether a vertex becomes a view of the session. Rows are only observed in what is part of the plan itself."""
    return len(graph.consumers[name]) > 1 and graph.settings.row_metrics is not RowMetrics.EXACT


def _python(vertex: Python, compiled: CompiledGraph, spark: Any, resolve: FunctionResolver) -> Any:
    import inspect

    function = resolve(vertex.function)
    inputs = [compiled.frames[i] for i in vertex.inputs]
    parameters = list(inspect.signature(function).parameters)
    if parameters[:1] == ["spark"]:
        inputs.insert(0, spark)
    frame = function(*inputs, **vertex.args)
    if not hasattr(frame, "_plan"):
        raise InvalidPipelineError(
            [
                Problem(
                    f"{vertex.function} returned {type(frame).__name__}, not a DataFrame",
                    "return the DataFrame that the next vertex reads",
                    vertex=vertex.name,
                    field="function",
                )
            ]
        )
    return frame


def _finish(vertex: Relation, frame: Any, compiled: CompiledGraph, session: EngineSession, mark: str) -> Any:
    """What every relation may ask for on top of its own work."""
    graph = compiled.graph
    if vertex.watermark:
        frame = frame.withWatermark(vertex.watermark.column, spark_interval(vertex.watermark.delay))
    if vertex.deduplicate:
        columns = list(vertex.deduplicate.columns)
        within = vertex.deduplicate.within_watermark
        frame = frame.dropDuplicatesWithinWatermark(columns) if within else frame.dropDuplicates(columns)
    if vertex.parallelism:
        frame = frame.repartition(vertex.parallelism)
    if graph.settings.row_metrics is RowMetrics.EXACT:
        frame = frame.observe(vertex.name, count(lit(1)).alias(ROWS))
    if vertex.cache and graph.mode is Mode.BATCH:
        frame = frame.withColumn(_MARK, lit(mark)).drop(_MARK).cache()
        compiled.cached.append(frame)
    if shared(graph, vertex.name):
        frame.createOrReplaceTempView(vertex.name)
        frame = session.spark.table(vertex.name)
    return frame
