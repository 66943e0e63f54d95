"""The worker of a node that does not lead: its host runs jobs all the same, for the leader elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Protocol

import httpx

from firesteel.blob.keys import BlobKey
from firesteel.config.sections import Role
from firesteel.errors import BlobNotFoundError, FiresteelError, NotLeadingError
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.rest.node_identity import NodeIdentity
from firesteel.rest.security.principals import Principal
from firesteel.rpc.messages import WorkerInfo
from firesteel.worker.host import WorkerHost
from firesteel.worker.leader_http import HttpLeaderConnection
from firesteel.worker.one_process import acting_for

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


class LeaderView(Protocol):
    """Who leads, as a node sees it."""

    @property
    def epoch(self) -> Epoch: ...

    def leader(self) -> LeaderInformation | None: ...

    async def leader_changed(self, timeout: float) -> None: ...  # noqa: ASYNC109


class EmbeddedWorker:
    """Acts for the worker of this node's directory while another host leads, and rests while this node does.

    Several nodes of one host share a directory and are one worker: the one that holds the lock acts for it.
    """

    def __init__(self, host: WorkerHost, info: WorkerInfo, *, patience: float) -> None:
        self._host = host
        self._info = info
        self._patience = patience
        self._identity: NodeIdentity | None = None
        self._client: httpx.AsyncClient | None = None
        self._node: LeaderView | None = None
        self._address = ""
        self._serving: asyncio.Task[None] | None = None

    def is_known(self, identity: NodeIdentity, client: httpx.AsyncClient) -> None:
        """How this node proves to the leader that it is one, and asks it."""
        self._identity = identity
        self._client = client

    async def rest(self) -> None:
        """This node leads: its own attempts are watched by their JobMasters from here on."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])
            self._serving = None

    async def run(self, node: LeaderView, address: str) -> None:
        """Until cancelled. `address`: of this node."""
        self._node, self._address = node, address
        try:
            while True:
                leader = None if _leads(node) else node.leader()
                if leader is None or leader.address == address:
                    await self.rest()
                elif self._serving is None or self._serving.done():
                    self._report_end()
                    self._serving = asyncio.get_running_loop().create_task(self._serve())
                await node.leader_changed(LOOK_SECONDS)
        finally:
            await self.rest()

    def _report_end(self) -> None:
        if self._serving is not None and not self._serving.cancelled() and (error := self._serving.exception()):
            logger.error("the worker of this node ended: %s", error, exc_info=error)

    async def _serve(self) -> None:
        assert self._client is not None
        with acting_for(self._host.home, self._info.worker) as mine:
            if not mine:
                await asyncio.sleep(LOOK_SECONDS)
                return
            connection = HttpLeaderConnection(
                self._client, self._addresses, self._info.worker, self._authorize, patience=self._patience
            )
            await self._host.serve(self._info, connection, lambda error: logger.error("worker: %s", error))

    async def fetch(self, key: BlobKey) -> httpx.Response:
        """An uploaded file, from the leader elsewhere. Raises BlobNotFoundError when there is none."""
        path = f"/blobs/{key}"
        authorization = await self._authorize("GET", path)
        leaders = await self._addresses()
        if not leaders or authorization is None or self._client is None:
            raise BlobNotFoundError(f"the file {key} is not known here; upload it again")
        request = self._client.build_request("GET", f"{leaders[0]}{path}", headers={"authorization": authorization})
        return await self._client.send(request, stream=True)

    async def _addresses(self) -> Sequence[str]:
        leader = self._node.leader() if self._node is not None else None
        return [leader.address] if leader is not None and leader.address != self._address else []

    async def _authorize(self, method: str, path: str) -> str | None:
        leader = self._node.leader() if self._node is not None else None
        if leader is None or self._identity is None:
            return None
        principal = Principal(self._info.worker, Role.WORKER, self._info.worker)
        token = await self._identity.token(principal, leader.epoch, f"{method} {path}")
        return None if token is None else f"Bearer {token}"


def _leads(node: LeaderView) -> bool:
    with contextlib.suppress(NotLeadingError, FiresteelError):
        return bool(node.epoch)
    return False
