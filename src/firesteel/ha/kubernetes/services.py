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
    """The open backend.

    Raises:
        InvalidConfigError: No way to an API server, no such namespace, no `high-availability.storageDir`, no such names.
        StoreBrokenError: This node may not do there what it has to; says which verb on what is missing.
        StoreUnavailableError: The API server is out of reach.
    """
    options = configuration.high_availability
    names = Names.checked(configuration.kubernetes.namespace, options.cluster_id)
    await asyncio.to_thread(open_files, options.storage_dir, options.cluster_id, "")  # says so now, if it is not set
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

    # What is heard of leadership costs a contender its own, whatever it believes.

    def _seen(self, record: LeaseRecord, gone: bool) -> None:
        for driver in self._elections:
            if driver.term is None:
                continue
            if record.epoch > driver.term:
                driver.lose("another contender took over")
            elif gone and record.epoch == driver.term:
                driver.lose("its Lease was deleted")

    def _fenced(self, epoch: Epoch) -> None:
        """A write of this epoch was refused, so it is worth nothing any more, whatever the Lease says."""
        for driver in self._elections:
            if driver.term == epoch:
                driver.lose("the state is of another leader")


async def _keep_fresh(refresh: Callable[[], Coroutine[Any, Any, None]]) -> None:
    while True:
        try:
            return await refresh()  # at once when the credential is not of a kind that ends
        except Exception as error:  # of a command that the kubeconfig names: anything
            logger.warning("the credential for Kubernetes could not be renewed; it is tried again: %r", error)
            await asyncio.sleep(10)
