"""The Lease as a contender reads and writes it. Pure: it only uses the clock that is passed in, and no network."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from firesteel.ha.kubernetes.names import LEADER, Names
from firesteel.ha.protocols import Epoch
from firesteel.ha.rules import NEVER

_EPOCH = "firesteel/epoch"
_ADDRESS = "firesteel/address"


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The content of a Lease. `raw` is the object as it was read: its resourceVersion guards the next update."""

    epoch: Epoch
    """The newest epoch that was granted through this Lease; 0 when none was, or the annotation was removed."""
    holder: str
    """The holder; empty when the Lease was given up."""
    address: str
    seconds: float
    """The lease duration that its holder asks others to wait."""
    transitions: int
    renewed: str
    """Grows while the holder lives. It is only compared with itself, so clocks do not matter."""
    raw: Mapping[str, Any]

    @staticmethod
    def of(raw: Mapping[str, Any]) -> LeaseRecord:
        spec = raw.get("spec") or {}
        annotations = (raw.get("metadata") or {}).get("annotations") or {}
        return LeaseRecord(
            epoch=_epoch(annotations.get(_EPOCH)),
            holder=spec.get("holderIdentity") or "",
            address=annotations.get(_ADDRESS) or "",
            seconds=float(spec.get("leaseDurationSeconds") or 0),
            transitions=spec.get("leaseTransitions") or 0,
            renewed=spec.get("renewTime") or "",
            raw=raw,
        )


def taken(names: Names, found: LeaseRecord | None, *, holder: str, epoch: Epoch, lease: float) -> dict[str, Any]:
    """The Lease with a new holder, replacing the `found` one."""
    now = _now()
    made: dict[str, Any] = (
        _copy(found)
        if found is not None
        else {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": names.lease, "namespace": names.namespace, "labels": names.labels(LEADER)},
        }
    )
    _annotate(made, {_EPOCH: str(epoch), _ADDRESS: ""})
    made["spec"] = {
        **(made.get("spec") or {}),
        "holderIdentity": holder,
        "leaseDurationSeconds": max(1, math.ceil(lease)),
        "acquireTime": now,
        "renewTime": now,
        "leaseTransitions": found.transitions + 1 if found is not None else 0,
    }
    return made


def renewed(found: LeaseRecord) -> dict[str, Any]:
    made = _copy(found)
    made["spec"]["renewTime"] = _now()
    return made


def published(found: LeaseRecord, address: str) -> dict[str, Any]:
    made = renewed(found)
    _annotate(made, {_ADDRESS: address})
    return made


def released(found: LeaseRecord) -> dict[str, Any]:
    made = _copy(found)
    _annotate(made, {_ADDRESS: ""})
    made["spec"]["holderIdentity"] = None
    return made


def _annotate(made: dict[str, Any], annotations: Mapping[str, str]) -> None:
    metadata = made["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}


def _copy(found: LeaseRecord) -> dict[str, Any]:
    made: dict[str, Any] = copy.deepcopy(dict(found.raw))
    made["metadata"].pop("managedFields", None)
    if made.get("spec") is None:
        made["spec"] = {}
    return made


def _epoch(text: object) -> Epoch:
    """The epoch in the annotation, which may have been edited: the state has the epoch too, and the larger one counts."""
    return Epoch(int(text)) if isinstance(text, str) and re.fullmatch(r"[0-9]{1,18}", text) else NEVER


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
