from __future__ import annotations

from firesteel.jobgraph import parse_graph, tree
from firesteel.jobgraph.schema import FILE, job_graph_schema, text


def test_tree_shows_shared_vertices_once() -> None:
    graph = parse_graph(
        {
            "name": "daily",
            "vertices": [
                {"kind": "source", "name": "orders", "format": "csv", "path": "/in/orders.csv"},
                {"kind": "source", "name": "users", "format": "delta", "table": "db.users"},
                {"kind": "sql", "name": "paid", "query": "SELECT *\n  FROM orders JOIN users USING (id)"},
                {"kind": "python", "name": "sums", "function": "m:f", "inputs": ["paid", "orders"]},
                {"kind": "sink", "name": "out", "input": "sums", "format": "parquet", "path": "/out"},
                {"kind": "sink", "name": "more", "input": "paid", "format": "noop", "mode": "overwrite"},
            ],
        }
    )
    assert tree(graph).splitlines() == [
        "daily (batch)",
        "├─ out  sink parquet error /out",
        "│  └─ sums  python m:f",
        "│     ├─ paid  sql SELECT * FROM orders JOIN users USING (id)",
        "│     │  ├─ orders  source csv /in/orders.csv",
        "│     │  └─ users  source delta db.users",
        "│     └─ orders (shown above)",
        "└─ more  sink noop overwrite",
        "   └─ paid (shown above)",
    ]


def test_tree_of_streams_scripts_and_long_queries() -> None:
    script = {"name": "s", "vertices": [{"kind": "script", "name": "s", "file": "/job.py", "args": ["x", 3]}]}
    assert tree(parse_graph(script)).splitlines() == ["s (batch)", "└─ s  script /job.py x 3"]
    graph = parse_graph(
        {
            "name": "s",
            "mode": "streaming",
            "vertices": [
                {"kind": "source", "name": "r", "format": "rate"},
                {"kind": "sql", "name": "q", "query": f"SELECT {'x' * 80} FROM r"},
                {
                    "kind": "sink",
                    "name": "a",
                    "input": "q",
                    "format": "noop",
                    "trigger": "5 s",
                    "output_mode": "update",
                },
                {"kind": "sink", "name": "b", "input": "q", "foreach_batch": "m:f", "trigger": "available-now"},
            ],
        }
    )
    assert tree(graph).splitlines() == [
        "s (streaming)",
        "├─ a  sink noop update every 5 s",
        f"│  └─ q  sql SELECT {'x' * 52}…",
        "│     └─ r  source rate",
        "└─ b  sink m:f append available-now",
        "   └─ q (shown above)",
    ]


def test_tree_of_a_broken_graph_still_ends() -> None:
    graph = parse_graph(
        {
            "name": "x",
            "vertices": [
                {"kind": "sql", "name": "a", "query": "SELECT * FROM b"},
                {"kind": "sql", "name": "b", "query": "SELECT * FROM a"},
                {"kind": "python", "name": "p", "function": "m:f", "inputs": ["gone"]},
            ],
        }
    )
    assert tree(graph).splitlines() == ["x (batch)", "└─ p  python m:f", "   └─ gone (missing)"]


def test_schema_file_is_fresh() -> None:
    assert FILE.read_text("utf-8") == text(), "run: python -m firesteel.jobgraph.schema"


def test_schema_refers_only_to_what_it_defines_and_demands_the_tags() -> None:
    schema = job_graph_schema()
    references = set()

    def walk(node: object) -> None:
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                references.add(node["$ref"])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(schema)
    assert references == {f"#/$defs/{name}" for name in schema["$defs"]}
    for kind in ("Source", "Sql", "Python", "Sink", "Script"):
        assert "kind" in schema["$defs"][kind]["required"]
    assert "schema" in schema["$defs"]["Source"]["properties"]
    assert schema["properties"]["variables"]["type"] == "object"
    assert schema["additionalProperties"] is False
