"""Which columns of the sources become which columns of the sinks, from the text of the queries. Pure.

It needs the schemas of the sources and queries that sqlglot understands; where something is not known, nothing is said. It
is run in a process of its own (`python -m firesteel.lineage.columns`): text of callers is parsed here, which may take long.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from firesteel.jobgraph.columns import columns_of_schema

LONGEST_QUERIES = 100_000
"""Characters of all queries of a job; of more, column lineage is not looked for."""
IDENTITY, TRANSFORMATION, AGGREGATION = "IDENTITY", "TRANSFORMATION", "AGGREGATION"
_RANK = {IDENTITY: 0, TRANSFORMATION: 1, AGGREGATION: 2}

Origins = dict[tuple[str, str], str]
"""(source vertex, column) to how it becomes the column."""
Relation = dict[str, Origins]
"""The columns of a relation, in order, with their origins."""


def column_lineage(vertices: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """By sink: its columns, each with the source columns that it is made of."""
    if sum(len(v.get("query") or "") for v in vertices) > LONGEST_QUERIES:
        return {}
    by_name = {v["name"]: v for v in vertices}
    relations: dict[str, Relation | None] = {}

    def relation(name: str) -> Relation | None:
        if name not in relations:
            relations[name] = None  # a cycle, which a valid graph does not have, ends here
            vertex = by_name.get(name)
            relations[name] = None if vertex is None else _relation(vertex, relation)
        return relations[name]

    found = {}
    for sink in (v for v in vertices if v["kind"] == "sink"):
        columns = relation(sink.get("input") or "")
        if columns:
            found[sink["name"]] = [
                {
                    "name": column,
                    "from": [{"vertex": v, "column": c, "how": how} for (v, c), how in sorted(origins.items())],
                }
                for column, origins in columns.items()
            ]
    return found


def _relation(vertex: Mapping[str, Any], relation: Any) -> Relation | None:
    match vertex["kind"]:
        case "source":
            columns = columns_of_schema(vertex.get("schema") or "") if vertex.get("schema") else None
            return None if not columns else {c["name"]: {(vertex["name"], c["name"]): IDENTITY} for c in columns}
        case "sql":
            inputs = {name: relation(name) for name in vertex.get("inputs") or ()}
            if not inputs or any(columns is None for columns in inputs.values()):
                return None
            return _query(vertex["query"], inputs)
        case _:
            return None  # code


def _query(text: str, inputs: Mapping[str, Relation]) -> Relation | None:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError
    from sqlglot.lineage import lineage
    from sqlglot.optimizer.qualify import qualify

    schema: dict[str, object] = {name: dict.fromkeys(columns, "string") for name, columns in inputs.items()}
    try:
        parsed = sqlglot.parse_one(text, dialect="spark")
        qualified = qualify(parsed, schema=schema, dialect="spark", validate_qualify_columns=True)
        if not isinstance(qualified, exp.Query):
            return None
        result: Relation = {}
        for column in qualified.named_selects:
            origins: Origins = {}
            root = lineage(column, qualified.copy(), schema=schema, dialect="spark")
            _walk(root, IDENTITY, inputs, origins)
            result[column] = origins
    except (SqlglotError, ValueError, KeyError, RecursionError, AttributeError, TypeError):
        return None
    return result


def _walk(node: Any, how: str, inputs: Mapping[str, Relation], origins: Origins) -> None:
    from sqlglot import exp

    if isinstance(node.source, exp.Table) and not node.downstream:
        table = {name.lower(): columns for name, columns in inputs.items()}.get(node.source.name.lower())
        column = node.name.rpartition(".")[2].strip('"`')
        named = {c.lower(): c for c in table or ()}.get(column.lower())
        if table is None or named is None:
            raise ValueError(f"{node.source.name}.{column} is not an input")
        for origin, before in table[named].items():
            _note(origins, origin, max(how, before, key=_RANK.__getitem__))
        return
    own = _how(node.expression)
    for child in node.downstream:
        _walk(child, max(how, own, key=_RANK.__getitem__), inputs, origins)


def _how(expression: Any) -> str:
    from sqlglot import exp

    inner = expression.unalias() if isinstance(expression, exp.Expression) else expression
    if isinstance(inner, exp.Column | exp.Query | exp.Table):
        return IDENTITY
    return AGGREGATION if isinstance(inner, exp.Expression) and inner.find(exp.AggFunc) else TRANSFORMATION


def _note(origins: Origins, origin: tuple[str, str], how: str) -> None:
    before = origins.get(origin, IDENTITY)
    origins[origin] = max(how, before, key=_RANK.__getitem__)


def main() -> None:
    sys.setrecursionlimit(3000)
    sys.stdout.write(json.dumps(column_lineage(json.load(sys.stdin))))


if __name__ == "__main__":
    main()
