"""For how long a session is trusted, by the clock alone."""

from __future__ import annotations

from firesteel.ha.zookeeper.life import SignsOfLife

TIMEOUT = 12.0


def let_in(at: float) -> SignsOfLife:
    signs = SignsOfLife(TIMEOUT)
    signs.let_in(at)
    return signs


def test_nothing_is_trusted_before_the_first_proof() -> None:
    assert SignsOfLife(TIMEOUT).trusted_until == float("-inf")
    assert let_in(100).trusted_until == float("-inf")


def test_session_that_was_just_let_in_is_proven_at_once() -> None:
    """There may be little left of the time for which a leader is trusted."""
    signs = let_in(100)
    signs.proved(101)
    assert signs.trusted_until == 101 + 8
    signs.proved(105)
    assert signs.trusted_until == 105 + 8
    signs.proved(103)  # an answer that came late
    assert signs.trusted_until == 105 + 8


def test_first_proof_after_a_silence_counts_when_another_follows() -> None:
    """I7: the server may not have told the ensemble's leader yet when it is cut off from it."""
    signs = let_in(100)
    signs.proved(104)
    signs.proved(109)  # five seconds of nothing
    signs.proved(111)
    assert signs.trusted_until == 104 + 8
    signs.proved(112)
    assert signs.trusted_until == 112 + 8


def test_silence_that_ends_with_a_new_connection_is_none() -> None:
    signs = let_in(100)
    signs.proved(101)
    signs.let_in(108)
    signs.proved(108.5)
    assert signs.trusted_until == 108.5 + 8
    signs.let_in(110)
    signs.proved(115)  # paused right after it was let in
    assert signs.trusted_until == 108.5 + 8


def test_proofs_are_due_before_they_are_missed() -> None:
    signs = let_in(100)
    assert signs.due_in(100) == 0
    signs.proved(100)
    assert signs.due_in(100.5) == 1.5
    assert signs.due_in(103) == 0


def test_server_that_still_answers_something_is_not_silent() -> None:
    """F7: large answers are on their way before that which is waited for."""
    signs = let_in(100)
    assert not signs.is_silent(103.9)
    assert signs.is_silent(104)
    signs.heard(103)
    assert not signs.is_silent(106.9)
    assert signs.is_silent(107)
    signs.let_in(108)
    assert not signs.is_silent(111)
