from __future__ import annotations

import asyncio
from typing import Any

import pytest

from firesteel.lineage.column_process import ColumnProcess
from firesteel.lineage.columns import LONGEST_QUERIES, column_lineage

ORDERS = {"kind": "source", "name": "orders", "schema": "id INT, amount DOUBLE, customer INT"}
CUSTOMERS = {"kind": "source", "name": "customers", "schema": "id INT, name STRING"}


def sql(query: str, *inputs: str, name: str = "q") -> dict[str, Any]:
    return {"kind": "sql", "name": name, "query": query, "inputs": list(inputs)}


def sink(of: str = "q") -> dict[str, Any]:
    return {"kind": "sink", "name": "out", "input": of}


def origins(*vertices: dict[str, Any]) -> dict[str, list[str]]:
    found = column_lineage([*vertices]).get("out", [])
    return {c["name"]: [f"{f['vertex']}.{f['column']} {f['how']}" for f in c["from"]] for c in found}


def test_join_aggregate_and_expression() -> None:
    query = (
        "SELECT c.name, sum(o.amount) AS total, o.amount * 2 AS twice, o.id AS order_id "
        "FROM orders o JOIN customers c ON o.customer = c.id GROUP BY ALL"
    )
    assert origins(ORDERS, CUSTOMERS, sql(query, "orders", "customers"), sink()) == {
        "name": ["customers.name IDENTITY"],
        "total": ["orders.amount AGGREGATION"],
        "twice": ["orders.amount TRANSFORMATION"],
        "order_id": ["orders.id IDENTITY"],
    }


def test_through_several_vertices_a_star_and_a_common_table() -> None:
    first = sql("WITH big AS (SELECT * FROM orders WHERE amount > 1) SELECT * FROM big", "orders", name="big")
    second = sql("SELECT upper(cast(id AS string)) AS key, amount FROM big", "big")
    assert origins(ORDERS, first, second, sink()) == {
        "key": ["orders.id TRANSFORMATION"],
        "amount": ["orders.amount IDENTITY"],
    }
    assert list(origins(ORDERS, sink("orders"))) == ["id", "amount", "customer"]


@pytest.mark.parametrize(
    "vertices",
    [
        [{**ORDERS, "schema": None}, sql("SELECT * FROM orders", "orders"), sink()],
        [ORDERS, {"kind": "python", "name": "q", "function": "m:f", "inputs": ["orders"]}, sink()],
        [ORDERS, sql("SELECT nothing FROM orders", "orders"), sink()],
        [ORDERS, sql("SELECT FROM WHERE (", "orders"), sink()],
        [ORDERS, sql("SELECT 1 -- " + "x" * LONGEST_QUERIES, "orders"), sink()],
        [sql("SELECT * FROM q", "q"), sink()],
    ],
)
def test_what_cannot_be_known_is_not_said(vertices: list[dict[str, Any]]) -> None:
    assert origins(*vertices) == {}


def test_process_finds_the_same_and_one_that_takes_too_long_is_ended() -> None:
    vertices = [ORDERS, sql("SELECT id FROM orders", "orders"), sink()]

    async def run() -> None:
        assert await ColumnProcess(60).columns(vertices) == column_lineage(vertices)
        assert await ColumnProcess(0.001).columns(vertices) == {}

    asyncio.run(run())
