"""The addresses of a cluster's nodes: which one is asked next, and when. This module has no clock and no network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from firesteel.client.errors import ClusterUnreachableError
from firesteel.concurrency import Backoff
from firesteel.errors import FiresteelError, InvalidConfigError, Problem, RateLimitedError
from firesteel.ip_addresses import is_loopback

PAUSES = Backoff(0.1, 2.0)
"""The pauses between two tries at one address."""


def parse_addresses(addresses: Sequence[str] | str) -> tuple[str, ...]:
    """Addresses without a trailing slash. Raises InvalidConfigError for an invalid address and for an empty list."""
    given = [addresses] if isinstance(addresses, str) else list(addresses)
    problems = [p for p in map(_problem, given) if p is not None]
    if not given:
        problems = [Problem("no address of a node was given", "give at least one, such as http://127.0.0.1:8081")]
    if problems:
        raise InvalidConfigError(problems)
    return tuple(dict.fromkeys(a.rstrip("/") for a in given))


def _problem(address: str) -> Problem | None:
    fix = "write http://host:port or https://host:port"
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return Problem(f"'{address}' is not the address of a node", fix, field="client.addresses")
    if parts.username is not None or parts.password is not None:
        # Not shown: it holds a password.
        message = f"the address of {parts.hostname} contains a user name or password"
        return Problem(message, "remove it, and use a token", field="client.addresses")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        return Problem(f"'{address}' is not the address of a node", fix, field="client.addresses")
    return None


def stays_here(address: str) -> bool:
    """Whether what is sent to `address`, a URL, stays on this machine."""
    return is_loopback(urlsplit(address).hostname or "")


@dataclass(frozen=True, slots=True)
class Location:
    """The nodes of one cluster, and the tokens for them."""

    addresses: tuple[str, ...]
    token: str | None = None
    tokens: tuple[str | None, ...] = ()
    """The token for each address, where each node has its own."""

    def token_for(self, address: str) -> str | None:
        """The token for an address. It belongs to the nodes that are known now, and is sent to no other."""
        if address not in self.addresses:
            return None
        return self.tokens[self.addresses.index(address)] if self.tokens else self.token


class Endpoints:
    """The nodes that are known. The one that answered last is asked first."""

    def __init__(self, location: Location, rediscover: Callable[[], Location | None] | None = None) -> None:
        self._location = location
        self._rediscover = rediscover
        self._preferred = location.addresses[0]

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses: the preferred one first, then the others in their order."""
        known = self._location.addresses
        at = known.index(self._preferred)
        return known[at:] + known[:at]

    def token_for(self, address: str) -> str | None:
        return self._location.token_for(address)

    def answered(self, address: str) -> None:
        if address in self._location.addresses:
            self._preferred = address

    @property
    def may_move(self) -> bool:
        """Whether `look_again` can find other addresses."""
        return self._rediscover is not None

    def look_again(self) -> bool:
        """Find out where the cluster is now. Returns False when it is nowhere at the moment."""
        if self._rediscover is None:
            return True
        found = self._rediscover()
        if found is not None and found != self._location:
            self._location = found
            if self._preferred not in found.addresses:
                self._preferred = found.addresses[0]
        return found is not None


class Attempts:
    """The tries of one request: every address in turn, each with pauses that grow, until the deadline."""

    def __init__(self, addresses: Sequence[str], deadline: float, *, refused_until: float | None = None) -> None:
        self.deadline = deadline
        self._refused_until = refused_until
        """The deadline as long as all that came was refused connections; None for the same one."""
        self._ready_at = dict.fromkeys(addresses, 0.0)
        self._pauses: dict[str, Iterator[float]] = {}
        self._errors: dict[str, str] = {}
        self._last: FiresteelError | None = None

    @property
    def begun(self) -> bool:
        return bool(self._errors)

    def next(self, now: float) -> tuple[str, float] | None:
        """The address to ask, and how long to wait before that; None when the deadline comes first."""
        address = min(self._ready_at, key=lambda a: self._ready_at[a])  # the first of those that are ready alike
        pause = max(0.0, self._ready_at[address] - now)
        if self.begun and now + pause >= self._until:
            return None  # the first try is made however little time there is
        return address, pause

    @property
    def _until(self) -> float:
        return self.deadline if self._refused_until is None else min(self.deadline, self._refused_until)

    def failed(
        self,
        address: str,
        error: FiresteelError,
        now: float,
        *,
        retry_after: float = 0.0,
        cut_short: bool = False,
        refused: bool = False,
    ) -> None:
        """Record that the try at `address` failed.

        Args:
            retry_after: for how many seconds the node asked not to be asked again.
            cut_short: it had less time than usual, which says nothing new: its earlier error is kept.
            refused: no process listens there.
        """
        if not refused:
            self._refused_until = None
        if not (cut_short and address in self._errors):
            self._errors[address] = str(error)
            self._last = error
        ready_at = now + max(next(self._pauses.setdefault(address, PAUSES.delays())), retry_after)
        # When it is the caller who sent too much, another node would say the same.
        for other in self._ready_at if isinstance(error, RateLimitedError) else (address,):
            self._ready_at[other] = max(self._ready_at.get(other, 0.0), ready_at)

    def moved(self, addresses: Sequence[str]) -> None:
        """Continue with other addresses, at which the cluster is now."""
        self._ready_at = {address: self._ready_at.get(address, 0.0) for address in addresses}

    def error(self, timeout: float) -> FiresteelError:
        """The error to raise when there is no next try."""
        if isinstance(self._last, RateLimitedError):
            return self._last
        tried = "; ".join(f"{address}: {error}" for address, error in self._errors.items())
        message = f"no node of the cluster answered within {timeout:g} s — {tried}"
        if self._until < self.deadline:
            message = (
                f"no node of the cluster accepts connections — {tried}; check the address, and that a node is "
                "running there (client.connect-timeout sets how long to try)"
            )
        return ClusterUnreachableError(message, attempts=self._errors)
