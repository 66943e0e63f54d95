"""What pipelines may leave unsaid, and sound pipelines that must not be refused."""

from __future__ import annotations

import zipfile
from pathlib import Path
from textwrap import dedent

import pytest

from firesteel.errors import InvalidPipelineError
from firesteel.jobgraph.load import LoadedPipeline, load_pipeline
from firesteel.jobgraph.model import Python, Script, Sink, Source, Sql


def load(tmp_path: Path, text: str) -> LoadedPipeline:
    (tmp_path / "p.yaml").write_text(dedent(text))
    return load_pipeline(tmp_path / "p.yaml")


def test_paths_become_absolute_and_uris_stay(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/a.jar").touch()
    (tmp_path / "env.zip").touch()
    graph = load(
        tmp_path,
        """
        name: a
        settings:
          artifacts: {jars: [lib/a.jar], archives: ['env.zip#env'], files: ['hdfs://x/f'], py_files: [lib]}
        vertices:
          - {name: a, kind: source, format: csv, path: ../in/*.csv}
          - {name: b, kind: source, format: csv, path: 'file:/in'}
          - {name: c, kind: source, format: delta, table: db.t}
          - {name: q, kind: sql, query: SELECT * FROM a JOIN b JOIN c}
          - {name: out, kind: sink, input: q, format: CSV, path: ./x/./y/}
          - {name: out2, kind: sink, input: q, format: parquet, path: 's3a://bucket/../y'}
        """,
    ).graph
    paths = [v.path for v in graph.vertices if isinstance(v, Source | Sink)]
    parent = tmp_path.parent
    assert paths == [f"{parent}/in/*.csv", "file:/in", None, f"{tmp_path}/x/y", "s3a://bucket/../y"]
    artifacts = graph.settings.artifacts
    assert artifacts.jars == (f"{tmp_path}/lib/a.jar",)
    assert artifacts.archives == (f"{tmp_path}/env.zip#env",)
    assert artifacts.files == ("hdfs://x/f",)
    assert artifacts.py_files == (f"{tmp_path}/lib",)
    sink = graph.by_name["out"]
    assert isinstance(sink, Sink)
    assert sink.format == "csv"


def test_relative_pipeline_path_gives_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(tmp_path, "name: a\nvertices:\n  - {name: s, kind: script, file: p.yaml}\n")
    monkeypatch.chdir(tmp_path)
    loaded = load_pipeline(Path("p.yaml"))
    script = loaded.graph.script
    assert isinstance(script, Script)
    assert script.file == str(tmp_path / "p.yaml")
    assert loaded.base_dir == tmp_path
    assert loaded.file == Path("p.yaml")


def test_names_get_the_spelling_of_their_declaration(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def f(a): ...\n")
    graph = load(
        tmp_path,
        """
        name: a
        vertices:
          - {name: Orders, kind: source, format: csv, path: in}
          - {name: q, kind: sql, query: SELECT * FROM ORDERS}
          - {name: r, kind: sql, query: SELECT * FROM orders, inputs: [orders]}
          - {name: p, kind: python, function: 'm:f', inputs: [oRDERS]}
          - {name: s1, kind: sink, input: Q, format: noop}
          - {name: s2, kind: sink, input: P, format: noop}
          - {name: s3, kind: sink, input: R, format: noop}
        """,
    ).graph
    assert graph.consumers["Orders"] == ("q", "r", "p")
    assert [v.input for v in graph.sinks] == ["q", "p", "r"]


def test_schema_with_colons_becomes_one_that_a_reader_takes(tmp_path: Path) -> None:
    graph = load(
        tmp_path,
        """
        name: a
        vertices:
          - {name: a, kind: source, format: csv, path: in, schema: 'id: BIGINT, s: STRUCT<x: INT>'}
          - {name: out, kind: sink, input: a, format: noop}
        """,
    ).graph
    source = graph.by_name["a"]
    assert isinstance(source, Source)
    assert source.schema_ == "id BIGINT, s STRUCT<x: INT>"


def test_suspicion_alone_does_not_stop_a_pipeline(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        """
        name: a
        vertices:
          - {name: a, kind: source, format: csv, path: in}
          - {name: q, kind: sql, query: 'SELECT a.b.c, v:x.y::int FROM a WHERE true'}
          - {name: out, kind: sink, input: q, format: noop}
        """,
    )
    query = loaded.graph.by_name["q"]
    assert isinstance(query, Sql)
    assert query.inputs == ("a",)
    (problem,) = loaded.problems
    assert not problem.certain
    assert str(problem).startswith(f"{tmp_path}/p.yaml:5: vertex 'q', field 'query': this may not be Spark SQL:")


STREAMING = """
name: a
mode: streaming
settings: {spark: {spark.sql.streaming.schemaInference: true, spark.sql.extensions: x.Y}, checkpoint_interval: 10 s}
vertices:
  - {name: a, kind: source, format: json, path: in}
  - {name: b, kind: source, format: jdbc, static: true, cache: true}
  - {name: c, kind: source, format: text, path: in, watermark: {column: t, delay: 1 hour}}
  - {name: q, kind: sql, query: SELECT * FROM a JOIN b JOIN c JOIN db.elsewhere}
  - {name: d, kind: sql, query: TABLE q, deduplicate: {columns: [x], within_watermark: true}}
  - {name: s1, kind: sink, input: d, format: kafka, output_mode: update, trigger: available-now}
  - {name: s2, kind: sink, input: d, format: delta, path: o, output_mode: complete, trigger: 500 ms}
  - {name: s3, kind: sink, input: d, foreach_batch: 'm:save'}
  - {name: s4, kind: sink, input: d, format: parquet, table: db.t, trigger: 1 min}
  - {name: s5, kind: sink, input: d, format: memory, options: {queryName: x}}
  - {name: s6, kind: sink, input: d, format: delta, table: db.u, mode: upsert, keys: [id]}
  - {name: s7, kind: sink, input: d, format: my_python_source, options: {path: x}, partition_by: [a]}
"""

BATCH = """
name: a
vertices:
  - {name: a, kind: source, format: csv, path: 'data/{x,y}/*.csv', watermark: {column: t, delay: 1 s}, cache: true}
  - {name: b, kind: source, format: jdbc, options: {dbtable: t}}
  - {name: c, kind: source, format: iceberg, table: db.t}
  - {name: d, kind: source, format: com.example.thing}
  - {name: e, kind: source, format: binaryFile, path: in}
  - {name: q, kind: sql, query: SELECT * FROM a JOIN b JOIN c JOIN d JOIN e, deduplicate: {columns: [x]}}
  - {name: s1, kind: sink, input: q, format: jdbc, delivery: at-least-once}
  - {name: s2, kind: sink, input: q, format: delta, table: db.u}
  - {name: s3, kind: sink, input: q, format: parquet, table: db.v, delivery: at-least-once}
  - {name: s4, kind: sink, input: q, format: noop}
  - {name: s5, kind: sink, input: q, format: parquet, path: data/z, mode: overwrite, overwrite: dynamic, partition_by: [a]}
  - {name: s6, kind: sink, input: q, format: iceberg, table: db.w, mode: upsert, keys: [a], delivery: at-least-once}
  - {name: s7, kind: sink, input: a, format: csv, path: data/x}
  - {name: s8, kind: sink, input: q, format: csv, path: s8, mode: ignore}
  - {name: s9, kind: sink, input: q, format: csv, path: s9, mode: error}
  - {name: s10, kind: sink, input: q, format: csv, path: s10, mode: overwrite, partition_by: [a],
     options: {partitionOverwriteMode: static}}
  - {name: s11, kind: sink, input: q, format: delta, path: s11, mode: overwrite, partition_by: [a],
     options: {replaceWhere: a = 1}}
  - {name: s12, kind: sink, input: q, format: parquet, table: db.x, mode: overwrite, overwrite: dynamic,
     delivery: at-least-once}
"""


@pytest.mark.parametrize("text", [STREAMING, BATCH], ids=["streaming", "batch"])
def test_everything_that_is_allowed(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.py").write_text("def save(batch_df, batch_id): ...\n")
    assert load(tmp_path, text).problems == ()


def python_pipeline(function: str, inputs: str = "[a]", args: str = "{}", py_files: str = "[]") -> str:
    return f"""
        name: a
        settings: {{artifacts: {{py_files: {py_files}}}}}
        vertices:
          - {{name: a, kind: source, format: csv, path: in}}
          - {{name: p, kind: python, function: '{function}', inputs: {inputs}, args: {args}}}
          - {{name: out, kind: sink, input: p, format: noop}}
          - {{name: all, kind: sink, input: a, format: noop}}
        """


MODULE = """
    import functools
    from elsewhere import imported
    from os import path as renamed
    raise RuntimeError("this module must never be imported")
    def one(df): ...
    def session(spark, df): ...
    def only_session(spark): ...
    def nothing(): ...
    def many(*dfs, **args): ...
    def defaults(df, a, b=1, *, c, d=2): ...
    def positional(df, /, a): ...
    @functools.cache
    def decorated(): ...
    assigned = one
    typed: object = one
    class Callable:
        def __call__(self, df): ...
    if True:
        def conditional(df): ...
    try:
        def tried(df): ...
    except ImportError:
        def tried(): ...
"""


@pytest.mark.parametrize(
    ("function", "inputs", "args"),
    [
        ("one", "[a]", "{}"),
        ("session", "[a]", "{}"),
        ("only_session", "[]", "{}"),
        ("nothing", "[]", "{}"),
        ("many", "[a, a, a]", "{x: 1}"),
        ("defaults", "[a]", "{a: 1, c: 2}"),
        ("defaults", "[a, a]", "{c: 2, d: 3}"),
        ("positional", "[a]", "{a: 1}"),
        ("decorated", "[a, a]", "{x: 1}"),
        ("assigned", "[a]", "{}"),
        ("typed", "[a]", "{}"),
        ("Callable", "[a]", "{}"),
        ("conditional", "[a]", "{}"),
        ("tried", "[a]", "{}"),
        ("imported", "[a]", "{}"),
        ("renamed", "[a]", "{}"),
    ],
)
def test_functions_that_fit(tmp_path: Path, function: str, inputs: str, args: str) -> None:
    (tmp_path / "m.py").write_text(dedent(MODULE))
    load(tmp_path, python_pipeline(f"m:{function}", inputs, args))


@pytest.mark.parametrize(
    ("function", "inputs", "args", "why"),
    [
        ("one", "[]", "{}", "needs a value for 'df', which is neither an input nor in args"),
        ("session", "[a, a]", "{}", "takes 1 DataFrame but the vertex has 2 inputs"),
        ("nothing", "[a]", "{}", "takes 0 DataFrames but the vertex has 1 input"),
        ("one", "[a]", "{df: 1}", "gets 'df' both as an input and in args"),
        ("defaults", "[a]", "{a: 1}", "needs a value for 'c', which is neither an input nor in args"),
        ("defaults", "[a]", "{a: 1, c: 1, e: 1}", "has no parameter 'e'"),
        ("positional", "[]", "{a: 1, df: 2}", "needs a value for 'df', which is neither an input nor in args"),
    ],
)
def test_functions_that_do_not_fit(tmp_path: Path, function: str, inputs: str, args: str, why: str) -> None:
    (tmp_path / "m.py").write_text(dedent(MODULE))
    with pytest.raises(InvalidPipelineError) as raised:
        load(tmp_path, python_pipeline(f"m:{function}", inputs, args))
    assert raised.value.problems[0].message == f"the function '{function}' {why}"


def test_modules_are_found_in_py_files_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "dir/pkg").mkdir(parents=True)
    (tmp_path / "dir/pkg/inner.py").write_text("def f(df): ...\n")
    (tmp_path / "single.py").write_text("def f(df): ...\n")
    with zipfile.ZipFile(tmp_path / "lib.whl", "w") as archive:
        archive.writestr("zipped/__init__.py", "def f(df): ...\n")
    for module, entry in {"pkg.inner": "dir", "single": "single.py", "zipped": "lib.whl"}.items():
        graph = load(tmp_path, python_pipeline(f"{module}:f", py_files=f"[{entry}]")).graph
        assert graph.settings.artifacts.py_files == (str(tmp_path / entry),)


def test_module_beside_the_pipeline_adds_its_directory_once(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def f(df): ...\n")
    text = python_pipeline("m:f")
    assert load(tmp_path, text).graph.settings.artifacts.py_files == (str(tmp_path),)
    again = python_pipeline("m:f", py_files="[.]")
    assert load(tmp_path, again).graph.settings.artifacts.py_files == (str(tmp_path),)


def test_modules_of_the_environment_are_found_without_importing_them(tmp_path: Path) -> None:
    import sys

    graph = load(tmp_path, python_pipeline("xml.dom.minidom:parseString", args="{parser: null}")).graph
    assert graph.settings.artifacts.py_files == ()
    load(tmp_path, python_pipeline("math:sqrt"))
    sys.modules.pop("antigravity", None)
    with pytest.raises(InvalidPipelineError, match="has no function 'f'"):
        load(tmp_path, python_pipeline("antigravity:f"))
    assert "antigravity" not in sys.modules
    python = graph.by_name["p"]
    assert isinstance(python, Python)


def test_python_that_makes_the_stream_itself(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def ticks(spark): ...\n")
    load(
        tmp_path,
        """
        name: a
        mode: streaming
        vertices:
          - {name: p, kind: python, function: 'm:ticks', deduplicate: {columns: [a], within_watermark: true}}
          - {name: out, kind: sink, input: p, format: noop}
        """,
    )


@pytest.mark.parametrize(
    ("source", "sink", "refused"),
    [
        ("data", "data", True),
        ("data/a", "data", True),
        ("data", "data/a", True),
        ("data/*", "data/a", True),
        ("data/*.csv", "data/a", False),
        ("data/{a,b}/x", "data/b", True),
        ("data/{a,b}/x", "data/c", False),
        ("data", "data2", False),
        ("file:/x", "file:///x/", True),
        ("s3a://b/x", "s3a://b/y", False),
    ],
)
def test_overwriting_what_is_read(tmp_path: Path, source: str, sink: str, refused: bool) -> None:
    text = f"""
        name: a
        vertices:
          - {{name: a, kind: source, format: csv, path: '{source}'}}
          - {{name: out, kind: sink, input: a, format: csv, path: '{sink}', mode: overwrite}}
        """
    if refused:
        with pytest.raises(InvalidPipelineError, match="overwrites what the source 'a' reads"):
            load(tmp_path, text)
    else:
        load(tmp_path, text)
    load(tmp_path, text.replace("overwrite", "append"))
