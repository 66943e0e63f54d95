"""Dashboards behind the door: files (S4), links, tokens and sessions of browsers (S48)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.rest_security.rig import BEARER, client_of, make_door, tiny_app

from firesteel.config.sections import Role
from firesteel.errors import InvalidConfigError
from firesteel.rest import dashboard
from firesteel.rest.dashboard import ENTER, LINKS, SESSION, Dashboard
from firesteel.rest.dashboard_files import LARGEST, BuiltDashboard
from firesteel.rest.flink_dashboard import FlinkFiles, policy_for
from firesteel.rest.security.principals import Principal
from firesteel.rest.security.sessions import (
    LINK_SECONDS,
    MOST_LINKS,
    MOST_SESSIONS,
    SESSION_SECONDS,
    Sessions,
    cookie_of,
    set_cookie,
)

ADDRESS = "http://localhost:8081"
PAGE = b"""<html><link rel="stylesheet" href="s.css" media="print" onload="this.media='all'"><script src="main.js">"""
ALICE = Principal("alice", Role.OPERATOR, "alice")


@pytest.fixture
def web(tmp_path: Path) -> Path:
    directory = tmp_path / "web"
    (directory / "assets").mkdir(parents=True)
    (directory / "index.html").write_bytes(PAGE)
    (directory / "main.js").write_text("run()")
    (directory / "assets" / "logo.svg").write_text("<svg/>")
    (tmp_path / "secret.js").write_text("outside")
    return directory


@asynccontextmanager
async def browser(web: Path, *, tls: bool = False) -> AsyncIterator[httpx.AsyncClient]:
    """Behind a door that knows one token, and sessions."""
    sessions = Sessions()
    app = Dashboard(tiny_app(), BuiltDashboard.of(web), sessions, address=lambda: ADDRESS, flink=FlinkFiles.of(web))
    door = make_door(app, public=("/healthz", *dashboard.PUBLIC), sessions=sessions)
    async with client_of(door, ADDRESS.replace("http:", "https:") if tls else ADDRESS) as client:
        yield client


async def entered(client: httpx.AsyncClient) -> httpx.Response:
    """The browser opens the link that the owner of the token asked for."""
    made = await client.post(LINKS, json={}, headers=BEARER)
    assert made.status_code == 201
    link: str = made.json()["link"]
    assert link.startswith(f"{ADDRESS}{ENTER}")
    return await client.get(link.removeprefix(ADDRESS))


def play(web: Path, main: Callable[[httpx.AsyncClient], Awaitable[None]], *, tls: bool = False) -> None:
    async def inside() -> None:
        async with browser(web, tls=tls) as client:
            await main(client)

    asyncio.run(inside())


# -- files (S4) -----------------------------------------------------------------------------------------------------


def test_the_dashboard_is_for_everybody_and_the_api_is_not(web: Path) -> None:
    async def main(client: httpx.AsyncClient) -> None:
        page = await client.get("/")
        assert (page.status_code, page.content) == (200, PAGE)
        assert page.headers["cache-control"] == "no-store"
        assert "unsafe" not in page.headers["content-security-policy"]
        asset = await client.get("/assets/logo.svg")
        assert (asset.text, asset.headers["content-type"]) == ("<svg/>", "image/svg+xml")
        assert "immutable" in asset.headers["cache-control"]
        assert (await client.get("/assets/none.js")).status_code == 404
        assert (await client.get("/main.js")).status_code == 401, "not one of the public names"
        assert (await client.get("/who")).status_code == 401
        assert (await client.get("/flink/")).status_code == 401

    play(web, main)


@pytest.mark.parametrize(("accepts", "packed"), [("gzip, br", True), ("br", False), ("gzip;q=0", False), ("", False)])
def test_files_come_packed_to_those_who_can_unpack_them(web: Path, accepts: str, packed: bool) -> None:
    async def main(client: httpx.AsyncClient) -> None:
        page = await client.get("/", headers={"accept-encoding": accepts})
        assert page.content == PAGE
        assert (page.headers.get("content-encoding") == "gzip") is packed
        assert page.headers["vary"] == "Accept-Encoding"

    play(web, main)


def test_a_token_begins_a_session_that_can_be_ended(web: Path) -> None:
    async def main(client: httpx.AsyncClient) -> None:
        assert (await client.post(SESSION)).status_code == 401
        begun = await client.post(SESSION, headers=BEARER)
        assert begun.status_code == 204
        assert {"HttpOnly", "SameSite=Strict"} <= {a.strip() for a in begun.headers["set-cookie"].split(";")}
        assert (await client.get("/who")).json()["name"] == "alice's laptop"
        page = {"origin": ADDRESS}
        assert (await client.post(SESSION, headers=page)).status_code == 400, "a session does not prolong itself"
        assert (await client.delete(SESSION)).status_code == 403, "no page of this node"
        stolen = dict(client.cookies)
        ended = await client.delete(SESSION, headers=page)
        assert (ended.status_code, "Max-Age=0" in ended.headers["set-cookie"]) == (204, True)
        client.cookies.update(stolen)
        assert (await client.get("/who")).status_code == 401

    play(web, main)


def test_flinks_dashboard_is_served_with_its_own_policy_to_a_session(web: Path) -> None:
    async def main(client: httpx.AsyncClient) -> None:
        assert (await entered(client)).headers["location"] == "../../"
        assert (await client.get("/flink")).headers["location"] == "flink/"
        page = await client.get("/flink/")
        assert (page.content, page.headers["content-type"]) == (PAGE, "text/html; charset=utf-8")
        policy = page.headers["content-security-policy"]
        assert "script-src 'self' 'unsafe-hashes' 'sha256-MhtPZXr7+LpJUY5qtMutB+qWfQtMaPccfe7QXtCcEYc='" in policy
        assert "style-src 'self' 'unsafe-inline'" in policy
        assert "frame-ancestors 'none'" in policy
        script = await client.get("/flink/main.js")
        assert (script.text, script.headers["content-type"]) == ("run()", "text/javascript; charset=utf-8")
        assert (await client.get("/flink/assets/logo.svg")).headers["content-type"] == "image/svg+xml"
        # The API is where that dashboard looks for it, with its own policy.
        who = await client.get("/flink/who")
        assert who.json()["name"] == "alice's laptop"
        assert "'unsafe-" not in who.headers["content-security-policy"]

    play(web, main)


@pytest.mark.parametrize("base", ["", "/flink"])
@pytest.mark.parametrize(
    "path",
    [
        "/../secret.js",
        "/%2e%2e/secret.js",
        "/assets/../../secret.js",
        "/assets%2f..%2f..%2fsecret.js",
        "/..%5csecret.js",
        "/%252e%252e/secret.js",
        "/main.js%00",
        "/linked.js",
        "/up/secret.js",
        "/notes.pem",
        "/pipe.js",
        "/large.js",
        "/assets",
    ],
)
def test_nothing_is_served_but_files_of_the_directory_by_their_name(web: Path, path: str, base: str) -> None:
    (web / "linked.js").symlink_to(web.parent / "secret.js")
    (web / "up").symlink_to(web.parent, target_is_directory=True)
    (web / "notes.pem").write_text("key")
    os.mkfifo(web / "pipe.js")
    with (web / "large.js").open("wb") as large:
        large.truncate(LARGEST + 1)

    async def main(client: httpx.AsyncClient) -> None:
        await entered(client)
        response = await client.get(base + path)
        assert response.status_code in (400, 404)
        assert "outside" not in response.text

    play(web, main)


def test_a_link_that_is_put_in_the_place_of_a_file_is_not_followed(web: Path) -> None:
    async def main(client: httpx.AsyncClient) -> None:
        await entered(client)
        (web / "main.js").unlink()
        (web / "main.js").symlink_to(web.parent / "secret.js")
        response = await client.get("/flink/main.js")
        assert response.status_code == 404
        assert "outside" not in response.text

    play(web, main)


def test_a_directory_without_a_dashboard_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"web.flink-dashboard.dir: .* has no index.html"):
        FlinkFiles.of(tmp_path)


def test_a_page_without_handlers_lets_none_in() -> None:
    assert b"script-src 'self';" in policy_for(b"<html></html>")


def test_a_node_without_a_dashboard_says_how_to_build_it() -> None:
    async def main() -> None:
        sessions = Sessions()
        app = Dashboard(tiny_app(), None, sessions, address=lambda: ADDRESS)
        async with client_of(make_door(app, public=dashboard.PUBLIC)) as client:
            refused = await client.post(LINKS, json={}, headers=BEARER)
            assert refused.status_code == 404
            assert "make dashboard" in refused.json()["errors"][0]
            page = await client.get("/")
            assert (page.status_code, page.headers["content-type"]) == (404, "text/plain; charset=utf-8")
            assert "make dashboard" in page.text

    asyncio.run(main())


# -- links and cookies (S48) ----------------------------------------------------------------------------------------


def test_a_link_works_once(web: Path) -> None:
    async def main(client: httpx.AsyncClient) -> None:
        link = (await client.post(LINKS, json={}, headers=BEARER)).json()["link"].removeprefix(ADDRESS)
        assert (await client.head(link)).status_code == 405  # whoever looks ahead does not use it up
        assert (await client.get(link)).status_code == 303
        client.cookies.clear()
        again = await client.get(link)
        assert again.status_code == 403
        assert "set-cookie" not in again.headers
        assert (await client.get(f"{ENTER}{'x' * 43}")).status_code == 403

    play(web, main)


def test_only_somebody_who_is_known_gets_a_link_and_no_session_begets_another(web: Path) -> None:
    async def main(client: httpx.AsyncClient) -> None:
        assert (await client.post(LINKS, json={})).status_code == 401
        await entered(client)
        assert (await client.post(LINKS, json={})).status_code == 403, "without a page of this node"

    play(web, main)


@pytest.mark.parametrize("tls", [False, True])
def test_the_cookie_is_for_this_node_and_not_for_scripts(web: Path, tls: bool) -> None:
    async def main(client: httpx.AsyncClient) -> None:
        cookie = (await entered(client)).headers["set-cookie"]
        name, _, rest = cookie.partition("=")
        assert name == ("__Host-firesteel-session" if tls else "firesteel-session")
        attributes = {a.strip() for a in rest.split(";")[1:]}
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= attributes
        assert ("Secure" in attributes) is tls
        assert not any(a.startswith("Domain") for a in attributes)

    play(web, main, tls=tls)


def test_a_cookie_that_was_planted_is_not_the_one_that_is_given(web: Path) -> None:
    """Fixation: what a browser brings along never becomes a session."""

    async def main(client: httpx.AsyncClient) -> None:
        client.cookies.set("firesteel-session", "planted", domain="localhost")
        given = (await entered(client)).headers["set-cookie"]
        assert "planted" not in given
        client.cookies.clear()
        response = await client.get("/who", headers={"cookie": "firesteel-session=planted"})
        assert response.status_code == 401

    play(web, main)


def test_two_cookies_of_the_name_are_none() -> None:
    assert cookie_of("a=1; firesteel-session=x", tls=False) == "x"
    assert cookie_of("firesteel-session=x; firesteel-session=y", tls=False) is None
    assert cookie_of("firesteel-session=x", tls=True) is None, "one without TLS proves nothing with it"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/jobs", {"origin": ADDRESS}, 202),
        ("POST", "/jobs", {"sec-fetch-site": "same-origin"}, 202),
        ("POST", "/jobs", {}, 403),
        ("POST", "/jobs", {"origin": "http://evil.example"}, 403),
        ("POST", "/jobs", {"origin": "null"}, 403),
        ("POST", "/jobs", {"origin": "http://localhost:9999"}, 403),
        ("POST", "/jobs", {"sec-fetch-site": "same-site"}, 403),
        ("POST", "/jobs", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
        ("POST", "/jobs", {"origin": ADDRESS, "content-type": "text/plain"}, 415),
        ("GET", f"/jobs/{'a' * 32}/yarn-cancel", {}, 403),
        ("GET", f"/jobs/{'a' * 32}/yarn-cancel", {"sec-fetch-site": "none"}, 403),
        ("GET", f"/jobs/{'a' * 32}/yarn-cancel", {"sec-fetch-site": "cross-site"}, 403),
        ("GET", f"/jobs/{'a' * 32}/yarn-cancel", {"sec-fetch-site": "same-origin"}, 200),
        ("GET", "/who", {"sec-fetch-site": "cross-site"}, 403),
        ("GET", "/who", {}, 200),
    ],
)
def test_changes_in_a_session_are_for_pages_of_the_node(
    web: Path, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    async def main(client: httpx.AsyncClient) -> None:
        await entered(client)
        sent = {"content-type": "application/json", **headers}
        assert (await client.request(method, path, headers=sent)).status_code == status

    play(web, main)


def test_a_wrong_token_is_not_made_good_by_a_cookie(web: Path) -> None:
    async def main(client: httpx.AsyncClient) -> None:
        await entered(client)
        assert (await client.get("/who", headers={"authorization": "Bearer fst_x_wrong"})).status_code == 401

    play(web, main)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_links_and_sessions_grow_old() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    late, code = sessions.link(ALICE), sessions.link(ALICE)
    cookie = sessions.begin(code)
    assert cookie is not None
    clock.now = LINK_SECONDS + 1
    assert sessions.begin(late) is None
    assert sessions.principal(cookie) == ALICE
    clock.now = SESSION_SECONDS + 1
    assert sessions.principal(cookie) is None


def test_there_are_not_more_of_them_than_a_node_can_keep() -> None:
    sessions = Sessions()
    codes = [sessions.link(ALICE) for _ in range(MOST_LINKS + 1)]
    assert sessions.begin(codes[0]) is None
    first = sessions.begin(codes[1])
    assert first is not None
    for _ in range(MOST_SESSIONS):
        sessions.begin(sessions.link(ALICE))
    assert sessions.principal(first) is None


def test_the_cookie_says_how_long_it_is_good() -> None:
    assert f"Max-Age={SESSION_SECONDS:.0f};" in set_cookie("x", tls=True)
