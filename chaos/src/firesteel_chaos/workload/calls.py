"""A client that writes down what it asks before it asks, and what it was told."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from firesteel.client.cluster import ClusterClient
from firesteel.client.errors import ClusterError, JobTimeoutError
from firesteel.errors import FiresteelError, RateLimitedError
from firesteel_chaos.handle import ClusterHandle
from firesteel_chaos.history import History

PATIENCE = (1.0, 3.0, 15.0)
"""Seconds that a client waits for an answer, drawn anew for each: the impatient ones repeat themselves at other nodes."""

_IDS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Told:
    outcome: str
    """ok, refused (it will not be done, or not a second time), or unknown (nobody answered)."""
    value: Any = None
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    @property
    def known(self) -> bool:
        return self.outcome != "unknown"


class RecordingClient:
    """One client at a time of one thread. `fresh` gives it other connections, another first node and another patience."""

    def __init__(self, name: str, cluster: ClusterHandle, history: History, rng: random.Random) -> None:
        self.name = name
        self._cluster = cluster
        self._history = history
        self._rng = rng
        self._client = self._open()

    def _open(self) -> ClusterClient:
        addresses = list(self._cluster.addresses)
        first = self._rng.randrange(len(addresses))
        return ClusterClient(
            addresses[first:] + addresses[:first],
            token=self._cluster.token,
            ca=self._cluster.ca,
            timeout=self._rng.choice(PATIENCE),
        )

    def fresh(self) -> None:
        self._client.close()
        self._client = self._open()

    def ask(self, what: str, job: str | None, do: Callable[[ClusterClient], Any], **args: Any) -> Told:
        number = next(_IDS)
        self._history.record("call", id=number, client=self.name, what=what, job=job, args=args)
        told = _told(lambda: do(self._client))
        particulars = {"value": told.value} if told.ok else {"error": told.error}
        self._history.record("answer", id=number, outcome=told.outcome, **particulars)
        return told

    def quietly(self, do: Callable[[ClusterClient], Any]) -> Told:
        """As `ask`, of what is of no interest to anybody."""
        return _told(lambda: do(self._client))

    def close(self) -> None:
        self._client.close()


def _told(do: Callable[[], Any]) -> Told:
    try:
        return Told("ok", do())
    except FiresteelError as error:
        return Told("unknown" if _in_doubt(error) else "refused", error=f"{type(error).__name__}: {error}"[:300])


def _in_doubt(error: FiresteelError) -> bool:
    """Whether nobody knows if it was done: no answer, or one that is none, such as a 500 from a node that is dying."""
    if isinstance(error, ClusterError):
        return error.status is None or error.status >= 500
    return isinstance(error, JobTimeoutError | RateLimitedError)
