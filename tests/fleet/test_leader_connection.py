"""The way of a worker to its leader, when nodes do not answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import httpx
import pytest

from firesteel.rpc.messages import Registration, WorkerInfo
from firesteel.worker import leader_http
from firesteel.worker.leader_http import HttpLeaderConnection

DEAD, ALIVE = "https://dead:8081", "https://alive:8081"
INFO = WorkerInfo("w" + "0" * 16, "one", "i1", "one/m/b", 2, "4g", 2)


def test_a_node_that_says_nothing_does_not_keep_a_worker_from_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """F27: the worker would be isolated long before a request times out."""
    monkeypatch.setattr(leader_http, "REGISTRATION_SECONDS", 0.05)
    asked: list[str] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        if request.url.host == "dead":  # as when its host is gone
            await asyncio.Event().wait()
        return httpx.Response(200, content=json.dumps({"epoch": 3, "heartbeat": 1.0}))

    async def nodes() -> Sequence[str]:
        return [DEAD, ALIVE]

    async def authorize(_method: str, _path: str) -> str:
        return "Bearer x"

    async def play() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            to_leader = HttpLeaderConnection(client, nodes, INFO.worker, authorize, patience=30.0)
            async with asyncio.timeout(5):
                assert (await to_leader.register(Registration(INFO, 0))).epoch == 3

    asyncio.run(play())
    assert asked == ["dead", "alive"]
