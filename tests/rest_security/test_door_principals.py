from __future__ import annotations

from itertools import product

import pytest

from firesteel.config.sections import Role
from firesteel.errors import ForbiddenError
from firesteel.rest.security.principals import EVERYBODY, Principal, at_least, may_read, may_write, require


def test_roles_are_ordered() -> None:
    order = [Role.VIEWER, Role.OPERATOR, Role.ADMIN]
    for (i, have), (j, need) in product(enumerate(order), repeat=2):
        principal = Principal("p", have, "alice")
        assert at_least(principal, need) is (i >= j)
        if i >= j:
            require(principal, need)
        else:
            with pytest.raises(ForbiddenError, match=f"p has the role {have.value}, but this needs {need.value}"):
                require(principal, need)


@pytest.mark.parametrize(
    ("principal", "reads_own", "writes_own", "reads_others", "writes_others"),
    [
        (Principal("v", Role.VIEWER, "alice"), True, False, False, False),
        (Principal("v", Role.VIEWER, EVERYBODY), True, False, True, False),
        (Principal("o", Role.OPERATOR, "alice"), True, True, False, False),
        (Principal("a", Role.ADMIN, "alice"), True, True, True, True),
        (Principal("a", Role.ADMIN, EVERYBODY), True, True, True, True),
    ],
    ids=str,
)
def test_who_may_read_and_write_what(
    principal: Principal, reads_own: bool, writes_own: bool, reads_others: bool, writes_others: bool
) -> None:
    assert may_read(principal, "alice") is reads_own
    assert may_write(principal, "alice") is writes_own
    assert may_read(principal, "bob") is reads_others
    assert may_write(principal, "bob") is writes_others


def test_a_job_whose_owner_is_spelled_like_everybody_is_nobodys() -> None:
    assert not may_read(Principal("o", Role.OPERATOR, "alice"), EVERYBODY)
    assert not may_write(Principal("v", Role.VIEWER, EVERYBODY), EVERYBODY)


def test_an_operator_for_everybody_would_be_an_admin_under_another_name() -> None:
    with pytest.raises(ValueError, match="belongs to one owner"):
        Principal("o", Role.OPERATOR, EVERYBODY)


@pytest.mark.parametrize(
    "text", ["", " a", "a ", "a\nb", "a\x00b", "a\u202eb", "a\u2028b", "a\x7f", "x" * 201, "\u00a0x"]
)
def test_names_that_hide_something_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="printable"):
        Principal(text, Role.VIEWER, "alice")
    with pytest.raises(ValueError, match="printable"):
        Principal("p", Role.VIEWER, text)


def test_nobody_is_called_everybody() -> None:
    with pytest.raises(ValueError, match="everybody"):
        Principal("*", Role.ADMIN, "*")


def test_jobs_of_an_admin_for_everybody_belong_to_the_admin() -> None:
    assert Principal("root", Role.ADMIN, EVERYBODY).submits_as == "root"
    assert Principal("root", Role.ADMIN, "ops").submits_as == "ops"
    assert Principal("auth0|7 é", Role.OPERATOR, "user@example.com").submits_as == "user@example.com"
