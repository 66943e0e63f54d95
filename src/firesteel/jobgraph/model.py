"""JobGraph: what to run, as an immutable value with a versioned JSON form.

A graph is a DAG of vertices (source, sql, python, sink), or one `script` or `session` vertex. The models here define
the fields and their types; `validate` checks what must hold between fields and vertices. The same shape is read from
YAML, sent as JSON, and published as `job-graph.schema.json` for editors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from firesteel.durations import DURATION_PATTERN, seconds
from firesteel.status import CheckpointRetention
from firesteel.types import LABEL_PATTERN, RequiredSandbox

SCHEMA_VERSION: Literal[1] = 1

NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
"""Vertex names are the table names that SQL sees, so they are plain identifiers."""


def _as_text(value: Any) -> Any:
    """YAML writes `header: true` and `maxFiles: 3`; Spark options and settings are text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return value


Text = Annotated[str, BeforeValidator(_as_text)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Duration = Annotated[str, BeforeValidator(_as_text), Field(pattern=DURATION_PATTERN)]
FunctionRef = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
Positive = Annotated[int, Field(ge=1)]
Label = Annotated[str, Field(pattern=f"^{LABEL_PATTERN}$")]
LabelText = Annotated[str, BeforeValidator(_as_text), Field(pattern=f"^{LABEL_PATTERN}$")]


def spark_interval(duration: str) -> str:
    """A Duration in the spelling that Spark reads; it knows no `ms`, `min` or fractions."""
    return f"{round(seconds(duration) * 1000)} milliseconds"


class Mode(StrEnum):
    BATCH = "batch"
    STREAMING = "streaming"


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, use_enum_values=False)


class Resources(Model):
    """What a vertex needs from the engine it runs on. Either all vertices have it, or none."""

    cpu: Annotated[float, Field(gt=0)] = 1.0
    memory: Annotated[str, Field(pattern=r"^\d+[kmgt]$")] = "512m"


class Watermark(Model):
    """How late events may arrive: Spark's `withWatermark`."""

    column: str
    delay: Duration


class Deduplicate(Model):
    """Keep the first row of each key: `dropDuplicates`, or `dropDuplicatesWithinWatermark`."""

    columns: Annotated[tuple[str, ...], Field(min_length=1)]
    within_watermark: bool = False


class _Vertex(Model):
    name: Name
    description: str = ""
    parallelism: Positive | None = None
    """Partitions of this vertex's output (of a sink's input). Adds an exchange."""
    resources: Resources | None = None


class _Relation(_Vertex):
    """A vertex whose output is a DataFrame that others read."""

    watermark: Watermark | None = None
    deduplicate: Deduplicate | None = None
    cache: bool = False
    """Keep the rows for the other readers of this vertex within one attempt (batch only)."""


class Source(_Relation):
    kind: Literal["source"] = "source"
    format: str
    path: str | None = None
    table: str | None = None
    schema_: Annotated[str | None, Field(alias="schema")] = None
    """Columns as DDL: `id BIGINT, name STRING`."""
    options: Mapping[str, Text] = Field(default_factory=dict)
    static: bool = False
    """In a streaming job: read once as a table, for stream-static joins."""


class Sql(_Relation):
    kind: Literal["sql"] = "sql"
    query: str
    inputs: tuple[Name, ...] = ()


class Python(_Relation):
    kind: Literal["python"] = "python"
    function: FunctionRef
    """`module:function`, called with one DataFrame per input and the arguments by name."""
    inputs: tuple[Name, ...] = ()
    args: Mapping[str, JsonValue] = Field(default_factory=dict)


class SaveMode(StrEnum):
    """What happens to rows that are already at the place of a sink."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    UPSERT = "upsert"
    ERROR = "error"
    """Write only if the place is empty; otherwise the job fails."""
    IGNORE = "ignore"
    """Write only if the place is empty; otherwise leave it as it is."""


class Overwrite(StrEnum):
    DYNAMIC = "dynamic"
    """Replace only the partitions that get rows."""
    ALL = "all"


class OutputMode(StrEnum):
    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


class Delivery(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


AVAILABLE_NOW = "available-now"


class Sink(_Vertex):
    kind: Literal["sink"] = "sink"
    input: Name
    format: str | None = None
    path: str | None = None
    table: str | None = None
    mode: SaveMode | None = None
    """None until the graph is completed: then `error` for files of a batch job, else `append`."""
    overwrite: Overwrite | None = None
    """What `mode: overwrite` replaces where there are partitions."""
    keys: tuple[str, ...] = ()
    """Columns that identify a row, for `mode: upsert`."""
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, Text] = Field(default_factory=dict)
    output_mode: OutputMode | None = None
    trigger: str | None = None
    """Streaming: an interval such as `10 seconds`, or `available-now` to process the available data and end."""
    foreach_batch: FunctionRef | None = None
    """Streaming: `module:function(batch_df, batch_id)` in place of a format."""
    delivery: Delivery = Delivery.EXACTLY_ONCE


class ScriptApi(StrEnum):
    AUTO = "auto"
    CONNECT = "connect"
    CLASSIC = "classic"
    NONE = "none"
    """It uses no Spark itself: it submits jobs with `firesteel.connect()`, in an application cluster."""


class Script(_Vertex):
    """A plain PySpark program, unchanged."""

    kind: Literal["script"] = "script"
    file: str
    """A `.py` file, or a `.zip` or `.whl` with the program's modules in it."""
    module: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")] | None = None
    """The module of an archive to run, as `python -m` would; without it, its `__main__.py` runs."""
    args: tuple[Text, ...] = ()
    api: ScriptApi = ScriptApi.AUTO


class Interactive(_Vertex):
    """A Spark session for interactive use, in a notebook or a shell. It ends when nothing has run in it for a while."""

    kind: Literal["session"] = "session"
    idle_timeout: Duration = "1 h"


AnyVertex = Source | Sql | Python | Sink | Script | Interactive
Vertex = Annotated[AnyVertex, Field(discriminator="kind")]
Relation = Source | Sql | Python


class NoRestart(Model):
    type: Literal["none"] = "none"


class FixedDelayRestart(Model):
    type: Literal["fixed-delay"] = "fixed-delay"
    attempts: Annotated[int, Field(ge=0)] = 3
    delay: Duration = "1 s"


class ExponentialDelayRestart(Model):
    type: Literal["exponential-delay"] = "exponential-delay"
    initial_delay: Duration = "1 s"
    max_delay: Duration = "1 min"
    multiplier: Annotated[float, Field(gt=1)] = 2.0
    attempts: Annotated[int, Field(ge=0)] | None = None
    """None: without limit."""


class FailureRateRestart(Model):
    type: Literal["failure-rate"] = "failure-rate"
    max_failures: Positive = 3
    interval: Duration = "5 min"
    delay: Duration = "1 s"


Restart = Annotated[
    NoRestart | FixedDelayRestart | ExponentialDelayRestart | FailureRateRestart, Field(discriminator="type")
]


class Artifacts(Model):
    """Files that travel with the job. Relative paths start at the directory of the pipeline file."""

    py_files: tuple[str, ...] = ()
    """.py, .zip, .egg, .whl or a directory of modules; on the path of the driver and of Python workers."""
    archives: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()


class RowMetrics(StrEnum):
    OPERATORS = "operators"
    EXACT = "exact"


class SavepointRestore(Model):
    """The savepoint from which the queries of a streaming job start when the job runs for the first time."""

    path: Annotated[str, Field(min_length=1)]
    """Its directory: an absolute path, or a URL."""
    allow_non_restored_state: bool = False
    """Whether the state of sinks that this job does not have may be skipped."""
    allow_incompatible_state: bool = False
    """Whether to start even if the state does not fit the queries. Their rows may be wrong."""


class PlacementSettings(Model):
    """Which workers the job may run on."""

    labels: Mapping[Label, LabelText] = Field(default_factory=dict)
    """All of these, as workers have them in `worker.labels`."""
    sandbox: RequiredSandbox = RequiredSandbox.ANY
    """What has to keep owners apart there; `any` is for workers without a sandbox, too."""


class NotifyOn(StrEnum):
    FAILED = "failed"
    FINISHED = "finished"
    CANCELED = "canceled"
    RESTART_LOOP = "restart-loop"
    LAG = "lag"
    MISSED_BATCH = "missed-batch"


class Notify(Model):
    """Who is told of what happens to the job."""

    to: Annotated[str, Field(min_length=1, max_length=100)]
    """The name of a target that the cluster allows for jobs (`notifications.job-targets`)."""
    on: Annotated[tuple[NotifyOn, ...], Field(min_length=1)] = (NotifyOn.FAILED,)


class Settings(Model):
    restart: Restart = Field(default_factory=NoRestart)
    checkpoint_interval: Duration | None = None
    """Default trigger of the streaming sinks."""
    checkpoint_retention: CheckpointRetention | None = None
    """What happens to the checkpoint when the stream has ended; by default what the cluster is configured to do."""
    spark: Mapping[str, Text] = Field(default_factory=dict)
    artifacts: Artifacts = Field(default_factory=Artifacts)
    row_metrics: RowMetrics = RowMetrics.OPERATORS
    """`operators`: rows from Spark's own metrics, free.
    `exact`: rows per vertex by observe(), which costs and blocks pushdown."""
    parallelism_overrides: Mapping[str, Positive] | None = None
    """Parallelism of vertices, by name or id, over what they say themselves and what the cluster says of them."""
    directory: str | None = None
    """Working directory of the driver, on the machine where it runs; if it does not exist, the driver has its own."""
    restore: SavepointRestore | None = None
    placement: PlacementSettings | None = None
    notify: Annotated[tuple[Notify, ...], Field(max_length=20)] | None = None


class JobGraph(Model):
    """A job graph. Equal graphs describe the same job, whichever way they were written."""

    version: Literal[1] = SCHEMA_VERSION
    name: Annotated[str, Field(min_length=1, max_length=200)]
    description: str = ""
    mode: Mode = Mode.BATCH
    parallelism: Positive | None = None
    settings: Settings = Field(default_factory=Settings)
    vertices: Annotated[tuple[Vertex, ...], Field(min_length=1)]

    @cached_property
    def by_name(self) -> Mapping[str, AnyVertex]:
        return {v.name: v for v in self.vertices}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """For each vertex, those that read it, in file order; a vertex that reads it twice is listed twice."""
        out: dict[str, list[str]] = {v.name: [] for v in self.vertices}
        for v in self.vertices:
            for i in inputs_of(v):
                out.setdefault(i, []).append(v.name)
        return {k: tuple(n) for k, n in out.items()}

    @property
    def sinks(self) -> tuple[Sink, ...]:
        return tuple(v for v in self.vertices if isinstance(v, Sink))

    @property
    def script(self) -> Script | None:
        first = self.vertices[0]
        return first if isinstance(first, Script) else None

    @property
    def interactive(self) -> Interactive | None:
        first = self.vertices[0]
        return first if isinstance(first, Interactive) else None

    @property
    def is_program(self) -> bool:
        """Whether it is not a DAG: only the program, or the user of the session, knows what runs."""
        return isinstance(self.vertices[0], Script | Interactive)

    @property
    def job_kind(self) -> str:
        """What users call the job: `script` or `interactive` for a program, which has no mode to speak of, else its mode."""
        return self.vertices[0].kind if self.is_program else self.mode.value

    def topological(self) -> tuple[AnyVertex, ...]:
        """Vertices in an order in which inputs come first; file order among equals. Assumes a valid (acyclic) graph."""
        done: dict[str, AnyVertex] = {}

        def visit(name: str) -> None:
            if name not in done:
                for i in inputs_of(self.by_name[name]):
                    visit(i)
                done[name] = self.by_name[name]

        for v in self.vertices:
            visit(v.name)
        return tuple(done.values())

    @cached_property
    def canonical(self) -> bytes:
        """The graph as it is stored, and as its digest is taken: JSON with sorted keys, written once.

        The order in which options were given does not matter. A field that is None is left out, so that a field which a later
        version adds leaves the bytes as they were. A graph of megabytes takes milliseconds, so the first call belongs
        in a thread.
        """
        plain = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode("ascii")

    @classmethod
    def of_canonical(cls, raw: bytes) -> JobGraph:
        """The graph that was written as `raw`, which is not written again."""
        graph = cls.model_validate_json(raw)
        graph.__dict__["canonical"] = raw
        return graph

    def with_(self, **changes: Any) -> JobGraph:
        """A copy with other fields, which are not validated."""
        return self.model_copy(update=changes)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> JobGraph:
        copied = super().model_copy(update=update, deep=deep)
        for cached in ("by_name", "consumers", "canonical"):  # which are of this graph
            copied.__dict__.pop(cached, None)
        return copied

    def to_json(self, *, indent: int | None = None) -> str:
        return self.model_dump_json(by_alias=True, exclude_defaults=False, exclude_none=True, indent=indent)


def inputs_of(vertex: AnyVertex) -> tuple[str, ...]:
    match vertex:
        case Sql() | Python():
            return vertex.inputs
        case Sink():
            return (vertex.input,)
        case _:
            return ()


def function_refs(graph: JobGraph) -> Iterable[tuple[str, str, str]]:
    """(vertex, field, `module:function`) of every user function that the graph names."""
    for v in graph.vertices:
        if isinstance(v, Python):
            yield v.name, "function", v.function
        if isinstance(v, Sink) and v.foreach_batch:
            yield v.name, "foreach_batch", v.foreach_batch
        if isinstance(v, Source | Sink) and v.format and ":" in v.format:
            yield v.name, "format", v.format


def runs_user_code(graph: JobGraph) -> bool:
    """Whether anything but Spark's own operators works for this graph, in the driver or on the engine."""
    return graph.is_program or graph.settings.artifacts != Artifacts() or any(function_refs(graph))
