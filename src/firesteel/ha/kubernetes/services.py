"""Opening the backend `kubernetes`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from firesteel.concurrency import OwnedTasks
from firesteel.config.loader import Configuration
from firesteel.ha.contender import Collecting
from firesteel.ha.kubernetes.api import Api
from firesteel.ha.kubernetes.connection import connect
from firesteel.ha.kubernetes.election import COLLECT_SECONDS, LOOK_SECONDS, KubernetesLease
from firesteel.ha.kubernetes.follower import LeaseFollower
from firesteel.ha.kubernetes.lease import LeaseRecord
from firesteel.ha.kubernetes.leases import Leases
from firesteel.ha.kubernetes.names import Names
from firesteel.ha.kubernetes.root import Roots
from firesteel.ha.kubernetes.store import KubernetesStateStore
from firesteel.ha.kubernetes.values import INLINE, ShardValues
from firesteel.ha.lease import LeaseElectionDriver
from firesteel.ha.protocols import Epoch
from firesteel.ha.storage_files import open_files

logger = logging.getLogger(__name__)


async def open_kubernetes(configuration: Configuration) -> KubernetesHighAvailabilityServices:
    """Open the backend.

    Raises:
        InvalidConfigError: No API server, no such namespace, no `high-availability.storageDir`, or invalid names.
        StoreBrokenError: This node lacks permissions; the message names the verb and the kind of object.
        StoreUnavailableError: The API server is out of reach.
    """
    options = configuration.high_availability
    names = Names.checked(configuration.kubernetes.namespace, options.cluster_id)
    await asyncio.to_thread(open_files, options.storage_dir, options.cluster_id, "")  # raises early if it is not set
    connection = await connect(configuration.kubernetes)
    api = Api(connection.client, names.namespace)
    try:
        root = await Roots(api, names).ensure()
        files = await asyncio.to_thread(open_files, options.storage_dir, options.cluster_id, root.instance)
        store = KubernetesStateStore(api, names, root, ShardValues(files, limit=INLINE))
    except BaseException:
        await api.close()
        raise
    return KubernetesHighAvailabilityServices(
        api, names, store, lease_duration=options.lease_duration, refresh=connection.refresh
    )


class KubernetesHighAvailabilityServices:
    """Made by `open_kubernetes`."""

    def __init__(
        self,
        api: Api,
        names: Names,
        store: KubernetesStateStore,
        *,
        lease_duration: float,
        refresh: Callable[[], Coroutine[Any, Any, None]] | None,
    ) -> None:
        self._api = api
        self._store = store
        self._leases = Leases(api, names)
        self._lease_duration = lease_duration
        self._elections: list[LeaseElectionDriver[LeaseRecord | None]] = []
        self._tasks = OwnedTasks("kubernetes", lambda _: None)
        self._follower = LeaseFollower(self._leases, self._tasks, self._seen)
        store.on_fenced = self._fenced
        if refresh is not None:
            self._tasks.start(_keep_fresh(refresh), "credential")

    @property
    def store(self) -> KubernetesStateStore:
        return self._store

    def election(self, contender: str) -> LeaseElectionDriver[LeaseRecord | None]:
        lease = KubernetesLease(
            contender,
            leases=self._leases,
            follower=self._follower,
            state=self._store,
            lease_duration=self._lease_duration,
        )
        driver = LeaseElectionDriver(
            contender,
            lease,
            lease_duration=self._lease_duration,
            changes=self._follower.changes,
            look_every=LOOK_SECONDS,
            claim=lease.claim,
            collecting=Collecting(self._store.collect, first=COLLECT_SECONDS, every=COLLECT_SECONDS),
        )
        self._elections.append(driver)
        return driver

    async def close(self) -> None:
        for driver in self._elections:
            await driver.close()
        await self._store.close()
        await self._tasks.close()
        await self._api.close()

    # A contender loses its leadership when another is seen, even if it thinks that it still leads.

    def _seen(self, record: LeaseRecord, gone: bool) -> None:
        for driver in self._elections:
            if driver.term is None:
                continue
            if record.epoch > driver.term:
                driver.lose("another contender took over")
            elif gone and record.epoch == driver.term:
                driver.lose("its Lease was deleted")

    def _fenced(self, epoch: Epoch) -> None:
        """End the leadership of this epoch, as one of its writes was refused, whatever the Lease says."""
        for driver in self._elections:
            if driver.term == epoch:
                driver.lose("another leader has claimed the state")


async def _keep_fresh(refresh: Callable[[], Coroutine[Any, Any, None]]) -> None:
    while True:
        try:
            return await refresh()  # returns at once when the credential does not expire
        except Exception as error:  # a command of the kubeconfig may raise anything
            logger.warning("the credential for Kubernetes could not be renewed; trying again: %r", error)
            await asyncio.sleep(10)
