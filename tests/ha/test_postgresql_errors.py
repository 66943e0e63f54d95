"""What each error of PostgreSQL means: whether it was done, whether to try again, and whether a person has to look."""

from __future__ import annotations

import psycopg
import pytest

from firesteel.errors import StoreBrokenError, StoreError, StoreFailingError, StoreUnavailableError
from firesteel.ha.sql.database import UndoneError, repeated
from firesteel.ha.sql.postgresql.errors import SilenceError, connect_error, server_error

WHERE = "the database jobs at host"


def of_state(state: str | None) -> psycopg.Error:
    if state is None:
        return psycopg.OperationalError("server closed the connection unexpectedly\n\tThis probably means nothing")
    return psycopg.errors.lookup(state)("what the server said")


@pytest.mark.parametrize(
    ("state", "kind", "in_commit"),
    [
        # Nothing was done, unless it was the COMMIT itself that got no answer.
        (None, UndoneError, StoreUnavailableError),
        ("08006", UndoneError, StoreUnavailableError),
        ("57P01", UndoneError, StoreUnavailableError),
        ("57P02", UndoneError, StoreUnavailableError),
        ("57P03", UndoneError, StoreUnavailableError),
        # Undone by the server, and said so.
        ("40001", UndoneError, UndoneError),
        ("40P01", UndoneError, UndoneError),
        ("23505", UndoneError, UndoneError),
        # May be better soon.
        ("40003", StoreUnavailableError, StoreUnavailableError),
        ("25006", StoreUnavailableError, StoreUnavailableError),
        ("25P03", StoreUnavailableError, StoreUnavailableError),
        ("53300", StoreUnavailableError, StoreUnavailableError),
        ("53200", StoreUnavailableError, StoreUnavailableError),
        ("55P03", StoreUnavailableError, StoreUnavailableError),
        ("57014", StoreUnavailableError, StoreUnavailableError),
        ("XX000", StoreUnavailableError, StoreUnavailableError),
        # A disk.
        ("53100", StoreFailingError, StoreFailingError),
        ("58030", StoreFailingError, StoreFailingError),
        # Somebody has to look.
        ("42501", StoreBrokenError, StoreBrokenError),
        ("42P01", StoreBrokenError, StoreBrokenError),
        ("42703", StoreBrokenError, StoreBrokenError),
        ("XX001", StoreBrokenError, StoreBrokenError),
        ("XX002", StoreBrokenError, StoreBrokenError),
        ("0A000", StoreBrokenError, StoreBrokenError),
        # One value is to blame.
        ("22001", StoreError, StoreError),
        ("54000", StoreError, StoreError),
    ],
)
def test_errors_of_statements_and_of_commits(
    state: str | None, kind: type[StoreError], in_commit: type[StoreError]
) -> None:
    for committing, expected in ((False, kind), (True, in_commit)):
        made = server_error(of_state(state), WHERE, committing=committing)
        assert type(made) is expected
        assert WHERE in str(made)
        assert "\n" not in str(made)
        assert (state or "unexpectedly") in str(made)


def test_silence_is_not_tried_again_at_once() -> None:
    assert type(server_error(SilenceError("no answer"), WHERE, committing=False)) is StoreUnavailableError


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        ('FATAL:  password authentication failed for user "u"', "user and password"),
        ("fe_sendauth: no password supplied", "user and password"),
        ('FATAL:  role "u" does not exist', "may connect"),
        ('FATAL:  no pg_hba.conf entry for host "1.2.3.4", user "u", database "d"', "pg_hba"),
        ('FATAL:  database "d" does not exist', "CREATE DATABASE"),
        ('FATAL:  permission denied for database "d"', "GRANT CONNECT"),
        ("SSL error: certificate verify failed", "sslrootcert"),
        ('root certificate file "/x" does not exist', "sslrootcert"),
        ('invalid sslmode value: "x"', "parameter"),
    ],
)
def test_refused_connections_are_a_mistake_at_the_start_and_waited_for_later(said: str, fix: str) -> None:
    error = psycopg.OperationalError(f"connection failed: {said}")
    for opening, kind in ((True, StoreBrokenError), (False, StoreUnavailableError)):
        made = connect_error(error, WHERE, opening=opening)
        assert type(made) is kind
        assert fix in str(made)
        assert said in str(made)


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("Connection refused", "out of reach"),
        ("FATAL:  the database system is starting up", "out of reach"),
        ("FATAL:  die Datenbank wird gerade gestartet", "out of reach"),
        ("session is read-only", "read-only now"),
        ("FATAL:  sorry, too many clients already", "max_connections"),
        (
            "FATAL:  remaining connection slots are reserved for non-replication superuser connections",
            "max_connections",
        ),
        ('FATAL:  too many connections for role "u"', "max_connections"),
    ],
)
def test_what_may_pass_is_waited_for_also_at_the_start(said: str, word: str) -> None:
    made = connect_error(psycopg.OperationalError(said), WHERE, opening=True)
    assert type(made) is StoreUnavailableError
    assert word in str(made)


def test_undone_is_tried_three_times_and_then_told() -> None:
    tries = 0

    def fails() -> None:
        nonlocal tries
        tries += 1
        raise UndoneError(f"try {tries}")

    with pytest.raises(UndoneError, match="try 3"):
        repeated(fails)

    def away() -> None:
        nonlocal tries
        tries += 1
        raise StoreUnavailableError("away")

    with pytest.raises(StoreUnavailableError, match="away"):
        repeated(away)
    assert tries == 4
