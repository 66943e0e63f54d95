"""POST /jobs: what is accepted, as whose job, and how a repetition is told from another job."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.rest.desk import ADMIN, Client, Desk
from tests.rest.native_people import ALICE, BOB, EYE, MARKUP, ONE, graph, plain, put

from firesteel.errors import DuplicateJobError, InvalidPipelineError
from firesteel.jobgraph.admission import SubmittedDocument
from firesteel.rest.context import Caller
from firesteel.rest.native.graph_checks import SMALL
from firesteel.rest.native.submit import accept, admit
from firesteel.sandbox import landlock
from firesteel.sandbox.owners import below
from firesteel.savepoint.manifest import Manifest
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.types import JobID

YAML = """
name: etl
vertices:
  - {kind: source, name: orders, format: csv, path: /data/in}
  - {kind: sql, name: big, query: SELECT * FROM orders WHERE amount > 100}
  - {kind: sink, name: out, input: big, format: parquet, path: /data/out}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def alice(desk: Desk) -> Client:
    return desk.client(ALICE)


def store(desk: Desk, content: bytes, owner: str) -> str:
    async def chunks() -> AsyncIterator[bytes]:
        yield content

    return asyncio.run(desk.blobs.put(chunks(), owner=owner)).key


def test_a_graph_is_accepted_completed_and_becomes_the_callers_job(desk: Desk, alice: Client) -> None:
    before = time.time()
    answer = alice.post("/jobs", json={"jobId": ONE, "graph": plain(), "priority": 7, "clientHeartbeatTimeout": 30_000})
    assert answer.status_code == 202
    assert answer.json() == {"jobUrl": f"/jobs/{ONE}", "jobId": ONE, "status": "INITIALIZING"}
    [submitted] = desk.gateway.submitted
    assert (submitted.job_id, submitted.owner, submitted.priority) == (ONE, "alice", 7)
    assert submitted.initial_client_heartbeat_timeout == 30.0
    assert submitted.submitted_at >= before
    assert submitted.graph == graph()  # the inputs of the query were found


def test_an_admin_of_everybody_submits_under_its_own_name(desk: Desk) -> None:
    assert desk.client(ADMIN).post("/v1/jobs", json={"graph": plain()}).status_code == 202
    assert desk.gateway.submitted[0].owner == "root"


def test_the_same_pipeline_as_yaml_is_the_same_job(desk: Desk, alice: Client) -> None:
    headers = {"content-type": "application/yaml; charset=utf-8"}
    answer = alice.post(f"/jobs?jobId={ONE.upper()}&priority=3", content=YAML, headers=headers)
    assert (answer.status_code, answer.json()["jobId"]) == (202, ONE)
    assert desk.gateway.submitted[0].priority == 3
    again = alice.post("/jobs", json={"jobId": ONE, "priority": 3, "graph": plain()})
    assert again.status_code == 202
    assert len(desk.gateway.submitted) == 1


def test_a_finished_graph_is_taken_literally_and_variables_only_where_there_are_any(desk: Desk, alice: Client) -> None:
    literal = plain()
    literal["vertices"][1]["query"] = "SELECT '${HOME} $${x}' FROM orders"
    assert alice.post("/jobs", json={"graph": literal}).status_code == 202
    templated = plain(variables={"day": None, "limit": 5})
    templated["vertices"][1]["query"] = "SELECT '${day}', '$${x}' FROM orders LIMIT ${limit}"
    assert alice.post("/jobs", json={"graph": templated, "variables": {"day": "2026-01-01"}}).status_code == 202
    queries = [s.graph.by_name["big"].query for s in desk.gateway.submitted]  # type: ignore[union-attr]
    assert queries == [
        "SELECT '${HOME} $${x}' FROM orders",
        "SELECT '2026-01-01', '${x}' FROM orders LIMIT 5",
    ]


def test_a_repetition_is_answered_alike_and_another_graph_under_the_id_is_refused(desk: Desk, alice: Client) -> None:
    first = alice.post("/jobs", json={"jobId": ONE, "graph": plain()})
    assert alice.post("/jobs", json={"jobId": ONE, "graph": plain()}).json() == first.json()
    other = alice.post("/jobs", json={"jobId": ONE, "graph": plain("another")})
    assert other.status_code == 409
    assert len(desk.gateway.submitted) == 1


def test_an_idempotency_key_stands_for_an_id_of_its_owner(desk: Desk, alice: Client) -> None:
    headers = {"Idempotency-Key": "nightly 2026-01-01"}
    first = alice.post("/jobs", json={"graph": plain()}, headers=headers)
    assert first.json()["jobId"] != hashlib.sha256(b"alice\0nightly 2026-01-01").hexdigest()[:32]  # for all to tell
    assert alice.post("/jobs", json={"graph": plain()}, headers=headers).json() == first.json()
    theirs = desk.client(BOB).post("/jobs", json={"graph": plain()}, headers=headers)
    assert theirs.status_code == 202
    assert theirs.json()["jobId"] != first.json()["jobId"]
    assert [s.owner for s in desk.gateway.submitted] == ["alice", "bob"]
    assert alice.post("/jobs", json={"graph": plain("x")}, headers=headers).status_code == 409
    assert alice.post("/jobs", json={"graph": plain()}, headers={"Idempotency-Key": "k" * 300}).status_code == 400


def test_somebody_elses_job_under_the_id_is_a_conflict_that_tells_nothing(desk: Desk) -> None:
    put(desk, ONE, owner="alice", status=JobStatus.RUNNING)
    # The very same graph too: bob must not be told that his job runs, nor that alice's looks like his.
    for submitted in (graph(), graph("other")):
        body = {"jobId": ONE, "graph": submitted.model_dump(mode="json", by_alias=True, exclude_none=True)}
        answer = desk.client(BOB).post("/jobs", json=body)
        assert answer.status_code == 409
        assert answer.json() == {"errors": [f"job id {ONE} cannot be used; choose a new one"]}


def test_one_who_was_faster_with_the_id_is_not_described_either(desk: Desk) -> None:
    async def meanwhile(_: Submission) -> None:
        put(desk, ONE, owner="alice")
        raise DuplicateJobError(f"job id {ONE} belongs to another job, which runs (RUNNING); choose a new one")

    desk.gateway.submit_job = meanwhile  # type: ignore[method-assign,assignment]
    answer = desk.client(BOB).post("/jobs", json={"jobId": ONE, "graph": plain()})
    assert answer.status_code == 409
    assert "RUNNING" not in answer.text


def test_viewers_submit_nothing(desk: Desk) -> None:
    assert desk.client(EYE).post("/jobs", json={"graph": plain()}).status_code == 403
    assert not desk.gateway.submitted


def test_a_node_that_does_not_lead_accepts_nothing(desk: Desk) -> None:
    desk.node.leads = False
    answer = desk.client(ALICE).post("/jobs", json={"graph": plain()})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_a_flink_program_is_read_to_its_end_and_refused_in_words(desk: Desk, alice: Client) -> None:
    answer = alice.post("/jobs", files={"request": b"{}", "jobGraph": b"\xac\xed\x00\x05" * 50_000})
    assert answer.status_code == 400
    [message] = answer.json()["errors"]
    assert "Spark jobs, not Flink programs" in message
    assert "firesteel run" in message


# -- what is wrong is told, all of it -----------------------------------------------------------------------------------


def test_every_problem_of_a_graph_is_an_entry_that_names_vertex_and_field(desk: Desk, alice: Client) -> None:
    bad = plain()
    bad["vertices"][0]["path"] = "data/in"
    bad["vertices"][1]["query"] = "SELECT * FROM ordres"
    bad["vertices"][2]["mod"] = "append"
    bad["settings"] = {"artifacts": {"py_files": ["cleaning.py"]}}
    answer = alice.post("/jobs", json={"graph": bad})
    assert answer.status_code == 400
    errors = answer.json()["errors"]
    assert len(errors) == 4
    for vertex, field in (("orders", "path"), ("big", "query"), ("out", "mod")):
        assert any(f"vertex '{vertex}', field '{field}'" in e for e in errors), errors
    assert any("field 'settings.artifacts.py_files[0]'" in e for e in errors)
    assert not desk.gateway.submitted


@pytest.mark.parametrize("path", ["in", "./in", "../in", "~/in", "file:in", "C:\\in", "file:../x"])
def test_relative_paths_are_refused(alice: Client, path: str) -> None:
    bad = plain()
    bad["vertices"][2]["path"] = path
    answer = alice.post("/jobs", json={"graph": bad})
    assert answer.status_code == 400
    assert "vertex 'out', field 'path'" in answer.json()["errors"][0]
    assert "absolute path, or a URL" in answer.json()["errors"][0]


def test_a_relative_path_in_an_option_or_from_a_variable_is_refused_too(alice: Client) -> None:
    option = plain()
    option["vertices"][0] = {"kind": "source", "name": "orders", "format": "kafka", "options": {"Path": "x/y"}}
    assert "options.Path" in alice.post("/jobs", json={"graph": option}).json()["errors"][0]
    working = plain(settings={"directory": "here", "restore": {"path": "savepoint-1"}})
    found = " ".join(alice.post("/jobs", json={"graph": working}).json()["errors"])
    assert "settings.directory" in found
    assert "settings.restore.path" in found
    variable = plain()
    variable["vertices"][0]["path"] = "${where}"
    answer = alice.post(
        "/jobs", json={"graph": {**variable, "variables": {"where": None}}, "variables": {"where": "in"}}
    )
    assert "'in' is a relative path" in answer.json()["errors"][0]


@pytest.mark.parametrize("path", ["/in", "s3a://b/in", "file:/in", "file:///in", "hdfs://h:1/in", "abfss://c@a/x"])
def test_absolute_paths_and_urls_are_taken(alice: Client, path: str) -> None:
    good = plain()
    good["vertices"][0]["path"] = path
    assert alice.post("/jobs", json={"graph": good}).status_code == 202


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "field 'graph'"),
        ({"graph": []}, "field 'graph'"),
        ({"graph": plain(), "prioritty": 1}, "field 'prioritty'"),
        ({"graph": plain(), "priority": 2**31}, "field 'priority'"),
        ({"graph": plain(), "jobId": "1"}, "field 'jobId'"),
        ({"graph": plain(), "clientHeartbeatTimeout": 0}, "field 'clientHeartbeatTimeout'"),
        ({"graph": plain(), "variables": {"a": []}}, "field 'variables.a"),
        ({"graph": plain(), "variables": {"a": "b"}}, "'a' was given"),
        ({"graph": {}}, "field 'name'"),
        ({"graph": plain(name=MARKUP * 20)}, "field 'name'"),
        ({"graph": plain(name="a\nb")}, "control character"),
        ({"graph": plain(vertices=[])}, "field 'vertices'"),
        ({"graph": plain(parallelism=10**30)}, "field 'parallelism'"),
        ({"graph": plain(description="a\0b")}, "U+0000"),
    ],
)
def test_bad_requests_are_answered_with_the_field(alice: Client, body: Any, where: str) -> None:
    answer = alice.post("/jobs", json=body)
    assert answer.status_code == 400
    assert where in " ".join(answer.json()["errors"])


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b'"x"', b"{", b"\xff\xfe", b'{"graph": {"name": "\\ud800"}}'])
def test_bodies_that_are_no_submission_are_bad_requests(alice: Client, raw: bytes) -> None:
    assert alice.post("/jobs", content=raw).status_code == 400


def test_markup_in_a_name_comes_back_as_json(alice: Client) -> None:
    answer = alice.post("/jobs", json={"graph": plain(name=MARKUP)})
    assert answer.status_code == 202
    shown = alice.get(f"{answer.json()['jobUrl']}/execution-graph")
    assert shown.headers["content-type"] == "application/json; charset=UTF-8"
    assert shown.json()["name"] == MARKUP


@pytest.mark.parametrize(
    "name", ["o'; DROP TABLE x", "a b", "`orders`", "orders--", "1st", "ordérs", "a" * 129, "orders\n"]
)
def test_names_of_vertices_are_plain_identifiers(alice: Client, name: str) -> None:
    bad = plain()
    bad["vertices"][0]["name"] = name
    assert alice.post("/jobs", json={"graph": bad}).status_code == 400


# -- files and settings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "file",
    [
        "/etc/passwd",
        "cleaning.py",
        "file:///etc/passwd",
        "http://169.254.169.254/latest/meta-data",
        "https://example.com/x.py",
        "s3a://bucket/x.py",
        "blob:abc/x.py",
        f"blob:{'a' * 64}/../x.py",
        f"blob:{'a' * 64}",
        f"BLOB:{'a' * 64}/x.py",
        f"blob:{'a' * 64}/x.py#y",
    ],
)
@pytest.mark.parametrize("field", ["py_files", "archives", "files", "jars", "script"])
def test_files_come_from_uploads_only(desk: Desk, field: str, file: str) -> None:
    if field == "script":
        job: dict[str, Any] = {"name": "s", "vertices": [{"kind": "script", "name": "main", "file": file}]}
    else:
        job = plain(settings={"artifacts": {field: [file]}})
    for caller in (ALICE, ADMIN):
        answer = desk.client(caller).post("/jobs", json={"graph": job})
        if caller is ADMIN and file == "/etc/passwd":
            assert answer.status_code == 202  # an admin has the files of the node anyway
            continue
        assert answer.status_code == 400
        assert "blob:<sha256>/<name>" in " ".join(answer.json()["errors"])
        assert not desk.gateway.submitted


def test_an_uploaded_file_can_be_named_by_its_owner_and_is_absent_to_others(desk: Desk) -> None:
    key = store(desk, b"print('hello')\n", "alice")
    job = {"name": "s", "vertices": [{"kind": "script", "name": "main", "file": f"blob:{key}/main.py"}]}
    refused = desk.client(BOB).post("/jobs", json={"graph": job})
    assert refused.status_code == 400
    assert key in refused.text
    for client in (desk.client(ALICE), desk.client(ADMIN)):
        assert client.post("/jobs", json={"graph": job}).status_code == 202


def test_a_repetition_needs_its_files_no_more(desk: Desk) -> None:
    key = store(desk, b"x = 1\n", "alice")
    job = plain(settings={"artifacts": {"py_files": [f"blob:{key}/m.py"]}})
    first = desk.client(ALICE).post("/jobs", json={"jobId": ONE, "graph": job})
    asyncio.run(desk.blobs.delete(first.status_code == 202 and key, "alice"))  # type: ignore[arg-type]
    again = desk.client(ALICE).post("/jobs", json={"jobId": ONE, "graph": job})
    assert again.json() == first.json()
    assert desk.client(ALICE).post("/jobs", json={"graph": job}).status_code == 400


def test_spark_settings_of_callers_who_are_not_admin_are_checked(desk: Desk) -> None:
    dangerous = plain(settings={"spark": {"spark.sql.execution.pyspark.python": "/tmp/evil"}})
    refused = desk.client(ALICE).post("/jobs", json={"graph": dangerous})
    assert refused.status_code == 400
    assert "spark.sql.execution.pyspark.python" in refused.text
    assert desk.client(ADMIN).post("/jobs", json={"graph": dangerous}).status_code == 202
    harmless = plain(settings={"spark": {"spark.sql.shuffle.partitions": 5}})
    assert desk.client(ALICE).post("/jobs", json={"graph": harmless}).status_code == 202


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (
            plain(settings={"spark": {"spark.sql.execution.pyspark.python": "/tmp/x"}}),
            "spark.sql.execution.pyspark.python",
        ),
        (plain(settings={"directory": "/etc"}), "settings.directory"),
    ],
)
def test_a_graph_that_a_worker_checks_is_refused_what_a_small_one_is(
    desk: Desk, job: dict[str, Any], reason: str
) -> None:
    large = {**job, "description": "x" * 2 * SMALL}
    for graph_of_job in (job, large):
        refused = desk.client(ALICE).post("/jobs", json={"graph": graph_of_job})
        assert refused.status_code == 400
        assert reason in refused.text
    assert desk.client(ADMIN).post("/jobs", json={"graph": large}).status_code == 202


def test_every_way_in_is_admitted_alike(desk: Desk) -> None:
    """`/jars/:jarid/run` makes its document itself."""
    caller = Caller(ALICE, desk.context.gateway)
    bad = plain(settings={"artifacts": {"jars": ["/etc/passwd"]}, "spark": {"spark.driver.extraJavaOptions": "-x"}})
    with pytest.raises(InvalidPipelineError) as refused:
        asyncio.run(admit(desk.context, caller, SubmittedDocument(bad)))
    assert "settings.artifacts.jars[0]" in str(refused.value)
    good = asyncio.run(admit(desk.context, caller, SubmittedDocument(plain())))
    status = asyncio.run(accept(desk.context, caller, good, job_id=JobID(ONE), priority=2, heartbeat=1.5))
    assert status is JobStatus.INITIALIZING
    [submitted] = desk.gateway.submitted
    assert (submitted.priority, submitted.initial_client_heartbeat_timeout) == (2, 1.5)


def stream(path: str) -> dict[str, Any]:
    return {
        "name": "goes on",
        "mode": "streaming",
        "settings": {"restore": {"path": path}},
        "vertices": [
            {"kind": "source", "name": "ticks", "format": "rate"},
            {"kind": "sink", "name": "out", "input": "ticks", "format": "noop"},
        ],
    }


def savepoint_of(job_id: str, directory: Path) -> str:
    directory.mkdir(parents=True)
    manifest = Manifest(JobID(job_id), "etl", "f" * 32, 1.0, {}, "data-00000000", {})
    (directory / "_savepoint.json").write_bytes(manifest.to_bytes())
    return str(directory)


def test_nobody_starts_from_a_savepoint_of_another_owner(desk: Desk, alice: Client) -> None:
    """S36: neither by its path, nor by guessing whether there is one."""
    assert alice.post("/jobs", json={"jobId": ONE, "graph": plain()}).status_code == 202
    savepoints = Path(below(desk.configuration.state.savepoints_dir, "alice"))
    path = savepoint_of(ONE, savepoints / "savepoint-1")
    nowhere = str(savepoints / "nowhere")
    bob = desk.client(BOB)
    refused = bob.post("/jobs", json={"graph": stream(path)})
    absent = bob.post("/jobs", json={"graph": stream(nowhere)})
    assert (refused.status_code, absent.status_code) == (400, 400)
    assert refused.text.replace(path, "X") == absent.text.replace(nowhere, "X")
    assert alice.post("/jobs", json={"graph": stream(path)}).status_code == 202
    told = desk.client(ADMIN).post("/jobs", json={"graph": stream(nowhere)})
    assert told.status_code == 400
    assert "there is no savepoint at" in told.text


@pytest.mark.skipif(landlock.version() < landlock.LEAST_VERSION, reason="needs Landlock: Linux 6.2 or later")
def test_a_restore_opens_what_its_owner_may_open(desk: Desk, alice: Client, tmp_path: Path) -> None:
    """Also when it is a savepoint of hers that stands, or is linked to, where her jobs may not go."""
    assert alice.post("/jobs", json={"jobId": ONE, "graph": plain()}).status_code == 202
    elsewhere = savepoint_of(ONE, tmp_path / "elsewhere")
    of_bob = savepoint_of(ONE, Path(below(desk.context.configuration.state.savepoints_dir, "bob")) / "savepoint-1")
    link = Path(below(desk.context.configuration.state.savepoints_dir, "alice")) / "savepoint-2"
    link.parent.mkdir(parents=True)
    link.symlink_to(of_bob)
    for path in (elsewhere, of_bob, str(link)):
        assert alice.post("/jobs", json={"graph": stream(path)}).status_code == 400, path


def test_only_streams_begin_with_a_savepoint(alice: Client) -> None:
    refused = alice.post("/jobs", json={"graph": {**plain(), "settings": {"restore": {"path": "/s", "what": 1}}}})
    assert refused.status_code == 400
    assert any("what" in e for e in refused.json()["errors"])
    refused = alice.post("/jobs", json={"graph": {**plain(), "settings": {"restore": {"path": "/s"}}}})
    assert any("only a streaming job can start from a savepoint" in e for e in refused.json()["errors"])
