"""Handing leadership over to another node, and checking that it took over."""

from __future__ import annotations

import time
from dataclasses import dataclass

from firesteel.client.caller import ClusterCaller
from firesteel.client.errors import ClusterError, ClusterUnreachableError
from firesteel.client.model import ClusterStatus
from firesteel.client.requests import get, with_json

HAND_OVER_SECONDS = 30.0
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class HandOver:
    """A leadership that went from one node to another."""

    before: str
    """Address of the node that led."""
    after: str
    epoch: int
    """The epoch of the new leadership."""
    seconds: float
    """Seconds from the request until the new leader served."""


async def hand_over(caller: ClusterCaller, *, force: bool, patience: float) -> HandOver:
    deadline = time.monotonic() + patience
    before = await _led(caller, 0, deadline)
    began = time.monotonic()
    # With the epoch, so that repeating it when an answer is lost does not send the next leader away too.
    wish = {"epoch": before.epoch, "force": force}
    request = with_json("POST", "/cluster/handover", wish, conflict=ClusterError)
    await caller.json(request, patience=max(0.1, deadline - time.monotonic()))
    after = await _led(caller, (before.epoch or 0) + 1, deadline)
    seconds = time.monotonic() - began
    if after.leader == before.leader:
        raise ClusterError(
            f"no other node took over from {before.leader}, which leads again in epoch {after.epoch}; is one running?"
        )
    assert before.leader is not None
    assert after.leader is not None
    return HandOver(before.leader, after.leader, after.epoch or 0, seconds)


async def _led(caller: ClusterCaller, epoch: int, deadline: float) -> ClusterStatus:
    """The status, once a leader of at least `epoch` serves."""
    while True:
        left = deadline - time.monotonic()
        status = ClusterStatus.of(await caller.json(get("/cluster/status"), patience=max(0.1, left)))
        if status.leader and status.epoch is not None and status.epoch >= epoch:
            return status
        if left <= 0:
            why = f": {status.reason}" if status.reason else ""
            raise ClusterUnreachableError(f"no node leads{why}; `firesteel cluster status` shows more")
        await caller.pause(_LOOK_SECONDS)
