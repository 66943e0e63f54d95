"""`/metrics`: for those from whom nothing is hidden."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rest.desk import ADMIN, Desk

from firesteel.config.sections import Role
from firesteel.metrics.declarations import REQUESTS, RESTARTS
from firesteel.rest.measured import class_of
from firesteel.rest.security.principals import Principal

SCRAPER = Principal("prometheus", Role.SCRAPER, "prometheus")
EVERYBODYS = Principal("eye", Role.VIEWER, "*")


@pytest.mark.parametrize("principal", [ADMIN, SCRAPER, EVERYBODYS], ids=lambda p: p.name)
def test_text_for_prometheus(tmp_path: Path, principal: Principal) -> None:
    desk = Desk(tmp_path)
    desk.context.metrics.count(RESTARTS, by=3)
    answer = desk.client(principal).get("/v1/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\nfiresteel_dispatcher_restarts_total 3\n" in answer.text


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_who_sees_one_owner_only_does_not_see_metrics(tmp_path: Path, role: Role) -> None:
    """S19"""
    answer = Desk(tmp_path).client(Principal("a", role, "alice")).get("/metrics")
    assert answer.status_code == 403
    assert "--role scraper" in answer.json()["errors"][0]


def test_a_node_that_is_not_to_be_scraped_has_no_metrics(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {"metrics.prometheus": "false"})
    assert desk.client().get("/metrics").status_code == 404


def test_flinks_resource_has_the_numbers_of_the_registry_for_those_who_see_all(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.context.metrics.count(RESTARTS, by=3)
    desk.context.metrics.observe(REQUESTS, 0.1, "submit", "2xx")
    asked = "/jobmanager/metrics?get=dispatcher.restarts,rest.request.submit.2xx.count,dispatcher.submissions.accepted"
    found = {m["id"]: float(m["value"]) for m in desk.client().get(asked).json()}
    assert found == {
        "dispatcher.restarts": 3,
        "rest.request.submit.2xx.count": 1,
        "dispatcher.submissions.accepted": 0,
    }
    assert desk.client(Principal("a", Role.VIEWER, "alice")).get(asked).json() == []


@pytest.mark.parametrize(
    ("method", "path", "content", "expected"),
    [
        ("POST", "/jobs", "application/json", "submit"),
        ("POST", "/v1/jobs/", "application/json", "submit"),
        ("POST", f"/jobs/{'a' * 32}/resume", "application/json", "submit"),
        ("POST", "/jars/x_y.py/run", "application/json", "submit"),
        ("PATCH", f"/jobs/{'a' * 32}", "application/json", "change"),
        ("GET", "/jobs", "application/json", "read"),
        ("GET", "/events", "text/event-stream", "stream"),
        ("GET", "/", "text/html; charset=utf-8", "page"),
        ("GET", "/v1/metrics", "text/plain", "probe"),
        ("GET", "/healthz", "application/json", "probe"),
        ("BREW", "/tea", "", "change"),
    ],
)
def test_requests_have_few_classes(method: str, path: str, content: str, expected: str) -> None:
    assert class_of(method, path, content.encode()) == expected
