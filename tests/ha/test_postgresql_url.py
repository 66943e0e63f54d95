"""What `high-availability.sql.url` may say for PostgreSQL, and that no message repeats a password out of it."""

from __future__ import annotations

import sys

import pytest
from sqlalchemy import URL

from firesteel.errors import InvalidConfigError
from firesteel.ha.sql.database import open_database
from firesteel.ha.sql.postgresql.target import Target
from firesteel.ha.sql.url import backend_of

SECRET = "hunter2"


def target(url: URL | str, lease: float = 10.0) -> Target:
    return Target.of(url, lease_duration=lease)


def test_one_host() -> None:
    made = target("postgresql://user:hunter2@db.example:5433/jobs?sslmode=verify-full&sslrootcert=/etc/ca.pem")
    wanted = {
        "host": "db.example",
        "port": "5433",
        "user": "user",
        "password": SECRET,
        "dbname": "jobs",
        "sslmode": "verify-full",
        "sslrootcert": "/etc/ca.pem",
        "target_session_attrs": "read-write",
    }
    assert made.parameters.items() >= wanted.items()
    assert made.where == "the database jobs at db.example:5433"
    assert not made.several_hosts


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@one:1,two:2,three:3/jobs",
        "postgresql+psycopg://user:hunter2@one:1,two:2,three:3/jobs",
        "postgres://user:hunter2@one:1,two:2,three:3/jobs",
        "postgresql://user:hunter2@/jobs?host=one,two,three&port=1,2,3",
        "postgresql+psycopg://user:hunter2@/jobs?host=one:1&host=two:2&host=three:3",
        URL.create("postgresql", "user", SECRET, database="jobs", query={"host": ("one:1", "two:2", "three:3")}),
    ],
)
def test_several_hosts_of_which_the_one_that_can_be_written_to_is_used(url: URL | str) -> None:
    assert backend_of(url) == "postgresql"
    made = target(url)
    assert made.parameters["host"] == "one,two,three"
    assert made.parameters["port"] == "1,2,3"
    assert made.parameters["target_session_attrs"] == "read-write"
    assert made.where == "the database jobs at one:1,two:2,three:3"
    assert made.several_hosts


def test_hosts_that_share_a_port() -> None:
    assert target("postgresql://u@one,two/jobs").where == "the database jobs at one,two"
    assert target("postgresql://u@one,two/jobs?port=7").where == "the database jobs at one:7,two:7"


def test_password_with_every_odd_character_is_read_as_it_was_escaped() -> None:
    password = "a@b:c/d?e#f%g &=+"
    url = URL.create("postgresql", "user", password, "host", 1, "jobs")
    assert target(url).parameters["password"] == password
    assert target("postgresql://user:a%40b%3Ac%2Fd%3Fe%23f%25g%20@host/jobs").parameters["password"] == "a@b:c/d?e#f%g "


def test_what_the_user_sets_is_respected_but_for_the_mark_of_our_sessions() -> None:
    made = target("postgresql://u@h/jobs?connect_timeout=7&target_session_attrs=any&application_name=mine")
    assert made.parameters["connect_timeout"] == "7"
    assert made.parameters["target_session_attrs"] == "any"
    assert made.parameters["application_name"] == made.session != target("postgresql://u@h/jobs").session


@pytest.mark.parametrize(("lease", "patience"), [(1.0, 1.0), (10.0, 2.5), (600.0, 10.0)])
def test_silent_server_is_given_up_while_the_lease_has_time_for_another_try(lease: float, patience: float) -> None:
    assert target("postgresql://u@h/jobs", lease).patience == patience


UNESCAPED = (
    "hunter2@x hunter2/x x/hunter2 hunter2?x x?hunter2 x?hunter2=1 x@hunter2 x@hunter2/y x%hunter2 x#hunter2 x&hunter2 "
    "x?a&hunter2 [hunter2] 1/2@hunter2 hunter2:x/y hunter2%zz 12/hunter2 ?sslmod=hunter2 ?host=hunter2:1"
)
"""As somebody would write them who does not know that they have to be escaped."""


@pytest.mark.parametrize("password", UNESCAPED.split())
def test_password_that_was_not_escaped_is_shown_to_nobody(password: str) -> None:
    url = f"postgresql://user:{password}@127.0.0.1:1/jobs"
    shown: list[str] = []
    try:
        made = target(url)
    except InvalidConfigError as error:
        shown += [str(error), repr(error.__cause__)]
    else:  # it can be read so, as it happens
        shown += [repr(made), made.where]
    assert SECRET not in "".join(shown)
    assert "high-availability.sql.url" in shown[0] or "the database jobs at 127.0.0.1:1" in shown[1]


def test_nothing_that_is_shown_holds_the_password() -> None:
    made = target("postgresql://user:hunter2@host/jobs")
    assert SECRET not in f"{made} {made!r} {made.where} {made.session}"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "postgresql+psycopg2://user:hunter2@host/db",
            "the driver 'psycopg2', which is not supported — write postgresql://",
        ),
        ("postgresql+asyncpg://user:hunter2@host/db", "the driver 'asyncpg'"),
        ("mysql://user:hunter2@host/db", "'mysql' are not supported — write sqlite:.* or postgresql:"),
        ("postgresql:user:hunter2@host/db", "not a database URL"),
        ("user:hunter2@host://x", "not a database URL"),
        ("postgresql://user:hunter2@host:54x2/db", "not a PostgreSQL URL"),
        ("postgresql://user:hunter2@host", "names no database"),
        ("postgresql://user:hunter2@host/db?sslmod=require", "unknown parameter — did you mean sslmode"),
        ("postgresql://user:hunter2@host/db?color=blue", "not a PostgreSQL URL"),
    ],
)
def test_url_that_is_none(url: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message) as caught:
        open_database(url, lease_duration=10)
    assert "high-availability.sql.url" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_driver_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidConfigError, match=r'pip install "firesteel\[postgresql\]"'):
        open_database("postgresql://user:hunter2@host/db", lease_duration=10)
