"""Engines, the queue, history, who asks and who leads, and the page that documents it all."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from tests.rest.desk import ADMIN, Desk
from tests.rest.native_people import ALICE, BOB, EYE, FOUR, MARKUP, ONE, THREE, TWO, asked_raw, put

from firesteel import __version__
from firesteel.dispatcher.gateway import JobOverview
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.ha.retrieval import Absence
from firesteel.resourcemanager.overview import EngineOverview, ResourceOverview
from firesteel.resourcemanager.state import EngineState
from firesteel.rest.native.documentation import HEADERS, STYLE, render_page
from firesteel.rest.native.history import page
from firesteel.rest.native.routes import ROUTERS
from firesteel.rest.security.principals import Principal
from firesteel.status import JobStatus
from firesteel.types import JobID


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def overview(engine_id: str, master: str = "local[2]", **more: Any) -> EngineOverview:
    return EngineOverview(
        engine_id=engine_id,
        master=master,
        memory="1g",
        cores=2,
        slots=4,
        free=3,
        state=EngineState.READY,
        since=12.5,
        **more,
    )


# -- engines ------------------------------------------------------------------------------------------------------------


def test_engines_are_listed(desk: Desk) -> None:
    engines = (
        overview("e1", address="127.0.0.1:15002", worker="w1", worker_name="rack-7"),
        overview("e2", "sc://host:15002/;token=hunter2secret", foreign=True),
    )
    desk.gateway.resources = ResourceOverview(engines, 3, 0)
    answer = desk.client(EYE).get("/v1/engines")
    first, second = answer.json()["engines"]
    assert first == {
        "id": "e1",
        "master": "local[2]",
        "memory": "1g",
        "cores": 2,
        "slots": 4,
        "free": 3,
        "state": "READY",
        "since": 12500,
        "address": "127.0.0.1:15002",
        "foreign": False,
        "owner": None,
        "worker": "w1",
        "worker_name": "rack-7",
    }
    assert second["foreign"] is True
    assert "hunter2secret" not in answer.text


def test_engines_of_another_owner_are_not_listed(desk: Desk) -> None:
    """S19"""
    engines = (overview("e1", owner="alice"), overview("e2", owner="bob"), overview("e3"))
    desk.gateway.resources = ResourceOverview(engines, 0, 0)

    def listed(principal: Principal) -> list[str]:
        return [e["id"] for e in desk.client(principal).get("/v1/engines").json()["engines"]]

    assert listed(EYE) == ["e1", "e3"]
    assert listed(BOB) == ["e2", "e3"]
    assert listed(ADMIN) == ["e1", "e2", "e3"]


def test_the_queue_has_the_jobs_that_the_caller_sees(desk: Desk) -> None:
    put(desk, ONE, owner="bob", status=JobStatus.CREATED, name="b")
    put(desk, TWO, owner="alice", status=JobStatus.CREATED, name=MARKUP)
    put(desk, THREE, owner="alice", status=JobStatus.RUNNING)
    desk.gateway.resources = ResourceOverview(
        (), 2, 0, {JobID(TWO): "worker b, which does not answer", JobID(ONE): "worker c"}
    )
    answer = desk.client(ALICE).get("/queue").json()
    why = "worker b, which does not answer"
    assert answer == {"waiting": 2, "jobs": [{"job_id": TWO, "name": MARKUP, "since": 1_000_000, "waits_for": why}]}
    assert [j["job_id"] for j in desk.client(ADMIN).get("/queue").json()["jobs"]] == [ONE, TWO]


# -- history ------------------------------------------------------------------------------------------------------------


def ended(number: int, at: float) -> JobOverview:
    return JobOverview(JobID(f"{number:032x}"), "n", JobStatus.FINISHED, 0.0, at, 1, 0, at)


def test_history_has_ended_jobs_of_the_caller_the_last_one_first(desk: Desk) -> None:
    put(desk, ONE, status=JobStatus.FINISHED, ended_at=1.0)
    put(desk, TWO, status=JobStatus.FAILED, ended_at=3.0)
    put(desk, THREE, status=JobStatus.RUNNING)
    put(desk, FOUR, owner="bob", status=JobStatus.CANCELED, ended_at=2.0)
    mine = desk.client(ALICE).get("/v1/history").json()
    assert [j["jid"] for j in mine["jobs"]] == [TWO, ONE]
    assert mine["next"] is None
    assert {"state", "start-time", "end-time", "duration", "tasks"} <= mine["jobs"][0].keys()
    first = desk.client(ADMIN).get("/history?limit=2").json()
    assert [j["jid"] for j in first["jobs"]] == [TWO, FOUR]
    assert first["next"] == 2000
    last = desk.client(ADMIN).get("/history?limit=2&before=2000").json()
    assert ([j["jid"] for j in last["jobs"]], last["next"]) == ([ONE], None)


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "before=-1", "before=x", f"before={10**20}"])
def test_pages_are_bounded(desk: Desk, query: str) -> None:
    assert desk.client(ALICE).get(f"/history?{query}").status_code == 400


def test_pages_together_have_every_job_once_though_many_end_in_one_millisecond() -> None:
    jobs = [ended(n, n // 7) for n in range(100)]
    newest_first = sorted(jobs, key=lambda j: (j.ended_at or 0, j.job_id), reverse=True)
    seen: list[JobOverview] = []
    before: int | None = None
    while True:
        rows, before = page(newest_first, 10, before)
        assert 0 < len(rows) < 10 + 7
        seen += rows
        if before is None:
            break
    assert sorted(seen, key=lambda j: j.job_id) == jobs
    assert [j.ended_at for j in seen] == sorted((j.ended_at for j in jobs), reverse=True)  # type: ignore[type-var]
    assert page([], 10, None) == ([], None)


# -- small questions ----------------------------------------------------------------------------------------------------


def test_who_am_i(desk: Desk) -> None:
    assert desk.client(ALICE).get("/whoami").json() == {
        "name": "alice's laptop",
        "role": "operator",
        "owner": "alice",
        "serves": "cluster",
    }
    assert desk.client(ADMIN).get("/v1/whoami").json() == {
        "name": "root",
        "role": "admin",
        "owner": "*",
        "serves": "cluster",
    }


def test_health_needs_neither_a_caller_nor_a_leader(desk: Desk) -> None:
    desk.node.leads = False
    for path in ("/healthz", "/v1/healthz"):
        assert asked_raw(desk, None, path) == (200, b'{"status":"ok"}')  # type: ignore[arg-type]
        assert desk.client(ALICE).head(path).status_code == 200


def test_the_status_of_the_cluster(desk: Desk) -> None:
    answer = desk.client(EYE).get("/cluster/status").json()
    assert answer["leader"] is None
    desk.node.known = LeaderInformation(Epoch(7), "https://node-1:8081")
    desk.context.address = "https://node-2:8081"
    answer = desk.client(EYE).get("/cluster/status").json()
    assert answer["leader"] == {"address": "https://node-1:8081", "epoch": 7}
    assert (answer["cluster_id"], answer["version"], answer["high-availability"]) == ("default", __version__, "sql")
    assert answer["node"]["address"] == "https://node-2:8081"
    assert answer["node"]["pid"] == os.getpid()


def test_degraded_node_says_so_to_those_whom_it_knows(desk: Desk) -> None:
    led = LeaderInformation(Epoch(7), "https://node-1:8081")
    desk.node.known = led  # what it knows is old
    desk.node.absence = Absence("no quorum at zk-1", 1000.5, led)
    answer = desk.client(EYE).get("/cluster/status")
    told = answer.json()
    assert answer.status_code == 200
    assert told["leader"] is None
    assert (told["degraded"], told["reason"], told["since"]) == (True, "no quorum at zk-1", 1_000_500)
    assert told["lastLeader"] == {"address": "https://node-1:8081", "epoch": 7}
    # Those whom it does not know are told that it lives, and no more.
    degraded = (200, b'{"status":"degraded","since":1000500}')
    assert asked_raw(desk, None, "/healthz") == degraded  # type: ignore[arg-type]
    for query in ("ready", "ready=1"):
        refused = desk.client(EYE).get(f"/healthz?{query}")
        assert (refused.status_code, refused.json()["status"]) == (503, "degraded")
    desk.node.absence = None
    told = desk.client(EYE).get("/cluster/status").json()
    assert [told[k] for k in ("degraded", "reason", "since", "lastLeader")] == [False, None, None, None]
    assert desk.client(EYE).get("/healthz?ready").json() == {"status": "ok"}


def _leads(desk: Desk, others: bool | None) -> None:
    """This node leads; `others` could in its place."""
    desk.context.address = "https://node-1:8081"
    desk.node.own_epoch, desk.node.others = Epoch(7), others


@pytest.mark.parametrize(
    ("others", "body", "status", "handed"),
    [
        (True, None, 202, 1),
        (True, {"epoch": 7}, 202, 1),
        (None, {}, 202, 1),
        (False, {}, 409, 0),
        (False, {"force": True}, 202, 1),
        (True, {"epoch": 6}, 202, 0),  # done already
        (False, {"epoch": 6}, 202, 0),
        (True, {"epoch": 8}, 409, 0),
        (True, {"epoch": "x"}, 400, 0),
        (True, {"wait": True}, 400, 0),
    ],
)
def test_hand_over(desk: Desk, others: bool | None, body: Any, status: int, handed: int) -> None:
    _leads(desk, others)
    answer = desk.client(ADMIN).post("/cluster/handover", json=body)
    assert (answer.status_code, desk.node.handed_over) == (status, handed), answer.text
    if status == 202:
        assert answer.json() == {"leader": {"address": "https://node-1:8081", "epoch": 7}, "others": others}


def test_hand_over_is_for_admins_and_for_the_leader(desk: Desk) -> None:
    assert desk.client(ADMIN).post("/cluster/handover").status_code == 503
    _leads(desk, True)
    for who in (ALICE, EYE):
        assert desk.client(who).post("/v1/cluster/handover").status_code == 403
    assert desk.node.handed_over == 0


def test_the_execution_graph_is_all_that_is_known(desk: Desk) -> None:
    put(desk, ONE, name=MARKUP, progress={"phase": "running"})
    answer = desk.client(ALICE).get(f"/jobs/{ONE}/execution-graph").json()
    assert (answer["name"], answer["progress"], answer["owner"]) == (MARKUP, {"phase": "running"}, "alice")
    assert [v["name"] for v in answer["graph"]["vertices"]] == ["orders", "big", "out"]


# -- visibility ---------------------------------------------------------------------------------------------------------

READS = [
    "execution-graph",
    "story",
    "events",
    "attempts",
    "attempts/1/logs/stdout",
    "logs/stdout",
    "vertices/out/log",
    "lineage",
    "operators",
]


@pytest.mark.parametrize("path", READS)
def test_somebody_elses_job_looks_like_none(desk: Desk, path: str) -> None:
    put(desk, ONE, owner="alice")
    answers = [desk.client(BOB).get(f"/jobs/{job}/{path}") for job in (ONE, TWO)]
    assert [a.status_code for a in answers] == [404, 404]
    assert answers[0].text.replace(ONE, "") == answers[1].text.replace(TWO, "")


def test_the_story_of_a_job_is_for_those_who_see_the_job(desk: Desk) -> None:
    put(desk, ONE, owner="alice")
    answer = desk.client(ALICE).get(f"/jobs/{ONE}/story")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["job_id"], told["left_out"]) == (ONE, 0)
    assert [(c["status"], c["cause"]) for c in told["chapters"]] == [("INITIALIZING", "submitted")]
    assert desk.client(BOB).get(f"/v1/jobs/{ONE}/story").status_code == 404


# -- the page -----------------------------------------------------------------------------------------------------------


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_documentation_is_a_page_in_which_nothing_runs(desk: Desk) -> None:
    answer = desk.client(ALICE).get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    shown = _Page()
    shown.feed(answer.text)
    assert "script" not in shown.tags
    assert shown.attributes <= {"lang", "charset", "href"}
    assert not re.search(r"https?://", answer.text.replace("&quot;", ""))
    for path in ("/jobs/{jobid}/events", "/blobs/{key}", "/history", "/healthz"):
        assert f"<code>{path}</code>" in answer.text
    assert desk.client(ALICE).get("/v1/docs").text == answer.text


def test_everything_on_the_page_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    schema = {"anyOf": [{"type": evil}, {"type": "null"}, {"type": "array", "items": {"enum": [evil]}}]}
    parameter = {"name": evil, "in": evil, "schema": schema, "description": evil}
    operation = {
        "tags": [evil],
        "summary": evil,
        "description": evil,
        "parameters": [parameter],
        "requestBody": {"content": {evil: {}}, "description": evil},
        "responses": {evil: {}},
    }
    text = render_page(
        {"info": {"title": evil, "version": evil, "description": evil}, "paths": {evil: {"get": operation}}}
    )
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 12
    assert STYLE in text
    assert "sha256-" in HEADERS["content-security-policy"]


def test_every_native_answer_is_described(desk: Desk) -> None:
    document = desk.client(ALICE).get("/openapi.json").json()
    described = 0
    for route in (r for router in ROUTERS for r in router.routes if isinstance(r, APIRoute) and r.include_in_schema):
        for method in route.methods or ():
            operation = document["paths"][route.path][method.lower()]
            success = next(r for code, r in operation["responses"].items() if code.startswith("2"))
            [schema] = (content["schema"] for content in success["content"].values())
            assert schema, f"{method} {route.path}"
            assert operation["summary"] != route.name.replace("_", " ").title(), f"{method} {route.path} says nothing"
            described += 1
    assert described > 20
    assert "/v1/history" not in document["paths"]


def test_every_path_exists_bare_and_under_v1(desk: Desk) -> None:
    client = desk.client(ALICE)
    for path in ("/engines", "/queue", "/history", "/blobs", "/whoami", "/cluster/status", "/healthz"):
        assert client.get(path).status_code == client.get(f"/v1{path}/").status_code == 200
