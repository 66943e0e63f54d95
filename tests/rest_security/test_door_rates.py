"""S26: one who floods is slowed down, and the others do not notice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message
from tests.rest_security.rig import BEARER, ask, client_of, errors_of, http_scope, make_door, never, rest

from firesteel.config.sections import Role
from firesteel.rest.security.door import Door
from firesteel.rest.security.identities import Identities
from firesteel.rest.security.principals import Principal
from firesteel.rest.security.rates import RateLimiter


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_and_then_the_rate() -> None:
    clock = Clock()
    limiter = RateLimiter(4, 5, clock=clock)
    assert [limiter.take("a") for _ in range(5)] == [0.0] * 5
    assert limiter.take("a") == 0.25
    clock.now += 0.125
    assert limiter.take("a") == 0.125
    clock.now += 0.125
    assert limiter.take("a") == 0.0
    assert limiter.take("a") > 0
    clock.now += 1000
    assert [limiter.take("a") for _ in range(6)][:5] == [0.0] * 5
    assert limiter.take("a") > 0


def test_asking_while_refused_costs_nothing_more() -> None:
    clock = Clock()
    limiter = RateLimiter(1, 1, clock=clock)
    assert limiter.take("a") == 0.0
    assert [limiter.take("a") for _ in range(1000)] == [1.0] * 1000
    clock.now += 1.0
    assert limiter.take("a") == 0.0


def test_callers_do_not_share_a_bucket() -> None:
    limiter = RateLimiter(1, 1, clock=Clock())
    assert limiter.take("a") == 0.0
    assert limiter.take("a") > 0
    assert limiter.take("b") == 0.0


def test_the_table_is_bounded_and_forgets_the_one_not_heard_of_for_longest() -> None:
    limiter = RateLimiter(1, 1, max_callers=3, clock=Clock())
    for caller in "abc":
        assert limiter.take(caller) == 0.0
    assert limiter.take("a") > 0  # heard of again, and remembered for it
    for number in range(1000):
        limiter.take("a")
        assert limiter.take(number) == 0.0
    assert len(limiter) == 3
    assert limiter.take("a") > 0
    assert limiter.take("b") == 0.0


def door_of(**given: Any) -> Door:
    return make_door(rest=rest(rate_limit=1, rate_burst=3), **given)


async def statuses(door: Door, number: int, path: str = "/who", headers: dict[str, str] | None = None) -> list[int]:
    async with client_of(door) as client:
        return [(await client.get(path, headers=headers)).status_code for _ in range(number)]


def test_a_flood_is_answered_with_429() -> None:
    """S26"""
    door = door_of()
    assert asyncio.run(statuses(door, 4, headers=BEARER)) == [200, 200, 200, 429]
    answer = ask(door, "GET", "/who")
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert "try again" in errors_of(answer)[0]


class TwoPeople:
    async def authenticate(self, token: str) -> Principal | None:
        name = token.removeprefix("fst_")
        return Principal(name, Role.OPERATOR, name) if name in ("alice", "bob") else None


def test_others_do_not_notice() -> None:
    """S26: neither those with a credential, nor those without, from the same address."""
    door = door_of(identities=Identities(tokens=TwoPeople()))

    async def scenario() -> None:
        assert (await statuses(door, 10, headers={"authorization": "Bearer fst_alice"}))[3:] == [429] * 7
        assert await statuses(door, 3, headers={"authorization": "Bearer fst_bob"}) == [200] * 3
        assert await statuses(door, 3) == [401] * 3

    asyncio.run(scenario())


def test_those_who_are_nobody_are_counted_by_address_and_lock_out_nobody() -> None:
    """S26: on loopback all have one address."""
    door = door_of()

    async def scenario() -> None:
        assert await statuses(door, 5) == [401, 401, 401, 429, 429]
        assert await statuses(door, 1, headers={"authorization": "Bearer wrong"}) == [429]
        assert await statuses(door, 3, "/healthz") == [200] * 3
        assert await statuses(door, 3, headers=BEARER) == [200] * 3

    asyncio.run(scenario())


def test_public_paths_are_counted_too() -> None:
    assert asyncio.run(statuses(door_of(), 5, "/healthz")) == [200, 200, 200, 429, 429]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("", "", True),
    ],
)
def test_a_network_of_ipv6_addresses_counts_as_one_caller(first: str, second: str, same: bool) -> None:
    door = make_door(rest=rest(rate_limit=1, rate_burst=1))
    seen: list[int] = []

    async def send(message: Message) -> None:
        if "status" in message:
            seen.append(message["status"])

    for address in (first, second):
        scope = {**http_scope(), "client": (address, 5) if address else None}
        scope["headers"] = [(b"host", b"localhost")]
        asyncio.run(door(scope, never, send))
    assert seen == [401, 429 if same else 401]
