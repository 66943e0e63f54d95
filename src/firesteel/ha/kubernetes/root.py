"""The root of a cluster's state: a ConfigMap that describes the layout of the state and holds the newest epoch.

    data:  format     of root and shards
           instance   permanent name of this state, also used in `high-availability.storageDir`
           shards     how many there are
           epoch      the newest epoch that a contender began to claim the shards with; 0 before the first
           holder     that contender
           complete   "true" once all shards were made: a shard that is missing afterwards was deleted

The shards hold the same information, so a root that was deleted is made again.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from firesteel.errors import StoreBrokenError, StoreUnavailableError
from firesteel.ha.kubernetes.api import CONFIG_MAP, Api, ConflictError
from firesteel.ha.kubernetes.names import ROOT, SHARD, SHARDS, Names
from firesteel.ha.kubernetes.shard import FORMAT, ClaimRefusedError, Shard
from firesteel.ha.protocols import Epoch
from firesteel.ha.rules import NEVER

TRIES = 50
"""The number of tries of an update that conflicts with others; after that the caller gets StoreUnavailableError."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Root:
    metadata: Mapping[str, Any]
    instance: str
    shards: int
    epoch: Epoch
    holder: str
    complete: bool

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Root:
        metadata = raw["metadata"]
        data = raw.get("data") or {}
        try:
            if data["format"] != FORMAT:
                raise StoreBrokenError(
                    f"ConfigMap '{metadata['name']}' has format {data['format']!r:.40}, but this Firesteel knows {FORMAT}; "
                    "run the version that wrote it"
                )
            found = Root(
                metadata={key: value for key, value in metadata.items() if key != "managedFields"},
                instance=data["instance"],
                shards=int(data["shards"]),
                epoch=Epoch(int(data["epoch"])),
                holder=data["holder"],
                complete=data["complete"] == "true",
            )
            if not found.instance or found.shards < 1 or found.epoch < NEVER:
                raise ValueError("a value is out of range")
            return found
        except (ValueError, KeyError, TypeError) as error:
            raise StoreBrokenError(
                f"ConfigMap '{metadata['name']}' is damaged: {error!r:.200}; undo the edit, or delete it: "
                "the next leader makes it again from the shards"
            ) from error

    def raw(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": dict(self.metadata),
            "data": {
                "format": FORMAT,
                "instance": self.instance,
                "shards": str(self.shards),
                "epoch": str(self.epoch),
                "holder": self.holder,
                "complete": "true" if self.complete else "false",
            },
        }


class Roots:
    """Reads and writes the root of one cluster."""

    def __init__(self, api: Api, names: Names) -> None:
        self._api = api
        self._names = names

    async def read(self) -> Root | None:
        raw = await self._api.read(CONFIG_MAP, self._names.root)
        if raw is None:
            return None
        self._names.check_ours(raw, ROOT)
        return Root.of(raw)

    async def ensure(self) -> Root:
        """The root. If there is none it is made: anew, or from existing shards."""
        for _ in range(TRIES):
            if (found := await self.read()) is not None:
                return found
            shards = await self.shards()
            if shards:
                logger.warning("ConfigMap '%s' is missing and is being rebuilt from the shards", self._names.root)
            try:
                return Root.of(await self._api.create(CONFIG_MAP, self._made(shards).raw()))
            except ConflictError:
                continue  # another node was first
        raise StoreUnavailableError(
            f"ConfigMap '{self._names.root}' is being deleted by other clients; try again later"
        )

    def _made(self, shards: Sequence[Shard]) -> Root:
        metadata = {"name": self._names.root, "namespace": self._names.namespace, "labels": self._names.labels(ROOT)}
        if not shards:
            return Root(metadata, uuid.uuid4().hex, SHARDS, NEVER, "", complete=False)
        instances = {(shard.instance, shard.shards) for shard in shards}
        if len(instances) != 1:
            raise StoreBrokenError(
                f"the shards of cluster '{self._names.cluster_id}' belong to {len(instances)} different states; "
                "delete the ConfigMaps that were restored by mistake"
            )
        [(instance, count)] = instances
        newest = max(shards, key=lambda shard: shard.epoch)
        # Not complete, so missing shards are made again too. Deleting the root means consent to continue with the rest.
        return Root(metadata, instance, count, newest.epoch, newest.holder, complete=False)

    async def shards(self) -> list[Shard]:
        """A consistent list of all existing shards."""
        listed = await self._api.list_all(CONFIG_MAP, self._names.selector(SHARD))
        return await asyncio.to_thread(lambda: [Shard.of(raw) for raw in listed])

    async def open_epoch(self, epoch: Epoch, holder: str) -> Root:
        """Record that `holder` begins to claim `epoch`, which no other contender can claim then.

        Raises ClaimRefusedError when another contender has claimed this epoch or a newer one.
        """
        for _ in range(TRIES):
            found = await self.ensure()
            if (found.epoch, found.holder) == (epoch, holder):
                return found
            if found.epoch >= epoch:
                raise ClaimRefusedError(found.epoch)
            if (written := await self._write(replace(found, epoch=epoch, holder=holder))) is not None:
                return written
        raise StoreUnavailableError(
            f"ConfigMap '{self._names.root}' is constantly changed by other clients; try again later"
        )

    async def completed(self, epoch: Epoch, holder: str) -> None:
        """Record that all shards were made. Raises ClaimRefusedError when there is a newer claim."""
        for _ in range(TRIES):
            found = await self.open_epoch(epoch, holder)
            if found.complete or await self._write(replace(found, complete=True)) is not None:
                return
        raise StoreUnavailableError(
            f"ConfigMap '{self._names.root}' is constantly changed by other clients; try again later"
        )

    async def _write(self, root: Root) -> Root | None:
        """None when it was changed or deleted meanwhile."""
        try:
            raw = await self._api.replace(CONFIG_MAP, root.raw())
        except ConflictError:
            return None
        return Root.of(raw) if raw is not None else None
