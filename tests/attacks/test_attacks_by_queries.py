"""Plain SQL and plain YAML as tools (S39): what a query may do is to read what the job's sources and tables hold."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.attacked_node import People
from tests.attacks.graphs import BATCH, changed
from tests.attacks.test_attacks_by_settings import refused
from tests.conftest import Cluster

from firesteel.driver.artifacts import check_uploaded
from firesteel.errors import InvalidPipelineError
from firesteel.jobgraph.model import Artifacts
from firesteel.spark_connect.query_text import as_query
from firesteel.spark_connect.session import EngineSession, quiet_client_logs
from firesteel.spark_connect.settings import RESTRICTIONS

WRITING = (
    "WITH t AS (SELECT 'pwned' a) INSERT OVERWRITE DIRECTORY '{target}' USING text SELECT a FROM t",
    "FROM (SELECT 'pwned' a) INSERT OVERWRITE DIRECTORY '{target}' USING text SELECT a",
    "WITH t AS (SELECT 1 a) FROM t INSERT INTO stolen SELECT a INSERT INTO stolen SELECT a",
)
RUNNING = (
    "SELECT TRANSFORM(1) USING 'id' AS (x STRING)",
    "MAP 1 USING 'id' AS (x STRING)",
    "REDUCE 1 USING 'id' AS (x STRING)",
    "SELECT java_method('java.lang.System', 'nanoTime')",
    "SELECT `reflect`('java.lang.System', 'nanoTime')",
    "SELECT try_reflect ('java.lang.System', 'nanoTime')",
)
SPELLED_OTHERWISE = (
    "SELECT IDENTIFIER('java_method')('java.lang.System', 'nanoTime')",
    "SELECT system.builtin.reflect('java.lang.System', 'nanoTime')",
    "SELECT 1) UNION ALL (SELECT java_method('java.lang.System', 'nanoTime')",
)


@pytest.mark.parametrize("query", [*WRITING, *RUNNING])
def test_a_query_that_does_more_than_reading_is_refused_at_the_door(people: People, query: str) -> None:
    """S39"""
    vertices = [{"kind": "sql", "name": "q", "query": query.format(target="/x")}, BATCH["vertices"][2]]
    refused(people.alice, {"name": "x", "vertices": vertices}, "vertex 'q', field 'query'")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT transform(array(1), x -> x + 1) FROM a",
        "SELECT * FROM a JOIN a AS b USING (id)",
        "SELECT id AS delete, 'INSERT INTO', id AS java_method FROM a -- USING 'x'",
        "WITH insert AS (SELECT id AS reflect FROM a) SELECT reflect FROM insert",
    ],
)
def test_words_that_only_look_like_it_are_no_reason(people: People, query: str) -> None:
    assert people.alice.post("/jobs", {"graph": changed(BATCH, "vertices", 1, "query", to=query)}).status == 202


def test_functions_of_installed_modules_are_for_admins(people: People) -> None:
    """S39, S11: `subprocess:getoutput` needs no upload, and runs a shell."""
    vertices: list[dict[str, Any]] = [
        {"kind": "python", "name": "q", "function": "subprocess:getoutput", "inputs": [], "args": {"cmd": "true"}},
        {"kind": "sink", "name": "o", "input": "q", "format": "noop", "delivery": "at-least-once"},
    ]
    graph: dict[str, Any] = {"name": "x", "vertices": vertices}
    refused(people.alice, graph, "not in an uploaded file")
    module = f"blob:{people.alice.upload(b'def f(): pass')}/mine.py"
    refused(people.alice, {**graph, "settings": {"artifacts": {"py_files": [module]}}}, "not in an uploaded file")
    vertices[0] |= {"function": "mine:f", "args": {}}
    answer = people.alice.post("/jobs", {"graph": {**graph, "settings": {"artifacts": {"py_files": [module]}}}})
    assert answer.status == 202, answer


def test_a_driver_looks_into_the_uploaded_files_before_it_imports(tmp_path: Path) -> None:
    """S39: what is in an archive is seen by nobody before."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "mine.py").write_text("raise SystemExit('imported')")
    given = Artifacts(py_files=(str(tmp_path / "package"),))
    check_uploaded("mine:f", given)
    for reference in ("subprocess:getoutput", "os:system", "mine.other:f"):
        with pytest.raises(InvalidPipelineError, match="not in an uploaded file"):
            check_uploaded(reference, given)


@pytest.fixture(scope="module")
def session(cluster: Cluster) -> Iterator[EngineSession]:
    quiet_client_logs()
    session = EngineSession(cluster.engine().remote(str(uuid.uuid4())))
    yield session
    session.close()


@pytest.mark.spark
@pytest.mark.parametrize("query", WRITING)
def test_no_spelling_of_a_command_runs_where_a_query_is_expected(
    session: EngineSession, tmp_path: Path, query: str
) -> None:
    """S39: in the engine, whoever sends it."""
    target = tmp_path / "victim"
    target.mkdir()
    (target / "kept").write_text("mine")
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        session.sql(as_query(query.format(target=target)), {}).collect()
    assert [p.name for p in target.iterdir()] == ["kept"]


@pytest.mark.slow
@pytest.mark.spark
def test_queries_mean_in_parentheses_what_they_mean_without(session: EngineSession) -> None:
    for query, rows in (
        ("SELECT a FROM VALUES (2), (3), (1) t(a) ORDER BY a DESC; -- the end \\", [3, 2, 1]),
        ("WITH t AS (SELECT 1 a) FROM t SELECT a", [1]),
        ("VALUES (4) -- four", [4]),
        ("SELECT /*+ COALESCE(1) */ 1 a, 2 a", [1]),
        ("(SELECT 5) UNION ALL (SELECT 6)", [5, 6]),
    ):
        assert [row[0] for row in session.sql(as_query(query), {}).collect()] == rows, query


@pytest.mark.spark
def test_queries_of_those_who_are_not_admin_name_no_files(cluster: Cluster, tmp_path: Path) -> None:
    """S39: `FROM text.<file>` reads what the engine can, such as tokens and other people's data."""
    secret = tmp_path / "secret"
    secret.write_text("token")
    session = EngineSession(cluster.engine().remote(str(uuid.uuid4())))
    try:
        assert session.sql(as_query(f"SELECT * FROM text.`{secret}`"), {}).collect()[0][0] == "token"
        session.configure(RESTRICTIONS)
        for query in (f"SELECT * FROM text.`{secret}`", f"TABLE text.`file:{secret}`"):
            with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
                session.sql(as_query(query), {}).collect()
    finally:
        session.close()
