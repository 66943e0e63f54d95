"""Which host something is of, and what may be concluded from not seeing it."""

from __future__ import annotations

import pytest

from firesteel.hosts import Host, Whereabouts, this_host

HERE = Host("a", "m1", "b1")


@pytest.mark.parametrize(
    ("noted", "seen", "elsewhere"),
    [
        (HERE, False, False),
        (Host("a", "m1", "b0"), False, False),  # before the last reboot: nothing is left of it
        (Host("b", "m2", "b2"), False, True),
        (Host("b", "m2", "b2"), True, True),  # files on a network: locks need not be seen across hosts
        (Host("a", "m2", "b2"), False, True),  # two machines of one name
        (Host("b", "m1", "b2"), False, True),  # two machines of one image
        (Host("c", "m1", "b1"), False, True),  # another container of this machine, with files of its own
        (Host("c", "m1", "b1"), True, False),  # one that was here before us, or runs next to us: locks tell
        (Host("a", "", ""), False, True),  # of a system that tells nothing of itself
    ],
)
def test_what_is_not_seen_may_live_elsewhere(noted: Host, seen: bool, elsewhere: bool) -> None:
    assert noted.is_elsewhere(HERE, seen=seen) is elsewhere
    found = Whereabouts(HERE).elsewhere(str(noted), seen=seen)
    assert found == (noted if elsewhere else None)


def test_unknown_boots_are_not_the_same_boot() -> None:
    here = Host("a", "m1", "")
    assert Host("b", "m1", "").is_elsewhere(here, seen=True)
    assert not Host("a", "m1", "").is_elsewhere(here, seen=False)


@pytest.mark.parametrize("text", ["", "a", "a/b", "/m/b", "a/b/c/d"])
def test_what_was_not_noted_proves_nothing(text: str) -> None:
    assert Whereabouts(HERE).elsewhere(text, seen=False) is None


def test_host_that_somebody_vouches_for_being_gone_is_not_waited_for() -> None:
    assert Whereabouts(HERE, frozenset({"b"})).elsewhere("b/m2/b2", seen=False) is None
    assert Whereabouts(HERE, frozenset({"c"})).elsewhere("b/m2/b2", seen=False) is not None


def test_this_host_is_the_same_whenever_it_is_asked_and_survives_being_written_down() -> None:
    here = this_host()
    assert here.name
    assert here.boot
    assert Host.parse(str(here)) == here == this_host()
    assert not here.is_elsewhere(here, seen=False)
