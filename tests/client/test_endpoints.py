"""Which address is asked next, and when: all of it with a clock that the test holds."""

from __future__ import annotations

import pytest

from firesteel.client.endpoints import Attempts, Endpoints, Location, parse_addresses, stays_here
from firesteel.client.errors import ClusterError, ClusterUnreachableError
from firesteel.errors import InvalidConfigError, RateLimitedError

A, B, C = "http://a:1", "http://b:1", "http://c:1"
ERROR = ClusterError("refused")


def test_every_address_is_tried_before_anybody_waits() -> None:
    attempts = Attempts([A, B, C], deadline=60.0)
    for address in (A, B, C):
        assert attempts.next(0.0) == (address, 0.0)
        attempts.failed(address, ERROR, 0.0)
    turn = attempts.next(0.0)
    assert turn is not None
    assert turn[1] > 0


def test_pauses_of_an_address_grow_up_to_a_limit() -> None:
    attempts = Attempts([A], deadline=1e9)
    now, pauses = 0.0, []
    for _ in range(12):
        turn = attempts.next(now)
        assert turn is not None
        pauses.append(turn[1])
        now += turn[1]
        attempts.failed(A, ERROR, now)
    assert pauses[0] == 0
    assert 0.08 <= pauses[1] <= 0.1
    assert pauses[1] < pauses[3] < pauses[5]
    assert 1.6 <= pauses[-1] <= 2.0


def test_retry_after_is_honoured_and_the_others_are_asked_meanwhile() -> None:
    attempts = Attempts([A, B], deadline=60.0)
    attempts.failed(A, ERROR, 0.0, retry_after=30.0)
    now = 0.0
    while (turn := attempts.next(now)) is not None and turn[0] == B:
        now += turn[1]
        attempts.failed(B, ERROR, now)
    assert turn is not None
    assert turn[0] == A
    assert turn[1] == pytest.approx(30.0 - now)


def test_rate_limit_holds_for_all_addresses() -> None:
    attempts = Attempts([A, B], deadline=60.0)
    attempts.failed(A, RateLimitedError("slower", 7.0), 0.0, retry_after=7.0)
    turn = attempts.next(0.0)
    assert turn is not None
    assert turn[1] == 7.0


def test_rate_limit_is_what_is_raised_when_time_is_up() -> None:
    attempts = Attempts([A], deadline=5.0)
    attempts.failed(A, RateLimitedError("slower", 7.0), 0.0, retry_after=7.0)
    assert attempts.next(0.0) is None
    assert isinstance(attempts.error(5.0), RateLimitedError)


def test_rate_limit_without_a_time_still_pauses() -> None:
    attempts = Attempts([A], deadline=60.0)
    attempts.failed(A, RateLimitedError("slower", 0.0), 0.0)
    turn = attempts.next(0.0)
    assert turn is not None
    assert turn[1] > 0


def test_deadline_ends_the_tries_but_never_the_first() -> None:
    attempts = Attempts([A], deadline=0.0)
    assert attempts.next(5.0) == (A, 0.0)
    attempts.failed(A, ERROR, 5.0)
    assert attempts.next(5.0) is None


def test_error_names_every_address_with_its_last_error() -> None:
    attempts = Attempts([A, B], deadline=1.0)
    attempts.failed(A, ERROR, 0.0)
    attempts.failed(B, ClusterError("gone"), 0.0)
    attempts.failed(A, ClusterError("busy"), 0.5)
    error = attempts.error(1.0)
    assert isinstance(error, ClusterUnreachableError)
    assert error.attempts == {A: "busy", B: "gone"}
    assert "within 1 s" in str(error)
    assert f"{A}: busy" in str(error)
    assert f"{B}: gone" in str(error)


def test_what_a_node_said_is_not_lost_because_time_ran_out() -> None:
    attempts = Attempts([A, B], deadline=1.0)
    attempts.failed(A, ClusterError("the disk is full"), 0.0)
    attempts.failed(A, ClusterError("no answer in time"), 0.9, cut_short=True)
    attempts.failed(B, ClusterError("no connection in time"), 0.9, cut_short=True)
    error = attempts.error(1.0)
    assert isinstance(error, ClusterUnreachableError)
    assert error.attempts == {A: "the disk is full", B: "no connection in time"}


def test_the_one_that_answered_is_asked_first() -> None:
    endpoints = Endpoints(Location((A, B, C)))
    endpoints.answered(B)
    assert endpoints.addresses == (B, C, A)
    endpoints.answered("http://stranger:1")
    assert endpoints.addresses == (B, C, A)


def test_token_is_for_the_addresses_that_are_known_now() -> None:
    places = iter([Location((B,), "new"), None])
    endpoints = Endpoints(Location((A,), "old"), lambda: next(places))
    assert endpoints.token_for(A) == "old"
    assert endpoints.look_again()
    assert endpoints.token_for(B) == "new"
    assert endpoints.token_for(A) is None
    assert not endpoints.look_again()
    assert endpoints.addresses == (B,)


@pytest.mark.parametrize(
    "address", ["ftp://host:1", "host:8081", "http://", "http://host:port", "http://host/?x=1", "http://[::1", ""]
)
def test_what_is_no_address_is_refused_by_name(address: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"client\.addresses"):
        parse_addresses([address])


def test_address_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(InvalidConfigError) as refused:
        parse_addresses("https://user:hunter2@host:1")
    assert "hunter2" not in str(refused.value)


def test_addresses_are_tidied() -> None:
    assert parse_addresses(["http://a:1/", "http://a:1", "https://b/base/"]) == ("http://a:1", "https://b/base")
    assert parse_addresses("http://a:1") == ("http://a:1",)
    with pytest.raises(InvalidConfigError, match="no address"):
        parse_addresses([])


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("http://127.0.0.1:1", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:1", True),
        ("http://localhost:8", True),
        ("http://10.0.0.1:1", False),
        ("http://localhost.example.com", False),
    ],
)
def test_loopback(address: str, local: bool) -> None:
    assert stays_here(address) is local
