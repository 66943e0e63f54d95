"""Graphs that are meant to hurt: deep, huge, or small and growing. Each is a 400, soon, and nothing else happens (S25)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.rest.desk import Client, Desk
from tests.rest.native_people import ALICE, plain

from firesteel.errors import InvalidPipelineError
from firesteel.jobgraph.admission import MAX_PROBLEMS, NETWORK, SubmittedDocument
from firesteel.jobgraph.limits import MAX_DEPTH, MAX_QUERY, MAX_SINKS, MAX_VERTICES, too_deep
from firesteel.jobgraph.model import JobGraph, Sql

YAML = {"content-type": "application/yaml"}
SOURCE = {"kind": "source", "name": "s", "format": "csv", "path": "/in"}


@pytest.fixture
def alice(tmp_path: Path) -> Client:
    return Desk(tmp_path).client(ALICE)


def graph_of(data: Any, variables: dict[str, str] | None = None) -> JobGraph:
    return SubmittedDocument(data, variables=variables).admitted(NETWORK).graph


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def problems_of(data: Any, variables: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(InvalidPipelineError) as caught:
        graph_of(data, variables)
    return [str(p) for p in caught.value.problems]


def yaml_problems(text: str) -> list[str]:
    with pytest.raises(InvalidPipelineError) as caught:
        SubmittedDocument(yaml=text).admitted(NETWORK)
    return [str(p) for p in caught.value.problems]


def test_depth_is_counted_without_recursion() -> None:
    assert not too_deep(nested(MAX_DEPTH))
    assert too_deep(nested(MAX_DEPTH + 1))
    assert too_deep(nested(100_000))
    assert too_deep({"a": {"b": nested(MAX_DEPTH - 1)}})


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 500, 5_000, 200_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_deep_body_is_a_bad_request(alice: Client, depth: int, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    args = opening * depth + "1" + closing * depth
    body = f'{{"graph": {{"name": "x", "vertices": [{{"kind": "python", "args": {{"a": {args}}}}}]}}}}'
    answer = alice.post("/jobs", content=body)
    assert answer.status_code == 400
    assert "errors" in answer.json()


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1_000, 300_000])
def test_deep_yaml_is_a_bad_request(alice: Client, depth: int) -> None:
    answer = alice.post("/jobs", content=f"name: {'[' * depth}", headers=YAML)
    assert answer.status_code == 400
    indented = "".join(f"{' ' * i}a:\n" for i in range(min(depth, 1_000)))
    assert alice.post("/jobs", content=indented, headers=YAML).status_code == 400


def test_aliases_count_as_what_they_stand_for() -> None:
    laughs = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
    )
    assert "values, aliases included" in yaml_problems(laughs)[0]
    tower = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 100))
    assert "levels deep" in yaml_problems(tower)[0]
    assert yaml_problems("a: &a [*a]\nname: x\nvertices: []")


def test_aliases_and_merges_of_an_honest_pipeline_work() -> None:
    text = (
        "name: x\n"
        "vertices:\n"
        "  - &in {kind: source, name: a, format: csv, path: /in, options: {header: true}}\n"
        "  - {<<: *in, name: b}\n"
        "  - {kind: sql, name: q, query: SELECT * FROM a UNION ALL SELECT * FROM b}\n"
        "  - {kind: sink, name: o, input: q, format: parquet, path: /out}\n"
    )
    graph = SubmittedDocument(yaml=text).admitted(NETWORK).graph
    assert graph.by_name["b"].options == {"header": "true"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a",
        "name: 'x",
        "\t- x",
        "name: !!python/object/apply:os.system [id]",
        "a: 1\n---\nb: 2",
        "name: *nowhere",
        "\x01",
        "name: x\nparallelism: " + "9" * 5_000 + "\nvertices: []",
        'name: "\\ud800"\nvertices: []',
        "name: x\nvertices: []\nparallelism: 1e999",
        pytest.param("name: " + "x" * (1 << 20), id="long"),
        "? [a]\n: b",
        "name: !!binary AAAA",
    ],
)
def test_yaml_that_is_no_pipeline_is_a_bad_request(alice: Client, text: str) -> None:
    answer = alice.post("/jobs", content=text.encode(errors="surrogatepass"), headers=YAML)
    assert answer.status_code == 400
    assert answer.json()["errors"]


def test_yaml_that_is_not_utf8_is_a_bad_request(alice: Client) -> None:
    assert "not UTF-8" in alice.post("/jobs", content=b"name: \xff", headers=YAML).text


def test_lines_of_a_yaml_text_are_named() -> None:
    text = "name: x\nvertices:\n  - {kind: source, name: a, format: csv, path: in}\n"
    assert any(
        p.startswith("pipeline:3: vertex 'a', field 'path': 'in' is a relative path") for p in yaml_problems(text)
    )


def test_a_graph_has_a_largest_size() -> None:
    many = [SOURCE] * (MAX_VERTICES + 1)
    assert f"a graph may have at most {MAX_VERTICES}" in problems_of({"name": "x", "vertices": many})[0]
    sinks = [
        {"kind": "sink", "name": f"o{i}", "input": "s", "format": "csv", "path": f"/o/{i}"} for i in range(MAX_SINKS)
    ]
    assert len(graph_of({"name": "x", "vertices": [SOURCE, *sinks]}).sinks) == MAX_SINKS
    one_more = {**sinks[0], "name": "last", "path": "/last"}
    assert "are sinks" in problems_of({"name": "x", "vertices": [SOURCE, *sinks, one_more]})[0]


def test_a_query_has_a_longest_length() -> None:
    long = plain()
    long["vertices"][1]["query"] = f"SELECT * FROM orders -- {'x' * MAX_QUERY}"
    assert "vertex 'big', field 'query'" in problems_of(long)[0]


def test_braces_in_a_path_cannot_multiply_for_ever() -> None:
    job = plain()
    job["vertices"][2]["mode"] = "overwrite"
    job["vertices"][0]["path"] = "/in/" + "{a,b}" * 60
    assert "stands for more than" in problems_of(job)[0]
    job["vertices"][0]["path"] = "/in/" + "{a,{b,{c,{d,{e,f}}}}}" * 20
    assert "stands for more than" in problems_of(job)[0]
    job["vertices"][0]["path"] = "/in/{2024,2025}/{01,02,03,04,05,06,07,08,09,10,11,12}"
    assert graph_of(job)


def test_what_variables_bring_in_is_bounded_too() -> None:
    job = plain(variables={"a": "x" * 100_000})
    job["vertices"][1]["query"] = "SELECT '" + "${a}" * 10_000 + "' FROM orders"
    assert "too long" in problems_of(job)[0]
    braces = plain(variables={"b": "{a,b}"})
    braces["vertices"][0]["path"] = "/in/" + "${b}" * 40
    assert "stands for more than" in problems_of(braces)[0]


def test_a_chain_that_is_too_long_to_follow_is_refused_in_words() -> None:
    """From the sink back, as the checks go: a file that begins with its end."""
    last = 1_900
    chain = [
        {"kind": "python", "name": f"v{i}", "function": "m:f", "inputs": [f"v{i - 1}" if i else "s"]}
        for i in range(last, -1, -1)
    ]
    sink = {"kind": "sink", "name": "o", "input": f"v{last}", "format": "csv", "path": "/o"}
    assert "nested too deeply" in problems_of({"name": "x", "vertices": [sink, *chain, SOURCE]})[0]


def test_a_deep_query_is_taken_as_it_is() -> None:
    """What a graph is checked for does not follow the parentheses of a query; Spark has a limit of its own for them."""
    deep = plain()
    query = f"SELECT {'(' * 5_000}1{')' * 5_000} FROM orders"
    deep["vertices"][1]["query"] = query
    vertex = graph_of(deep).vertices[1]
    assert isinstance(vertex, Sql)
    assert vertex.query == query


def test_an_answer_has_a_largest_number_of_entries() -> None:
    wrong = [{"kind": "source", "name": f"v{i}", "format": "csv", "path": "x"} for i in range(500)]
    found = problems_of({"name": "x", "vertices": wrong})
    assert len(found) == MAX_PROBLEMS + 1
    assert "more problems" in found[-1]


@pytest.mark.parametrize(
    "data", [None, 1, "x", [], [1], {"vertices": 1}, {"vertices": {}}, {"vertices": [None, 1, []]}]
)
def test_any_json_value_is_refused_in_words(data: Any) -> None:
    assert problems_of(data)


@pytest.mark.parametrize(
    "broken",
    [
        {"settings": 1},
        {"settings": {"artifacts": []}},
        {"settings": {"artifacts": {"jars": "x", "files": [1, None]}}},
        {"settings": {"spark": {"a": {}}}},
        {"vertices": [{"kind": "script", "file": 1}]},
        {"vertices": [{"kind": "source", "path": 1, "options": []}]},
        {"vertices": [{"kind": "source", "path": {}, "options": {"path": 1}}]},
        {"vertices": [{"kind": {}, "query": []}]},
        {"variables": []},
        {"variables": {"a": {}}},
    ],
)
def test_fields_of_any_type_are_refused_in_words(broken: dict[str, Any]) -> None:
    assert problems_of({**plain(), **json.loads(json.dumps(broken))}, {})
