"""What a client knows about the life of its session. Pure: all times are passed in, from one monotonic clock."""

from __future__ import annotations

TRUSTED = 2 / 3
"""The part of the session timeout for which a session certainly lives after a proof of life.

A server that is not the ensemble's leader reports its clients' signs of life to the leader every half tick, and a timeout is
at least two ticks. So the leader ends a session no earlier than three quarters of the timeout after any of them, if they come
regularly. The rest allows for clocks.
"""
_NEVER = float("-inf")


class SignsOfLife:
    """The signs of life of a session and its server. `timeout` is the granted session timeout."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._let_in = _NEVER
        self._heard = _NEVER
        self._asked = _NEVER
        """When the last request that proves something was sent."""
        self._one_after_the_other = _NEVER
        """Since when signs of life have come regularly."""
        self._proven = _NEVER

    def let_in(self, at: float) -> None:
        """A server has accepted the session, after asking the leader of the ensemble."""
        self._let_in, self._one_after_the_other = at, _NEVER

    def heard(self, at: float) -> None:
        """The server has sent any answer."""
        self._heard = max(self._heard, at)

    def proved(self, asked: float) -> None:
        """The leader of the ensemble has processed a request of ours, which was sent at `asked`.

        After a silence, such as a pause of this process, the server may not have told the leader yet, which then still counts
        from the last sign before it. It certainly has when another proof follows after half a tick.
        """
        if asked - max(self._asked, self._let_in) > self.timeout / 3:
            self._one_after_the_other = asked
        self._asked = max(self._asked, asked)
        if asked - self._one_after_the_other >= self.timeout / 4:
            self._proven = max(self._proven, asked)

    @property
    def trusted_until(self) -> float:
        """The time until which the session has certainly not expired, unless its expiry was reported already."""
        return self._proven + self.timeout * TRUSTED

    def due_in(self, now: float) -> float:
        """Seconds until the next proof should be requested; 0 if it is due."""
        return max(0.0, self._asked + self.timeout / 6 - now)

    @property
    def patience(self) -> float:
        """Seconds to wait for a proof."""
        return self.timeout / 3

    def is_silent(self, now: float) -> bool:
        """Whether the server has been silent for so long that another one should be tried.

        Large answers may arrive before the one that we wait for.
        """
        return now - max(self._let_in, self._heard) >= self.patience
