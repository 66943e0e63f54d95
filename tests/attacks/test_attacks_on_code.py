"""Text that wants to be code: pages, stored objects, archives, SQL (S15, S16, S17, S18)."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from sqlglot import exp
from tests.attacks.attacked_node import UNLIMITED, AttackedNode, People, routes, until
from tests.attacks.graphs import BATCH

import firesteel
from firesteel.attempts.events import ProgressTail
from firesteel.driver.batch import _merge
from firesteel.jobgraph.model import Sink
from firesteel.rest.answers import encode
from firesteel.rest.native.documentation import render_page
from firesteel.types import vertex_id

pytestmark = pytest.mark.xdist_group("attacks")

SOURCE = Path(firesteel.__file__).parent
MARKUP = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


# -- S15: markup --------------------------------------------------------------------------------------------------------


def test_markup_is_inert_in_every_view(node: AttackedNode, people: People) -> None:
    """S15: CVE-2021-26544, CVE-2022-31777. Only JSON and plain text, which browsers must take for that, and downloads."""
    graph = {**BATCH, "name": MARKUP, "description": MARKUP}
    graph["vertices"] = [{**graph["vertices"][0], "path": f"/{MARKUP}", "description": MARKUP}, *graph["vertices"][1:]]
    job = people.alice.submit(graph)
    first = node.cluster / "jobs" / job / "attempts" / "1" / "output"
    until((first / "stdout.log").exists)
    (first / "stdout.log").write_text(f"{MARKUP}\n")
    key = people.alice.upload(f"<html>{MARKUP}</html>".encode())
    seen = 0
    for route in routes():
        if route.method != "GET" or route.streams or route.changes:
            continue
        answer = people.alice.get(route.filled(jobid=job, applicationid=job, vertexid=vertex_id("a"), key=key))
        kind = answer.headers["content-type"].partition(";")[0]
        allowed = {"application/json", "text/plain", "application/octet-stream"}
        assert kind in (allowed if route.path != "/docs" else {"text/html"}), route
        assert answer.headers["x-content-type-options"] == "nosniff"
        if kind == "application/octet-stream":
            assert answer.headers["content-disposition"].startswith("attachment")
        if kind == "text/html":
            assert "alert(" not in answer.text
        seen += MARKUP in answer.text
    assert seen > 5
    refused = people.alice.get(f"/jobs/{job}/logs/<script>")
    assert refused.headers["content-type"].startswith("application/json")
    assert people.alice.get("/<script>alert(1)</script>").headers["content-type"].startswith("application/json")


def test_the_page_of_the_document_runs_nothing(people: People) -> None:
    """S15: whatever the document says, and under a policy that lets nothing run or be fetched."""
    page = people.alice.get("/docs")
    assert not re.search(r"<script|\son\w+=|javascript:|<iframe|<object|<link|src=", page.text, re.IGNORECASE)
    assert "script-src" not in page.headers["content-security-policy"]
    assert "default-src 'none'" in page.headers["content-security-policy"]
    parameter = {"name": MARKUP, "in": MARKUP, "description": MARKUP, "schema": {"enum": [MARKUP]}}
    operation = {"tags": [MARKUP], "summary": MARKUP, "description": MARKUP, "parameters": [parameter]}
    body = {"content": {MARKUP: {}}, "description": MARKUP}
    poisoned = render_page(
        {
            "info": {"title": MARKUP, "version": MARKUP, "description": MARKUP},
            "paths": {f"/{MARKUP}": {"get": {**operation, "requestBody": body, "responses": {MARKUP: {}}}}},
        }
    )
    assert poisoned.count("alert(1)") > 8
    assert "<script" not in poisoned
    assert "<img" not in poisoned


# -- S16: objects -------------------------------------------------------------------------------------------------------

LOADERS = {"pickle", "cloudpickle", "_pickle", "marshal", "shelve", "dill", "joblib", "jsonpickle", "tarfile"}
RUNNERS = {"eval", "exec", "__import__", "compile", "execfile"}
SHELLS = {
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "asyncio.create_subprocess_shell",
}
YAML = {"load", "load_all", "full_load", "unsafe_load", "Loader", "FullLoader", "UnsafeLoader", "CLoader"}
UNPACKERS = {"extractall", "extract"}

ALLOWED = {
    ("driver/artifacts.py", "import cloudpickle"): "a job's own function, on its way to its own workers",
    ("driver/artifacts.py", "importlib.import_module"): "a job's own function, in its own driver",
    ("driver/script.py", "import runpy"): "a job's own program, in its own driver",
    ("driver/zygote.py", "importlib.import_module"): "modules that are named there",
    ("driver/children.py", "importlib.import_module"): "modules that are named there",
    ("ha/services.py", "importlib.import_module"): "a backend that the configuration of the node names",
    ("ha/kubernetes/connection.py", "importlib.import_module"): "a package that is named there",
    ("jobgraph/extract.py", "import runpy"): "the user's own file, on the user's side, in a process of its own",
    ("engines/java.py", "importlib.import_module"): "a package that is named there",
    ("cli/lazy.py", "importlib.import_module"): "commands that are named there",
    ("cli/shell.py", "compile"): "what the user typed after `-e`, in the user's own process",
    ("cli/shell.py", "exec"): "what the user typed after `-e`, in the user's own process",
}


def test_nothing_that_somebody_stored_becomes_an_object_or_a_command() -> None:
    """S16: CVE-2025-54920, CVE-2017-12612; S11: no shell. What there is, is listed above with its reason."""
    found = {(str(path.relative_to(SOURCE)), use) for path in SOURCE.rglob("*.py") for use in uses(path)}
    assert found == set(ALLOWED)


def uses(path: Path) -> Iterator[str]:
    """Whatever turns bytes or text into code."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                for name in names:
                    if name.name.partition(".")[0] in LOADERS | {"runpy"}:
                        yield f"import {name.name}"
            case ast.ImportFrom(module=module, names=names):
                for name in names:
                    if (module or "").partition(".")[0] in LOADERS | {"runpy"} or name.name in LOADERS:
                        yield f"import {name.name}"
            case ast.Call(func=ast.Name(id=name)) if name in RUNNERS:
                yield name
            case ast.Attribute(value=ast.Name(id="yaml"), attr=name) if name in YAML:
                yield f"yaml.{name}"
            case ast.Call(func=ast.Attribute(attr=name)) if name in UNPACKERS:
                yield name
            case ast.Attribute() if (dotted := ast.unparse(node)) in SHELLS or dotted == "importlib.import_module":
                yield dotted
            case ast.keyword(arg="shell", value=ast.Constant(value=True)):
                yield "shell=True"
            case _:
                continue


def test_the_search_for_code_finds_it(tmp_path: Path) -> None:
    """Else an empty result would say nothing."""
    text = """
import pickle, os, subprocess, yaml, importlib
from pyspark import cloudpickle
eval("1"); exec("1"); yaml.load("x"); os.system("id"); subprocess.run("id", shell=True); importlib.import_module("x")
archive.extractall("/")
"""
    (tmp_path / "evil.py").write_text(text)
    assert set(uses(tmp_path / "evil.py")) == {
        *("import pickle", "import cloudpickle", "eval", "exec", "yaml.load", "os.system", "shell=True"),
        *("importlib.import_module", "extractall"),
    }


def test_objects_in_yaml_are_refused(people: People, tmp_path: Path) -> None:
    """S16"""
    mark = tmp_path / "mark"
    for text in (
        f"!!python/object/apply:os.system ['touch {mark}']",
        f"name: !!python/object/apply:subprocess.check_output [[touch, {mark}]]\nvertices: []",
        f"name: !!python/object/new:os.system [touch {mark}]",
        "name: !!python/name:os.system\nvertices: []",
        f"a: !!python/module:os\nname: !<tag:yaml.org,2002:python/object/apply:os.system> ['touch {mark}']",
    ):
        answer = people.alice.post("/jobs", text.encode(), {"content-type": "application/yaml"})
        assert answer.status == 400
        program = people.alice.upload_program("p.yaml", text.encode())
        assert people.alice.post(f"/jars/{program}/run", {}).status == 400
    for body in (
        b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix",
        b"\xac\xed\x00\x05sr",
        b"cos\nsystem\n(S'id'\ntR.",
    ):
        assert people.alice.post("/jobs", body).status == 400
    assert not mark.exists()


ACCOUNTS = (
    "[]",
    "null",
    "{}",
    '{"type": "batch"}',
    '{"type": "batch", "vertex": "o", "rows": "x"}',
    '{"type": "batch", "vertex": [1], "rows": 1}',
    '{"type": "batch", "vertex": "o", "rows": 1, "vertices": [1]}',
    '{"type": "batch", "vertex": "o", "rows": ' + "9" * 400 + "}",
    '{"type": "so-far", "view": []}',
    '{"type": "phase", "phase": "\\ud800"}',
    '{"t": ' + "9" * 300 + ', "type": "phase", "phase": "x"}',
    "[" * 100_000,
)


def test_whatever_a_job_writes_into_its_own_account_can_be_shown(tmp_path: Path) -> None:
    """S16: the event log of an attempt is the job's to write. It spoils no view, not even of the job itself."""
    wrong = []
    for number, line in enumerate(ACCOUNTS):
        log = tmp_path / f"{number}.jsonl"
        log.write_text(f'{line}\n{{"t": 1.0, "type": "phase", "phase": "running"}}\n')
        try:
            view = ProgressTail(log).look()
            assert encode(view)
            assert view["phase"] == "running"
        except (Exception, RecursionError) as error:
            wrong.append((line[:80], error))
    assert not wrong


# -- S17: archives ------------------------------------------------------------------------------------------------------


def wrapped(job_id: str, data: Any, version: Any = 1) -> str:
    return json.dumps({"v": version, "job_id": job_id, "data": data})


UNREADABLE: dict[str, Callable[[str], str | bytes]] = {
    "nothing": lambda _: "",
    "torn": lambda job_id: wrapped(job_id, {"name": "x"})[:-5],
    "deep": lambda _: "[" * 200_000,
    "of another job": lambda _: wrapped("e" * 32, {"name": "x"}),
    "of a later version": lambda job_id: wrapped(job_id, {}, 99),
    "no version": lambda job_id: wrapped(job_id, {}, "1"),
    "a list": lambda job_id: wrapped(job_id, []),
    "a pickle": lambda _: b"cos\nsystem\n(S'touch /tmp/poisoned'\ntR.",
    "an object": lambda _: "!!python/object/apply:os.system ['touch /tmp/poisoned']",
    "a Java object": lambda _: b"\xac\xed\x00\x05sr\x00\x11java.util.HashMap",
    "no text": lambda _: b"\xff\xfe\x00\x00" * 100,
}
SHAPELESS: dict[str, Any] = {
    "empty": {},
    "half": {"status": "FINISHED"},
    "of other types": {"status": "NOPE", "vertices": 5, "graph": [], "progress": [], "failures": [1], "ended_at": "x"},
}


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AttackedNode, dict[str, str]]]:
    """A node that was started anew over details of ended jobs that somebody wrote in the place of the real ones."""
    root = tmp_path_factory.mktemp("poisoned")
    overrides = {"engine.master": "sc://localhost:9", "jobmanager.archive.fs.dir": str(root / "archive"), **UNLIMITED}
    node = AttackedNode(root / "state", overrides)
    names = [*UNREADABLE, *SHAPELESS, "good"]
    with node:
        with node.caller(node.token) as owner:
            jobs = {name: owner.submit({**BATCH, "name": "ended"}) for name in names}
            until(lambda: len(list((root / "archive").glob("*.json.gz"))) == len(jobs))
            until(lambda: len(list((node.cluster / "finished").rglob("*.json"))) == len(jobs))
        node.kill()
        for name, job_id in jobs.items():
            content = UNREADABLE[name](job_id) if name in UNREADABLE else wrapped(job_id, SHAPELESS.get(name))
            raw = content if isinstance(content, bytes) else content.encode()
            for file in (
                root / "archive" / f"{job_id}.json.gz",
                *(node.cluster / "finished").rglob(f"{job_id}-*.json"),
            ):
                if name != "good":
                    file.write_bytes(raw)
        for junk in ("x.json", f"{'e' * 32}.json.gz", f"{'e' * 32}-1.json.tmp"):
            (root / "archive" / junk).write_text("[")
        node.start()
        yield node, jobs


def views(job_id: str) -> Iterator[str]:
    for route in routes():
        if route.method == "GET" and "{jobid}" in route.path and not route.changes and not route.streams:
            yield route.filled(jobid=job_id, vertexid=vertex_id("a"))


@pytest.mark.slow
def test_an_archive_that_cannot_be_read_is_passed_over(poisoned: tuple[AttackedNode, dict[str, str]]) -> None:
    """S17: CVE-2025-54920. Told in the log; the job is still known by its result, and the others are as they were."""
    node, jobs = poisoned
    with node.caller(node.token) as owner:
        for name in UNREADABLE:
            for path in views(jobs[name]):
                answer = owner.get(path)
                assert answer.status < 500, (name, path, answer)
            assert owner.get(f"/jobs/{jobs[name]}/status").json() == {"status": "FAILED"}
            assert f"the details of job {jobs[name]} are lost" in node.log_text()
        assert owner.get(f"/jobs/{jobs['good']}").json()["name"] == "ended"
        assert {j["status"] for j in owner.get("/jobs").json()["jobs"]} == {"FAILED"}
        assert owner.get("/history").status == 200
    assert not Path("/tmp/poisoned").exists()


def test_details_of_no_shape_are_passed_over_too(poisoned: tuple[AttackedNode, dict[str, str]]) -> None:
    """S17: they are JSON, and of the right job; only what is in them makes no sense."""
    node, jobs = poisoned
    with node.caller(node.token) as owner:
        failed = [path for name in SHAPELESS for path in views(jobs[name]) if owner.get(path).status >= 500]
    assert not failed


# -- S18: SQL -----------------------------------------------------------------------------------------------------------

INJECTIONS = (
    "'; DROP TABLE state; --",
    '"; DROP TABLE state; --',
    "x' OR '1'='1",
    "`; DROP TABLE state; --",
    "$$; SELECT 1; $$",
    "%s %(x)s {0} :name ?",
    "\\'; --",
)


def test_names_that_are_sql_are_names(people: People) -> None:
    """S18: in the store of the cluster. Each is kept and found as it was written."""
    jobs = {people.alice.submit({**BATCH, "name": text, "description": text}): text for text in INJECTIONS}
    for text in INJECTIONS:
        key = {"idempotency-key": text}
        first, second = (people.alice.post("/jobs", {"graph": BATCH}, key).json()["jobId"] for _ in range(2))
        assert first == second
    listed = {j["jid"]: j["name"] for j in people.alice.get("/jobs/overview").json()["jobs"]}
    assert {job: listed[job] for job in jobs} == jobs


@pytest.mark.parametrize("name", ["a b", "a`b", "a;b", "a--b", "a.b", "`a`", "a'b", "1a", "a\nb", "select*", ""])
def test_names_that_reach_spark_as_tables_are_plain_words(people: People, name: str) -> None:
    """S18: a vertex becomes a view under its name."""
    vertices = [{**BATCH["vertices"][0], "name": name}, {**BATCH["vertices"][2], "input": name}]
    assert people.alice.post("/jobs", {"graph": {"name": "x", "vertices": vertices}}).status == 400


class Recorded:
    """A session that only notes what it was to run."""

    def __init__(self) -> None:
        self.said = ""

    def sql_command(self, query: str) -> str:
        self.said = query
        return query

    def createOrReplaceTempView(self, name: str) -> None:
        assert re.fullmatch(r"\w+", name)


def merge_of(**sink: Any) -> exp.Expression:
    session: Any = Recorded()
    _merge(
        Sink.model_validate({"kind": "sink", "name": "o", "input": "a", "format": "delta", **sink}), session, session
    )
    statements = sqlglot.parse(session.said, dialect="spark")
    assert len(statements) == 1
    assert isinstance(statements[0], exp.Expression)
    return statements[0]


@pytest.mark.parametrize(
    "key",
    [
        "id` OR true OR t.`id",
        "a``b",
        "id OR true",
        "a.b",
        "a; DROP TABLE x",
    ],
)
def test_keys_of_a_merge_are_columns(key: str) -> None:
    """S18: CVE-2026-35194. Whatever a key is called, it is one column on either side."""
    merge = merge_of(path="/t", mode="upsert", keys=[key])
    assert isinstance(merge, exp.Merge)
    condition = merge.args["on"]
    assert isinstance(condition, exp.NullSafeEQ)
    assert [c.name for c in condition.find_all(exp.Column)] == [key, key]


OTHER_MERGE = "AS t USING x AS s ON true WHEN MATCHED THEN DELETE --"


@pytest.mark.parametrize(
    "table",
    [
        f"a {OTHER_MERGE}",
        "a",
        "a.b.c",
        "`a b`.`c``d`",
    ],
)
def test_the_table_of_a_merge_is_a_table(table: str) -> None:
    """S18"""
    merge = merge_of(table=table, mode="upsert", keys=["id"])
    assert isinstance(merge, exp.Merge)
    assert merge.args["using"].name.startswith("__firesteel_upsert_")
    assert merge.this.alias == "t"


@pytest.mark.parametrize(
    "path",
    [
        f"/t` {OTHER_MERGE}",
        "/a b",
        "/a'b",
    ],
)
def test_the_path_of_a_merge_is_a_path(path: str) -> None:
    """S18"""
    merge = merge_of(path=path, mode="upsert", keys=["id"])
    assert isinstance(merge, exp.Merge)
    assert merge.this.name == path
    assert merge.args["using"].name.startswith("__firesteel_upsert_")


def test_statements_to_the_store_are_put_together_by_nobody() -> None:
    """S18: values are parameters. No text that was formatted goes to the database."""
    for path in (SOURCE / "ha").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "exec" in node.func.attr:
                assert not any(isinstance(a, ast.JoinedStr | ast.BinOp) for a in node.args if not fixed(a)), (
                    path,
                    node.lineno,
                )
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "text":
                assert all(fixed(a) for a in node.args), (path, node.lineno)


def fixed(text: ast.expr) -> bool:
    """Written there, or put together of constants of the module."""
    match text:
        case ast.Constant():
            return True
        case ast.JoinedStr(values=parts):
            return all(fixed(part) for part in parts)
        case ast.FormattedValue(value=ast.Name(id=name)):
            return name.isupper()
        case _:
            return False
