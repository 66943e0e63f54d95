"""What a client knows of the life of its session. Pure: times are given, of one monotonic clock."""

from __future__ import annotations

TRUSTED = 2 / 3
"""Of the session timeout: for how long after a proof of life the session is not over, whatever happens.

A server that is no leader tells the leader of its clients' signs of life every half tick, and a timeout is two ticks or more:
so the leader ends a session no earlier than three quarters of the timeout after any of them, if they come one after the
other. The rest is for clocks.
"""
_NEVER = float("-inf")


class SignsOfLife:
    """Of a session and of the server that it is with. `timeout` is the session's, as granted."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._let_in = _NEVER
        self._heard = _NEVER
        self._asked = _NEVER
        """The last request that proves something was sent then."""
        self._one_after_the_other = _NEVER
        """Signs of life have come like that from then on."""
        self._proven = _NEVER

    def let_in(self, at: float) -> None:
        """A server has taken the session, which it has asked the leader of the ensemble for."""
        self._let_in, self._one_after_the_other = at, _NEVER

    def heard(self, at: float) -> None:
        """The server has answered something, whatever it was."""
        self._heard = max(self._heard, at)

    def proved(self, asked: float) -> None:
        """The leader of the ensemble has had to do with a request of ours, which was sent at `asked`.

        After a silence, such as a pause of this process, the server may not yet have told the leader, which counts from the
        last sign before. That is certain when another proof follows after half a tick.
        """
        if asked - max(self._asked, self._let_in) > self.timeout / 3:
            self._one_after_the_other = asked
        self._asked = max(self._asked, asked)
        if asked - self._one_after_the_other >= self.timeout / 4:
            self._proven = max(self._proven, asked)

    @property
    def trusted_until(self) -> float:
        """The session has surely not expired by then, if we had not been told so by now."""
        return self._proven + self.timeout * TRUSTED

    def due_in(self, now: float) -> float:
        """Seconds until it is time to ask for a proof; none when it is."""
        return max(0.0, self._asked + self.timeout / 6 - now)

    @property
    def patience(self) -> float:
        """Seconds for which a proof is waited for."""
        return self.timeout / 3

    def is_silent(self, now: float) -> bool:
        """Whether the server has said nothing for so long that another one is worth a try.

        Large answers may be on their way before that which we wait for.
        """
        return now - max(self._let_in, self._heard) >= self.patience
