"""A scraper reads /metrics and nothing else: the door sees to it, whatever a route forgets."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from tests.rest_security.rig import OneToken, ask, errors_of, make_door

from firesteel.config.sections import Role
from firesteel.rest.security.door import Door
from firesteel.rest.security.identities import Identities
from firesteel.rest.security.principals import Principal, at_least, may_read, may_write

SCRAPER = Principal("prometheus", Role.SCRAPER, "alice")


async def _anything(_request: Request) -> Response:
    return PlainTextResponse("served")


def door() -> Door:
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    app = Starlette(routes=[Route("/{path:path}", _anything, methods=methods)])
    return make_door(app, identities=Identities(tokens=OneToken(SCRAPER)))


@pytest.mark.parametrize("path", ["/metrics", "/v1/metrics"])
def test_metrics_are_served(path: str) -> None:
    assert ask(door(), "GET", path).text == "served"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jobs"),
        ("GET", "/v1/jobs/overview"),
        ("GET", "/whoami"),
        ("GET", "/"),
        ("GET", "/metrics/../jobs"),
        ("GET", "/metricsx"),
        ("GET", "/v1/v1/metrics"),
        ("GET", "/jobs/metrics"),
        ("GET", "/cluster/status"),
        ("POST", "/metrics"),
        ("POST", "/jobs"),
        ("DELETE", "/cluster"),
        ("PATCH", f"/jobs/{'a' * 32}"),
    ],
)
def test_nothing_else_is(method: str, path: str) -> None:
    """S20, S34"""
    answer = ask(door(), method, path, headers={"content-type": "application/json"})
    assert answer.status_code == 403
    assert errors_of(answer) == ["prometheus has the role scraper, which may only read /metrics."]


def test_behind_the_door_it_is_less_than_a_viewer() -> None:
    assert not at_least(SCRAPER, Role.VIEWER)
    assert not may_read(SCRAPER, "alice")
    assert not may_read(Principal("p", Role.SCRAPER, "*"), "alice")
    assert not may_write(SCRAPER, "alice")
