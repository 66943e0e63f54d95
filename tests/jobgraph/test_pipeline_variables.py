from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.errors import InvalidPipelineError
from firesteel.jobgraph import LoadedPipeline, load_pipeline
from firesteel.jobgraph.model import Python, Sink, Source, Sql


def load(tmp_path: Path, text: str, **variables: str) -> LoadedPipeline:
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    (tmp_path / "m.py").write_text("def f(**args): ...\n")
    return load_pipeline(file, variables=variables)


def messages(tmp_path: Path, text: str, **variables: str) -> list[str]:
    with pytest.raises(InvalidPipelineError) as raised:
        load(tmp_path, text, **variables)
    return [str(p).rpartition("pipeline.yaml")[2] for p in raised.value.problems]


PIPELINE = """
name: ${env}_orders
parallelism: ${n}
variables:
  env: test
  data: /data/${env}
  n: 4
  price: 0.10
  day: 2024-01-02
  on: true
  must:
vertices:
  - {name: p, kind: python, function: 'm:f', cache: '${on}',
     args: {n: '${n}', price: '${price}', text: 'n=${n}', on: '${on}', inline: '${x:-7}', list: ['${n}']}}
  - {name: q, kind: sql, query: "SELECT '${day}' AS day, '$${day}' AS raw FROM p WHERE m = '${must}'"}
  - {name: s, kind: sink, input: q, format: csv, path: '${data}/${x:-out}', options: {scale: '${price}', '${n}': a}}
"""


def test_values_come_from_defaults_and_from_the_caller(tmp_path: Path) -> None:
    loaded = load(tmp_path, PIPELINE, must="it", env="prod")
    graph = loaded.graph
    assert graph.name == "prod_orders"
    assert graph.parallelism == 4
    p, q, s = graph.vertices
    assert isinstance(p, Python)
    assert p.cache is True
    assert p.args == {"n": 4, "price": 0.1, "text": "n=4", "on": True, "inline": 7, "list": [4]}
    assert isinstance(q, Sql)
    assert q.query == "SELECT '2024-01-02' AS day, '${day}' AS raw FROM p WHERE m = 'it'"
    assert isinstance(s, Sink)
    assert s.path == "/data/prod/out"
    assert s.options == {"scale": "0.10", "${n}": "a"}
    assert loaded.variables == {
        "env": "prod",
        "data": "/data/prod",
        "n": "4",
        "price": "0.10",
        "day": "2024-01-02",
        "on": "true",
        "must": "it",
    }


def test_inline_default_declares_and_gives_way_to_a_value(tmp_path: Path) -> None:
    loaded = load(tmp_path, PIPELINE, must="it", x="there")
    sink = loaded.graph.by_name["s"]
    assert isinstance(sink, Sink)
    assert sink.path == "/data/test/there"
    assert loaded.variables["x"] == "there"


def test_value_is_text_and_never_a_reference_again(tmp_path: Path) -> None:
    loaded = load(tmp_path, PIPELINE, must="${env}'; -- ")
    query = loaded.graph.by_name["q"]
    assert isinstance(query, Sql)
    assert "m = '${env}'; -- '" in query.query


def test_given_but_undeclared_variable(tmp_path: Path) -> None:
    assert messages(tmp_path, PIPELINE, must="it", evn="x", other="y") == [
        ": the variable 'evn' was given, but the pipeline does not declare it — did you mean 'env'?",
        (
            ": the variable 'other' was given, but the pipeline does not declare it — remove -Dother; the pipeline declares "
            "data, day, env, must, n, on, price, x"
        ),
    ]


def test_variable_without_value_is_a_problem_even_if_unused(tmp_path: Path) -> None:
    text = "name: a\nvariables:\n  must:\nvertices:\n  - {name: s, kind: script, file: m.py}\n"
    assert messages(tmp_path, text) == [
        ":3: field 'variables.must': has no value — give one with -Dmust=VALUE, or a default here"
    ]


def test_variable_of_the_wrong_type_names_the_field(tmp_path: Path) -> None:
    assert messages(tmp_path, PIPELINE, must="it", n="many") == [
        ":3: field 'parallelism': must be a whole number, not 'many' — write a number without quotes or unit"
    ]


def test_declarations_themselves_are_checked(tmp_path: Path) -> None:
    text = "name: a\nvariables:\n  a b: 1\n  c: [1]\nvertices:\n  - {name: s, kind: script, file: m.py}\n"
    assert messages(tmp_path, text) == [
        ":3: field 'variables.a b': 'a b' is not a variable name — use letters, digits, '_' and '-'",
        ":4: field 'variables.c': the default must be one value, not a list or mapping — write text or a number",
    ]
    text = "name: a\nvariables: [x]\nvertices:\n  - {name: s, kind: script, file: m.py}\n"
    assert messages(tmp_path, text) == [
        ":2: field 'variables': must be a mapping of names to defaults — write 'variables: {name: default}'"
    ]


def test_scalars_keep_their_spelling_where_spark_wants_text(tmp_path: Path) -> None:
    text = """
name: a
settings: {spark: {spark.x: 007, spark.y: 1.50, spark.z: False, spark.w: 1e3, spark.v: 2024-01-01}}
vertices:
  - {name: r, kind: source, format: csv, path: in, options: {a: 0.10, b: yes, c: 12:30, d: TRUE, e: '5'}}
  - {name: s, kind: sink, input: r, format: noop}
"""
    graph = load(tmp_path, text).graph
    assert dict(graph.settings.spark) == {
        "spark.x": "007",
        "spark.y": "1.50",
        "spark.z": "false",
        "spark.w": "1e3",
        "spark.v": "2024-01-01",
    }
    source = graph.by_name["r"]
    assert isinstance(source, Source)
    assert source.options == {"a": "0.10", "b": "yes", "c": "12:30", "d": "true", "e": "5"}


def test_yaml_anchors_and_merges(tmp_path: Path) -> None:
    text = """
name: a
vertices:
  - &files {name: a, kind: source, format: csv, path: in, options: {header: true}}
  - {<<: *files, name: b, path: other}
  - {name: q, kind: sql, query: SELECT * FROM a UNION ALL SELECT * FROM b}
  - {name: s, kind: sink, input: q, format: noop}
"""
    b = load(tmp_path, text).graph.by_name["b"]
    assert isinstance(b, Source)
    assert (b.path, b.format, b.options) == (str(tmp_path / "other"), "csv", {"header": "true"})


def test_yaml_value_inside_itself(tmp_path: Path) -> None:
    text = "name: a\nsettings: &s\n  spark: *s\nvertices:\n  - {name: s, kind: script, file: m.py}\n"
    assert ":2: field 'settings.spark': the value contains itself — write it out instead of using an alias" in messages(
        tmp_path, text
    )


def test_json_reports_lines_and_duplicate_keys(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text('{\n\t"name": "a",\n\t"name": "b",\n\t"vertices": []\n}')
    with pytest.raises(InvalidPipelineError) as raised:
        load_pipeline(file)
    assert [(p.line, p.field) for p in raised.value.problems] == [(3, "name"), (4, "vertices")]
    file.write_text('{\n  "name": \n}')
    with pytest.raises(InvalidPipelineError, match=r"p\.json:3: this is not JSON: Expecting value"):
        load_pipeline(file)


def test_files_that_are_no_pipelines(tmp_path: Path) -> None:
    for name, message in {
        "p.toml": "'.toml' is not a suffix of pipeline files — use one of .yaml, .yml, .json, .sql, .py",
        "none.yaml": "no such file — check the path",
        "dir.yaml": "this is a directory — give the pipeline file in it",
        "latin.yaml": "the file is not UTF-8 text — save it as UTF-8",
    }.items():
        (tmp_path / "p.toml").write_text("")
        (tmp_path / "dir.yaml").mkdir(exist_ok=True)
        (tmp_path / "latin.yaml").write_bytes(b"name: \xe9t\xe9\n")
        with pytest.raises(InvalidPipelineError) as raised:
            load_pipeline(tmp_path / name)
        assert str(raised.value) == f"{tmp_path / name}: {message}"
