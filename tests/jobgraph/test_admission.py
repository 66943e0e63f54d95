"""One way from a document to a graph: what each policy holds it to, and that it is written once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from firesteel.errors import InvalidPipelineError, Problem
from firesteel.jobgraph import load_pipeline
from firesteel.jobgraph.admission import NETWORK, OWN, AllowedPlaces, Policy, SubmittedDocument, admit
from firesteel.jobgraph.document import Document
from firesteel.jobgraph.files import files_in, files_of, with_files, with_files_in
from firesteel.jobgraph.model import JobGraph

KEY = "a" * 64


def plain(**more: Any) -> dict[str, Any]:
    return {
        "name": "orders",
        "vertices": [
            {"kind": "source", "name": "s", "format": "csv", "path": "/in", "options": {"sep": ",", "header": True}},
            {"kind": "sink", "name": "o", "input": "S", "format": "parquet", "path": "/out"},
        ],
        **more,
    }


def script(**more: Any) -> dict[str, Any]:
    return {"name": "p", "vertices": [{"kind": "script", "name": "p", "file": f"blob:{KEY}/p.py"}], **more}


def refusals(source: SubmittedDocument, policy: Policy = NETWORK) -> str:
    with pytest.raises(InvalidPipelineError) as refused:
        source.admitted(policy)
    return str(refused.value)


def test_same_pipeline_by_every_way_in_has_the_same_bytes_and_digest(tmp_path: Path) -> None:
    text = json.dumps(plain())
    (tmp_path / "p.json").write_text(text)
    ways = [
        admit(Document(plain()), OWN).graph,
        load_pipeline(tmp_path / "p.json").graph,
        SubmittedDocument(plain()).admitted(NETWORK).graph,
        SubmittedDocument(yaml=text).admitted(NETWORK).graph,
    ]
    again = SubmittedDocument(json.loads(ways[0].canonical)).admitted(NETWORK)
    assert {g.canonical for g in ways} == {again.canonical}
    assert {
        SubmittedDocument(plain()).admitted(NETWORK).digest(),
        SubmittedDocument(yaml=text).admitted(NETWORK).digest(),
    } == {again.digest()}
    assert again.digest(priority=1) != again.digest() != again.digest(heartbeat=1.0)


def test_canonical_bytes_are_completed_and_read_back_without_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    admitted = SubmittedDocument(plain()).admitted(NETWORK)
    sink = json.loads(admitted.canonical)["vertices"][1]
    assert (sink["input"], sink["mode"]) == ("s", "error")
    written = admitted.canonical
    monkeypatch.setattr(JobGraph, "model_dump", lambda *_, **__: pytest.fail("it was written again"))
    assert admitted.canonical is written
    read = JobGraph.of_canonical(written)
    assert read == admitted.graph
    assert read.canonical is written


def test_finished_graph_is_taken_literally_and_one_with_variables_is_not() -> None:
    odd = plain(description="costs ${a}")
    assert SubmittedDocument(odd).admitted(NETWORK).graph.description == "costs ${a}"
    assert SubmittedDocument({**odd, "variables": {"a": "5"}}).admitted(NETWORK).graph.description == "costs 5"
    assert "'a', which is not declared" in refusals(SubmittedDocument(odd, variables={}))


def test_what_is_set_on_top_is_literal_and_wins() -> None:
    given = plain(settings={"spark": {"spark.a": "1", "spark.b": "${v}"}}, variables={"v": "2"}, parallelism=3)
    on_top = {"name": "${v}", "parallelism": 7, "settings": {"spark": {"spark.a": "${v}", "spark.c": "3"}}}
    graph = SubmittedDocument(given, on_top=on_top).admitted(NETWORK).graph
    assert (graph.name, graph.parallelism) == ("${v}", 7)
    assert graph.settings.spark == {"spark.a": "${v}", "spark.b": "2", "spark.c": "3"}
    assert given["parallelism"] == 3


@pytest.mark.parametrize("settings", ["x", [], 5])
def test_settings_that_are_none_are_refused_with_something_on_top_too(settings: Any) -> None:
    assert "settings" in refusals(SubmittedDocument(plain(settings=settings), on_top={"settings": {"spark": {}}}))


@pytest.mark.parametrize("on_top", [{"name": "a\x00b"}, {"settings": {"spark": {"spark.a": "\ud800"}}}])
def test_what_is_set_on_top_is_bounded(on_top: dict[str, Any]) -> None:
    assert "field" in refusals(SubmittedDocument(plain(), on_top=on_top))


def test_places_and_refusals_of_a_caller_are_told_at_once() -> None:
    def refuses(graph: JobGraph) -> list[Problem]:
        return [Problem(f"{graph.name} is not for you")]

    job = script(settings={"artifacts": {"jars": ["/etc/passwd", f"blob:{KEY}/x.jar"]}})
    told = refusals(SubmittedDocument(job), Policy(bounded=True, places=AllowedPlaces.UPLOADS, refuses=refuses))
    assert "settings.artifacts.jars[0]" in told
    assert "jars[1]" not in told
    assert "p is not for you" in told
    assert SubmittedDocument(job).admitted(Policy(bounded=True, places=AllowedPlaces.NODE))
    assert admit(Document(job), OWN)


def test_refusals_are_not_asked_for_a_graph_that_is_wrong() -> None:
    policy = Policy(bounded=True, refuses=lambda _: pytest.fail("it is no graph"))
    assert "vertices" in refusals(SubmittedDocument({"name": "x"}), policy)


def test_files_are_the_same_in_data_and_in_the_graph_and_can_be_replaced() -> None:
    job = script(settings={"artifacts": {"py_files": ["/m.py"], "archives": [], "files": ["/f"], "jars": ["/j"]}})
    admitted = admit(Document(job))
    assert [f.text for f in admitted.files] == ["/m.py", "/f", "/j", f"blob:{KEY}/p.py"]
    assert list(files_in(job)) == list(files_of(admitted.graph)) == list(admitted.files)
    assert [f.modules for f in admitted.files] == [True, False, False, False]
    places = {f.loc: f"new{i}" for i, f in enumerate(admitted.files)}
    changed = with_files(admitted.graph, places, ["more"])
    before = json.dumps(job)
    assert admit(Document(with_files_in(job, places, ["more"]))).graph == changed
    assert [f.text for f in files_of(changed)] == ["new0", "more", "new1", "new2", "new3"]
    assert json.dumps(job) == before


@pytest.mark.parametrize(
    "data", [None, [], "x", {"settings": 1, "vertices": 2}, {"settings": {"artifacts": {"jars": 1}}}]
)
def test_files_of_what_is_no_graph(data: Any) -> None:
    assert list(files_in(data)) == []
