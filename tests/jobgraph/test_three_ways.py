"""One pipeline written in YAML, in SQL and in Python is one graph."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from firesteel.errors import InvalidPipelineError
from firesteel.jobgraph import Job, JobGraph, load_pipeline, parse_graph, validate
from firesteel.jobgraph.model import Overwrite, PlacementSettings, Python, Resources, SaveMode, Sink, Source, Sql
from firesteel.types import RequiredSandbox

YAML = """
name: sessions
description: who did what for how long
mode: streaming
settings:
  restart: {type: fixed-delay, attempts: 5, delay: 2 s}
  spark:
    spark.sql.shuffle.partitions: 4
variables:
  data: in
  gap: 30
vertices:
  - name: events
    kind: source
    format: json
    path: ${data}/events
    schema: "user STRING, ts TIMESTAMP, tags ARRAY<STRING>"
    watermark: {column: ts, delay: 10 minutes}
  - name: names
    kind: source
    format: csv
    path: ${data}/names.csv
    schema: user STRING, name STRING
    options: {header: true, sep: ';'}
    static: true
  - name: named
    kind: sql
    query: |
      SELECT e.*, n.name
      FROM events e JOIN names n USING (user)  -- ;
      WHERE n.name <> 'a;b'
  - name: sessions
    kind: python
    function: sessionize:by_gap
    inputs: [named]
    args: {gap_minutes: "${gap}", label: x}
    deduplicate: {columns: [user], within_watermark: true}
  - name: result
    kind: sink
    input: sessions
    format: parquet
    path: /out/sessions
    partition_by: [user]
    options: {checkpointlocation: '${data}/progress'}
    trigger: 5 seconds
"""

SQL = r"""/* firesteel
name: sessions
description: who did what for how long
mode: streaming
settings:
  restart: {type: fixed-delay, attempts: 5, delay: 2 s}
  spark:
    spark.sql.shuffle.partitions: 4
variables:
  data: in
  gap: 30
*/

-- firesteel: {watermark: {column: ts, delay: 10 minutes}}
CREATE TEMPORARY VIEW events (user STRING, ts TIMESTAMP, /* free */ tags ARRAY<STRING>)
USING json OPTIONS (path '${data}/events');

-- An ordinary comment; it ends no statement.
-- firesteel: {static: true}
CREATE OR REPLACE TEMP VIEW names (user STRING, name STRING)
USING CSV OPTIONS (header 'true', sep = ';', path "${data}/names.csv");

CREATE TEMPORARY VIEW named AS
SELECT e.*, n.name
      FROM events e JOIN names n USING (user)  -- ;
      WHERE n.name <> 'a;b';

-- firesteel: {deduplicate: {columns: [user], within_watermark: true}}
CREATE TEMPORARY VIEW sessions USING python OPTIONS (
  function 'sessionize:by_gap', inputs 'named', gap_minutes '${gap}', label 'x'
);

-- firesteel: {trigger: 5 seconds}
INSERT INTO result USING parquet OPTIONS (path '/out/sessions', checkpointLocation '${data}/progress')
PARTITIONED BY (`user`) TABLE sessions;
"""

PYTHON = '''
from firesteel.jobgraph import Job
from sessionize import by_gap

print("a pipeline may print")
job = Job(
    "sessions",
    "streaming",
    description="who did what for how long",
    settings={
        "restart": {"type": "fixed-delay", "attempts": 5, "delay": "2 s"},
        "spark": {"spark.sql.shuffle.partitions": 4},
    },
    variables={"data": "in", "gap": 30},
)
events = job.source(
    "events",
    "json",
    path="${data}/events",
    schema="user STRING, ts TIMESTAMP, tags ARRAY<STRING>",
    watermark={"column": "ts", "delay": "10 minutes"},
)
names = job.source(
    "names",
    "csv",
    path="${data}/names.csv",
    schema="user STRING, name STRING",
    options={"header": True, "sep": ";"},
    static=True,
)
named = job.sql(
    "named",
    """SELECT e.*, n.name
      FROM events e JOIN names n USING (user)  -- ;
      WHERE n.name <> 'a;b'""",
)
sessions = job.python(
    "sessions",
    by_gap,
    inputs=[named],
    args={"gap_minutes": "${gap}", "label": "x"},
    deduplicate={"columns": ["user"], "within_watermark": True},
)
job.sink(
    "result",
    sessions,
    format="parquet",
    path="/out/sessions",
    partition_by=["user"],
    options={"checkpointLocation": "${data}/progress"},
    trigger="5 seconds",
)
'''


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "sessionize.py").write_text("def by_gap(named, gap_minutes, label='y'): ...\n")
    # Indentation of the query is the user's text and is kept, so the YAML has it too.
    yaml = YAML.replace("      FROM", "            FROM").replace("      WHERE", "            WHERE")
    (tmp_path / "pipeline.yaml").write_text(yaml)
    (tmp_path / "pipeline.sql").write_text(SQL)
    (tmp_path / "pipeline.py").write_text(PYTHON)
    return tmp_path


def test_yaml_sql_and_python_give_equal_graphs(directory: Path) -> None:
    yaml = load_pipeline(directory / "pipeline.yaml")
    sql = load_pipeline(directory / "pipeline.sql")
    python = load_pipeline(directory / "pipeline.py")
    assert yaml.graph == sql.graph
    assert yaml.graph == python.graph
    assert yaml.graph.to_json() == sql.graph.to_json() == python.graph.to_json()
    assert yaml.variables == sql.variables == python.variables == {"data": "in", "gap": "30"}
    assert yaml.problems == ()


def test_the_graph_says_everything(directory: Path) -> None:
    graph = load_pipeline(directory / "pipeline.yaml", variables={"gap": "45"}).graph
    events, names, named, sessions, result = graph.vertices
    assert isinstance(events, Source)
    assert events.path == str(directory / "in/events")
    assert isinstance(names, Source)
    assert names.options == {"header": "true", "sep": ";"}
    assert isinstance(named, Sql)
    assert named.inputs == ("events", "names")
    assert named.query.startswith("SELECT")
    assert named.query.endswith("'a;b'")
    assert isinstance(sessions, Python)
    assert sessions.args == {"gap_minutes": 45, "label": "x"}
    assert isinstance(result, Sink)
    assert result.options == {"checkpointLocation": str(directory / "in/progress")}
    assert result.mode is SaveMode.APPEND
    assert graph.settings.artifacts.py_files == (str(directory),)
    assert [v.name for v in graph.topological()] == ["events", "names", "named", "sessions", "result"]


BATCH_YAML = """
name: daily
vertices:
  - {name: rows, kind: source, format: csv, path: in}
  - {name: by_day, kind: sink, input: rows, format: parquet, path: a, mode: overwrite, overwrite: dynamic, partition_by: [d]}
  - {name: once, kind: sink, input: rows, format: parquet, path: b}
  - {name: first, kind: sink, input: rows, format: parquet, path: c, mode: ignore}
  - {name: more, kind: sink, input: rows, format: parquet, path: d, mode: append}
  - {name: table, kind: sink, input: rows, format: parquet, table: t, delivery: at-least-once}
"""
BATCH_SQL = """/* firesteel
name: daily
*/
CREATE TEMPORARY VIEW rows USING csv OPTIONS (path 'in');
-- firesteel: {overwrite: dynamic}
INSERT OVERWRITE by_day USING parquet OPTIONS (path 'a') PARTITIONED BY (d) TABLE rows;
-- firesteel: {mode: error}
INSERT INTO once USING parquet OPTIONS (path 'b') TABLE rows;
-- firesteel: {mode: ignore}
INSERT INTO first USING parquet OPTIONS (path 'c') TABLE rows;
INSERT INTO more USING parquet OPTIONS (path 'd') TABLE rows;
-- firesteel: {delivery: at-least-once}
INSERT INTO table USING parquet OPTIONS (table 't') TABLE rows;
"""


def test_modes_of_batch_sinks_are_the_same_in_all_three(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(BATCH_YAML)
    (tmp_path / "p.sql").write_text(BATCH_SQL)
    job = Job("daily")
    rows = job.source("rows", "csv", path="in")
    job.sink("by_day", rows, format="parquet", path="a", mode="overwrite", overwrite="dynamic", partition_by=["d"])
    job.sink("once", rows, format="parquet", path="b", mode="error")
    job.sink("first", rows, format="parquet", path="c", mode="ignore")
    job.sink("more", rows, format="parquet", path="d", mode="append")
    job.sink("table", rows, format="parquet", table="t", delivery="at-least-once")
    graph = load_pipeline(tmp_path / "p.yaml").graph
    assert graph == load_pipeline(tmp_path / "p.sql").graph == job.graph(tmp_path)
    assert [(s.mode, s.overwrite) for s in graph.sinks] == [
        (SaveMode.OVERWRITE, Overwrite.DYNAMIC),
        (SaveMode.ERROR, None),
        (SaveMode.IGNORE, None),
        (SaveMode.APPEND, None),
        (SaveMode.APPEND, None),
    ]


def test_placement_is_the_same_in_all_three(tmp_path: Path) -> None:
    vertices = """
vertices:
  - {name: rows, kind: source, format: csv, path: in}
  - {name: out, kind: sink, input: rows, format: parquet, path: a}
"""
    head = "name: daily\nsettings: {placement: {labels: {zone: a, generation: 7}, sandbox: landlock}}\n"
    (tmp_path / "p.yaml").write_text(head + vertices)
    (tmp_path / "p.sql").write_text(
        f"/* firesteel\n{head}*/\nCREATE TEMPORARY VIEW rows USING csv OPTIONS (path 'in');\n"
        "-- firesteel: {mode: error}\nINSERT INTO out USING parquet OPTIONS (path 'a') TABLE rows;\n"
    )
    placement = {"labels": {"zone": "a", "generation": 7}, "sandbox": "landlock"}
    job = Job("daily", settings={"placement": placement})
    job.sink("out", job.source("rows", "csv", path="in"), format="parquet", path="a")
    graph = load_pipeline(tmp_path / "p.yaml").graph
    assert graph == load_pipeline(tmp_path / "p.sql").graph == job.graph(tmp_path)
    assert graph.settings.placement == PlacementSettings(
        labels={"zone": "a", "generation": "7"}, sandbox=RequiredSandbox.LANDLOCK
    )
    assert JobGraph.of_canonical(graph.canonical) == graph


@pytest.mark.parametrize(
    ("placement", "problem"),
    [
        ({"label": {}}, "field 'settings.placement.label': no such field — did you mean 'labels'?"),
        ({"labels": {"zone": "a b"}}, "'a b' cannot be the name or the value of a label — use up to 63 letters"),
        ({"labels": {"=": "a"}}, "'=' cannot be the name or the value of a label"),
        ({"labels": {"zone": ""}}, "'' cannot be the name or the value of a label"),
        ({"labels": {"zone": ["a"]}}, "field 'settings.placement.labels.zone': must be text, not a list"),
        ({"labels": ["zone"]}, "field 'settings.placement.labels': must be a mapping, not a list"),
        ({"sandbox": "landloc"}, "'landloc' is not one of any, landlock, user — did you mean 'landlock'?"),
    ],
)
def test_wrong_placement_is_told(placement: object, problem: str) -> None:
    vertices = [{"kind": "sink", "name": "s", "input": "r", "format": "noop"}]
    with pytest.raises(InvalidPipelineError) as raised:
        parse_graph({"name": "a", "settings": {"placement": placement}, "vertices": vertices})
    [told] = raised.value.problems
    assert problem in str(told)


def test_graph_without_placement_is_stored_as_it_was() -> None:
    graph = parse_graph({"name": "a", "vertices": [{"kind": "sink", "name": "s", "input": "r", "format": "noop"}]})
    assert b"placement" not in graph.canonical


def test_json_round_trip(directory: Path) -> None:
    graph = load_pipeline(directory / "pipeline.yaml").graph
    assert JobGraph.model_validate_json(graph.to_json()) == graph
    assert parse_graph(json.loads(graph.to_json())) == graph
    (directory / "again.json").write_text(graph.to_json(indent=2))
    assert load_pipeline(directory / "again.json").graph == graph
    assert validate(graph, base_dir=directory) == []


def test_parse_graph_reports_all_problems_with_the_given_file_and_lines() -> None:
    data = {"name": "a", "mode": "x", "vertices": [{"kind": "sql", "name": "q"}]}
    with pytest.raises(InvalidPipelineError) as raised:
        parse_graph(data, file="body", lines={("vertices", 0): 7})
    assert [str(p) for p in raised.value.problems] == [
        "body: field 'mode': 'x' is not one of batch, streaming — use one of them",
        "body:7: vertex 'q', field 'query': is missing — add 'query: SELECT ...'",
    ]


def test_parse_graph_takes_nothing_but_a_mapping() -> None:
    values: tuple[object, ...] = (None, [], "x", 3)
    for value in values:
        with pytest.raises(InvalidPipelineError, match="a pipeline is a mapping of fields"):
            parse_graph(value)


def test_validate_of_a_foreign_graph_looks_up_no_files() -> None:
    """A server that gets a graph over the network does not have the client's files."""
    graph = parse_graph(
        {
            "name": "a",
            "settings": {"artifacts": {"jars": ["/nowhere/x.jar"]}},
            "vertices": [
                {"kind": "python", "name": "p", "function": "nowhere:f"},
                {"kind": "sink", "name": "s", "input": "P", "format": "noop"},
            ],
        }
    )
    assert validate(graph) == []
    assert [v.name for v in graph.topological()] == ["p", "s"]
    assert len(validate(graph, base_dir=Path())) == 2


def test_job_as_a_library(tmp_path: Path) -> None:
    job = Job("a", parallelism=2)
    rows = job.source("rows", "parquet", path=Path("in"), resources={"cpu": 2})
    job.sink("out", rows, format="delta", table="db.t", mode="upsert", keys=["id"], resources={"cpu": 1})
    graph = job.graph(tmp_path)
    assert graph.by_name["rows"] == Source(
        name="rows", format="parquet", path=str(tmp_path / "in"), resources=Resources(cpu=2)
    )
    assert graph.consumers == {"rows": ("out",), "out": ()}
    assert job.graph(tmp_path) == graph


def test_job_is_relative_to_the_file_that_makes_it() -> None:
    job = Job("a")
    job.sink("out", job.source("rows", "parquet", path="in"), format="noop")
    rows = job.graph().by_name["rows"]
    assert isinstance(rows, Source)
    assert rows.path == str(Path(__file__).parent / "in")


def test_job_reports_lines_and_all_problems() -> None:
    job = Job("a", zzz=1)
    job.source("rows", "parqet", path="in")
    job.sink("out", "row", format="noop")
    with pytest.raises(InvalidPipelineError) as raised:
        job.graph()
    messages = [str(p) for p in raised.value.problems]
    assert [m.partition(": ")[2].partition(" — ")[0] for m in messages] == [
        "field 'zzz': no such field",
        "vertex 'rows', field 'format': 'parqet' is not one of Spark's own formats",
        "vertex 'out', field 'input': there is no vertex 'row'",
    ]
    lines = [p.line for p in raised.value.problems]
    assert lines[0] is not None
    assert lines == [lines[0], lines[0] + 1, lines[0] + 2]
    assert {p.file for p in raised.value.problems} == {__file__}


def test_function_of_the_pipeline_file_itself(tmp_path: Path) -> None:
    file = tmp_path / "daily.py"
    file.write_text(
        dedent("""
        from firesteel.jobgraph import Job

        def clean(df):
            raise RuntimeError("nobody calls it here")

        job = Job("daily")
        rows = job.source("rows", "csv", path="in")
        job.sink("out", job.python("clean", clean, rows), format="noop")
        """)
    )
    graph = load_pipeline(file).graph
    clean = graph.by_name["clean"]
    assert isinstance(clean, Python)
    assert clean.function == "daily:clean"
    assert clean.inputs == ("rows",)
    assert graph.settings.artifacts.py_files == (str(tmp_path),)
