"""Graphs and places that are meant to keep the node busy: each is looked at within bounds, one of each owner at a time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.errors import InvalidPipelineError, RateLimitedError, SavepointError
from firesteel.jobgraph.admission import NETWORK, SubmittedDocument
from firesteel.jobgraph.limits import MAX_SQL
from firesteel.jobgraph.model import JobGraph
from firesteel.jobgraph.sqltext import read_query
from firesteel.rest.native import worker
from firesteel.rest.native.graph_checks import SMALL_SQL, GraphChecks, is_small
from firesteel.rest.native.workers import TookTooLongError, Turns, Workers

NOOP = {"kind": "sink", "name": "o", "input": "q", "format": "noop", "delivery": "at-least-once"}
MANY_TABLES = "WITH " + ", ".join(f"c{i} AS (SELECT 1)" for i in range(900)) + " SELECT * FROM "


def graph(query: str, *more: Any) -> dict[str, Any]:
    return {"name": "x", "vertices": [{"kind": "sql", "name": "q", "query": query}, NOOP, *more]}


@pytest.fixture
def checks() -> Iterator[GraphChecks]:
    made = GraphChecks()
    yield made
    made._close()


def test_a_chain_of_unions_is_read_in_one_pass() -> None:
    begun = time.process_time()
    assert read_query(" UNION ".join(["SELECT a FROM t"] * 8_000)).reads == ("t",)
    assert time.process_time() - begun < 10, "it was a minute"


def graph_of(data: Any) -> JobGraph:
    return SubmittedDocument(data).admitted(NETWORK).graph


def test_common_tables_are_looked_up_and_not_searched() -> None:
    few, many = (MANY_TABLES + ", ".join(f"c{i % 900}" for i in range(count)) for count in (100, 7_000))
    begun = time.process_time()
    assert read_query(few).reads == ()
    middle = time.process_time()
    assert read_query(many).reads == ()
    # Reading the text itself takes a part: but not each reference a look at 900 names.
    assert time.process_time() - middle < 6 * (middle - begun) + 1


def test_suggestions_end_after_the_first_problems() -> None:
    readers = [{"kind": "sql", "name": f"reader_{i}", "query": f"SELECT * FROM raeder_{i}"} for i in range(1_000)]
    begun = time.process_time()
    with pytest.raises(InvalidPipelineError) as refused:
        graph_of({"name": "x", "vertices": readers})
    assert time.process_time() - begun < 4
    assert sum("did you mean" in str(p) for p in refused.value.problems) == 20


def test_misspelt_fields_get_few_suggestions_too() -> None:
    vertex = {"kind": "sql", "name": "q", "query": "SELECT 1", **{f"quer{i}": 1 for i in range(90)}}
    with pytest.raises(InvalidPipelineError) as refused:
        graph_of({"name": "x", "vertices": [vertex]})
    assert sum("did you mean" in str(p) for p in refused.value.problems) == 20


def test_all_queries_of_a_graph_have_one_bound() -> None:
    queries = [{"kind": "sql", "name": f"q{i}", "query": f"SELECT '{'x' * 190_000}'"} for i in range(6)]
    with pytest.raises(InvalidPipelineError, match=f"a graph may have at most {MAX_SQL:,}"):
        graph_of({"name": "x", "vertices": queries})


def test_variables_that_hold_each_other_do_not_grow_without_end() -> None:
    variables = {"a0": "x" * 10} | {f"a{i}": f"${{a{i - 1}}}" * 2 for i in range(1, 26)}
    with pytest.raises(InvalidPipelineError, match="variables are too long"):
        graph_of({**graph("SELECT '${a25}'"), "variables": variables})


@pytest.mark.parametrize(
    ("data", "variables"),
    [
        (graph(f"SELECT '{'x' * SMALL_SQL}'"), None),
        (graph("SELECT 1", *({"kind": "sql", "name": f"q{i}", "query": "SELECT 1"} for i in range(500))), None),
        (graph("SELECT '${a}${a}'"), {"a": "x" * SMALL_SQL}),
        ({**graph("SELECT '${b}'"), "variables": {"a": "x" * 2000, "b": "${a}" * 5}}, None),
        ([[]] * 50_000, None),
    ],
)
def test_what_may_take_long_goes_to_a_worker(data: Any, variables: dict[str, str] | None) -> None:
    assert not is_small(SubmittedDocument(data, variables=variables))


def test_an_ordinary_graph_is_checked_here() -> None:
    assert is_small(
        SubmittedDocument(graph("SELECT * FROM VALUES (1), (2) AS t(a) WHERE a > ${least}"), variables={"least": "1"})
    )
    text = "name: x\nvertices:\n- {kind: sql, name: q, query: 'SELECT ${a}'}"
    assert is_small(SubmittedDocument(yaml=text, variables={"a": "1"}))
    assert not is_small(SubmittedDocument(yaml="a: &a [x]\nb: [*a, *a]"))


def test_what_a_caller_sets_on_top_counts_too() -> None:
    heavy = {"settings": {"spark": {f"spark.sql.x{i}": "y" for i in range(1000)}}}
    assert not is_small(SubmittedDocument(graph("SELECT 1 a"), on_top=heavy))
    assert not is_small(SubmittedDocument(yaml="name: x\nvertices: []", on_top=heavy))


def test_a_worker_says_what_the_node_would_say(checks: GraphChecks) -> None:
    large = graph(f"SELECT '{'x' * SMALL_SQL}' AS a")
    text = f"name: x\nvertices:\n- {{kind: sql, name: q, query: \"SELECT '{'x' * SMALL_SQL}' AS a\"}}\n"
    sink = "- {kind: sink, name: o, input: q, format: noop, delivery: at-least-once}\n"

    async def ask() -> None:
        here = SubmittedDocument(large).admitted(NETWORK)
        for source in (SubmittedDocument(large), SubmittedDocument(yaml=text + sink)):
            there = await checks.admit("a", source, NETWORK)
            assert (there.graph, there.canonical, there.digest()) == (here.graph, here.canonical, here.digest())
        with pytest.raises(InvalidPipelineError, match="no sink") as refused:
            await checks.admit("a", SubmittedDocument(yaml=text), NETWORK)
        assert refused.value.problems[0].field == "vertices"

    asyncio.run(ask())


def test_a_worker_that_takes_too_long_is_ended_and_the_next_one_works() -> None:
    workers = Workers(1, "test", cpu=1, seconds=60)
    slow: dict[str, Any] = {**SubmittedDocument().to_json(), "work": "admit", "places": "uploads"}
    unions = (" UNION ".join([f"SELECT {i} a"] * 10_000) for i in range(5))
    slow["data"] = {
        "name": "x",
        "vertices": [{"kind": "sql", "name": f"q{i}", "query": query} for i, query in enumerate(unions)],
    }
    quick = {**slow, "data": graph("SELECT 1 a")}

    async def ask() -> None:
        assert "result" in await workers.run("a", quick)
        with pytest.raises(TookTooLongError):
            await workers.run("a", slow)
        assert "result" in await workers.run("a", quick)

    try:
        asyncio.run(ask())
    finally:
        workers.close()


def test_a_worker_that_does_not_answer_is_ended_too() -> None:
    workers = Workers(1, "test", cpu=5, seconds=0.05)  # it takes longer to start
    try:
        with pytest.raises(TookTooLongError):
            asyncio.run(workers.run("a", {"work": "savepoint", "path": "/"}))
        assert not workers._busy
        assert not workers._idle
    finally:
        workers.close()


def test_one_owner_has_one_turn_and_leaves_the_others_theirs() -> None:
    async def play() -> None:
        turns, order, go = Turns(2, waiting=2), list[str](), asyncio.Event()

        async def work(owner: str) -> None:
            async with turns.turn(owner):
                order.append(owner)
                await go.wait()

        async with asyncio.TaskGroup() as tasks:
            for owner in ("a", "a", "a", "b"):
                tasks.create_task(work(owner))
            for _ in range(10):
                await asyncio.sleep(0)
            assert order == ["a", "b"]
            with pytest.raises(RateLimitedError):
                await work("a")
            go.set()
        assert sorted(order) == ["a", "a", "a", "b"]
        assert not turns._owners

    asyncio.run(play())


def test_whatever_a_library_makes_of_a_place_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(location: str) -> None:
        raise ZeroDivisionError(location)

    monkeypatch.setattr("firesteel.savepoint.take.find", odd)
    assert "ZeroDivisionError" in worker.answer({"work": "savepoint", "path": "webhdfs://odd"})["refused"]


@pytest.mark.parametrize("name", ["a\x85b", "\u202egnp.exe", "a\u2028b", "\u200b", "a\x9b31mb"])
def test_a_name_hides_nothing(name: str) -> None:
    with pytest.raises(InvalidPipelineError, match="an invisible one"):
        graph_of({**graph("SELECT 1 a"), "name": name})


def test_names_in_other_scripts_are_names() -> None:
    assert graph_of({**graph("SELECT 1 a"), "name": "Übung 日本 №1"}).name == "Übung 日本 №1"


@pytest.mark.parametrize("make", ["pipe", "giant", "directory", "nothing"])
def test_a_place_that_is_no_savepoint_is_refused_soon(checks: GraphChecks, tmp_path: Path, make: str) -> None:
    manifest = tmp_path / "_savepoint.json"
    match make:
        case "pipe":
            os.mkfifo(manifest)
        case "giant":
            with manifest.open("wb") as file:
                file.truncate(3 << 30)
        case "directory":
            manifest.mkdir()
    begun = time.monotonic()
    with pytest.raises(SavepointError):
        asyncio.run(checks.job_of_savepoint("a", str(tmp_path)))
    assert time.monotonic() - begun < 30
