"""The open backend: one session, and the store and the contenders that share it."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError  # type: ignore[import-untyped]
from kazoo.protocol.serialization import (  # type: ignore[import-untyped]
    Create,
    GetACL,
    GetData,
    Sync,
    Transaction,
)

from firesteel.config.high_availability import ZooKeeperAcl, ZooKeeperOptions
from firesteel.errors import StoreBrokenError
from firesteel.ha.protocols import Epoch
from firesteel.ha.storage import LargeValues
from firesteel.ha.storage_files import open_files
from firesteel.ha.zookeeper.client import acl_of
from firesteel.ha.zookeeper.election import ZooKeeperLeaderElectionDriver
from firesteel.ha.zookeeper.errors import CREDENTIALS, translated
from firesteel.ha.zookeeper.layout import Layout, decode_cluster, encode_cluster
from firesteel.ha.zookeeper.session import Session
from firesteel.ha.zookeeper.store import ZooKeeperStateStore
from firesteel.ha.zookeeper.writer import FencedWriter, first_error

logger = logging.getLogger(__name__)

LARGEST_INLINE = 512 * 1024
"""The largest record in ZooKeeper itself, in bytes. Servers refuse requests of a megabyte."""


class ZooKeeperHighAvailabilityServices:
    """Made by `open`."""

    def __init__(self, session: Session, layout: Layout, values: LargeValues, acl: list[Any]) -> None:
        self.session = session
        self._layout = layout
        self._values = values
        self._acl = acl
        self._writer = FencedWriter(session, layout)
        self._elections: list[ZooKeeperLeaderElectionDriver] = []
        self._store = ZooKeeperStateStore(session, layout, self._writer, values, acl=acl, leads=self._leads)

    @staticmethod
    async def open(
        options: ZooKeeperOptions, hosts: str, *, cluster_id: str, storage_dir: str | None
    ) -> ZooKeeperHighAvailabilityServices:
        """Connect, and make the cluster's nodes if they do not exist.

        Raises:
            InvalidConfigError: An option is missing or wrong.
            StoreUnavailableError: No server answered.
            StoreBrokenError: The servers refuse us, or the existing nodes are not a cluster that we can use.
        """
        layout = Layout.of(options.path_root, cluster_id)
        # Errors in the options are reported before anything is waited for.
        await asyncio.to_thread(open_files, storage_dir, cluster_id, "")
        session = Session(options, hosts)
        try:
            await session.open()
            acl = acl_of(options)
            instance = await _ensure_cluster(session, layout, acl)
            if options.acl is ZooKeeperAcl.CREATOR:
                await _check_protected(session, layout)
            files = await asyncio.to_thread(open_files, storage_dir, cluster_id, instance)
        except BaseException:
            await session.close()
            raise
        values = LargeValues(files, limit=LARGEST_INLINE)
        return ZooKeeperHighAvailabilityServices(session, layout, values, acl)

    @property
    def store(self) -> ZooKeeperStateStore:
        return self._store

    def election(self, contender: str) -> ZooKeeperLeaderElectionDriver:
        driver = ZooKeeperLeaderElectionDriver(
            contender, session=self.session, layout=self._layout, acl=self._acl, collect=self.collect_orphans
        )
        self._elections.append(driver)
        return driver

    async def collect_orphans(self, epoch: Epoch) -> int:
        """Delete orphaned files of large values. Only the leader may call this; it does so regularly by itself."""
        return await self._values.collect(epoch, self._store.records)

    def _leads(self) -> bool:
        return any(driver.leads for driver in self._elections)

    async def close(self) -> None:
        for driver in self._elections:
            await driver.close()
        await self._store.close()
        await self._writer.close()
        await self._values.close()
        await self.session.close()


async def _ensure_cluster(session: Session, layout: Layout, acl: list[Any]) -> str:
    """The permanent name of the cluster, which is made with its nodes in one transaction."""
    while True:
        try:
            raw, _ = await session.read(Sync("/"), GetData(layout.cluster, None))
            return decode_cluster(layout, raw or b"")
        except NoNodeError:
            pass
        for parent in layout.parents:
            try:
                await session.request(Create(parent, b"", acl, 0))
            except NodeExistsError:
                pass
        made = [Create(layout.cluster, encode_cluster(uuid.uuid4().hex), acl, 0)]
        made += [Create(node, b"", acl, 0) for node in (layout.epoch, layout.leader, layout.election, layout.state)]
        match first_error(await session.request(Transaction(made))):
            case None:
                logger.info("made the nodes of the cluster at %s in %s", layout.cluster, session.where)
            case (_, NodeExistsError() | NoNodeError()):
                pass  # another node of the cluster was faster
            case (_, error):
                raise translated(error, session.where)


async def _check_protected(session: Session, layout: Layout) -> None:
    """Refuse nodes that were made with an open ACL, which would make credentials useless (S31)."""
    for node in (layout.cluster, layout.epoch, layout.leader, layout.election, layout.state):
        acl, _ = await session.read(GetACL(node))
        if any(entry.id.scheme == "world" for entry in acl):
            raise StoreBrokenError(
                f"{session.where}: the node {node} is open to everyone, but high-availability.zookeeper.client.acl is "
                f"`creator`; delete it, or give it an ACL for only the user of {CREDENTIALS}"
            )
