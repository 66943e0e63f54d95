"""Discovery: a client finds the cluster of this machine by a private file that its nodes write once they serve.

The file is `<data.dir>/clusters/<cluster-id>/rest.json`. A user who can write it could have jobs sent to an address of
their choice, so only its owner may. The pid and start mark of each node say whether it still runs. The file is about
one node, and lists all of them. The token of their owner is in no file: a node hands it to processes of its own user
(see `local_token`).
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from firesteel.client.cluster import AsyncClusterClient, ClusterClient, Rediscover
from firesteel.client.endpoints import Location, parse_addresses
from firesteel.client.errors import ClusterUnreachableError
from firesteel.client.local_token import ask_for_token
from firesteel.client.model import Answer
from firesteel.errors import FiresteelError
from firesteel.fs.files import read_json
from firesteel.layout import ClusterLayout
from firesteel.processes import ProcessIdentity

if TYPE_CHECKING:
    from firesteel.config import Configuration

logger = logging.getLogger(__name__)

NODES = "nodes"


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A node of this machine that serves."""

    address: str
    socket: str | None
    """Where it hands its owner's token to its own user; None when it requires none."""
    process: ProcessIdentity

    @property
    def token(self) -> str | None:
        """The token of its owner, requested each time; None when it hands out none."""
        return ask_for_token(self.socket) if self.socket else None


def rest_file(configuration: Configuration) -> Path:
    """The file in which a node says how it is reached."""
    return ClusterLayout.of(configuration).rest_file


def find_local(configuration: Configuration) -> LocalCluster | None:
    """The cluster of this configuration's data directory; None when there is none, or its nodes are dead.

    Of several running nodes, it is the one that was started last.
    """
    nodes = find_nodes(configuration)
    return nodes[0] if nodes else None


def find_nodes(configuration: Configuration) -> tuple[LocalCluster, ...]:
    """All nodes of that cluster that run on this machine, the newest first."""
    file = rest_file(configuration)
    try:
        if not _is_private(file):
            logger.warning("ignoring %s: other users can write or read it; delete it", file)
            return ()
        data = read_json(file)
        if data is None:
            return ()
        about = Answer(data, str(file))
        listed = about.get(NODES)
        others = listed[::-1] if isinstance(listed, list) else []
        found = [_local(about), *(_local(Answer(n, str(file))) for n in others)]
    except (OSError, ValueError, FiresteelError) as error:
        logger.warning("ignoring %s: %s", file, error)
        return ()
    return tuple(n for n in dict.fromkeys(found) if n.process.alive)


def _is_private(file: Path) -> bool:
    """Whether only its owner can use the file: another user could have jobs sent to an address of their choice."""
    try:
        there = file.stat()
    except FileNotFoundError:
        return True
    return there.st_uid == os.getuid() and not stat.S_IMODE(there.st_mode) & 0o077


def _local(data: Answer) -> LocalCluster:
    (address,) = parse_addresses(data.text("address"))
    door = data.get("socket")
    process = ProcessIdentity(data.integer("pid"), data.text("started"))
    return LocalCluster(address, str(door) if door else None, process)


def connect(configuration: Configuration | None = None) -> ClusterClient:
    """A client of the cluster that the configuration names in `client.addresses`, else of the one of this machine.

    Args:
        configuration: by default the result of `load_configuration`.

    Raises:
        ClusterUnreachableError: no addresses are named, and no cluster runs on this machine.
    """
    found = _find(configuration)
    return ClusterClient(found.addresses, rediscover=found.rediscover, **found.options)


def connect_async(configuration: Configuration | None = None) -> AsyncClusterClient:
    """The asynchronous twin of `connect`. It looks for the cluster right away, which reads a few files."""
    found = _find(configuration)
    return AsyncClusterClient(found.addresses, rediscover=found.rediscover, **found.options)


class _Found(NamedTuple):
    addresses: tuple[str, ...]
    rediscover: Rediscover | None
    options: dict[str, Any]


def _find(configuration: Configuration | None) -> _Found:
    if configuration is None:
        from firesteel.config import load_configuration

        configuration = load_configuration()
    client = configuration.client
    options: dict[str, Any] = {"timeout": client.timeout, "ca": client.ca, "certificate": client.certificate}
    if client.addresses:
        options |= {"token": client.token, "connect_timeout": client.connect_timeout}
        return _Found(client.addresses, None, options)
    local = _located(find_nodes(configuration), client.token)
    if local is None:
        raise ClusterUnreachableError(
            f"no cluster '{configuration.high_availability.cluster_id}' is running on this machine "
            f"(data.dir is {configuration.data.dir}) — start one with `firesteel cluster start`, "
            "or set client.addresses to the nodes of another one"
        )

    def rediscover() -> Location | None:
        # A node that was restarted has another port and token, and nodes come and go.
        return _located(find_nodes(configuration), client.token)

    options["ca"] = client.ca or configuration.security.ssl_ca
    return _Found(local.addresses, rediscover, {**options, "tokens": local.tokens})


def _located(nodes: Sequence[LocalCluster], token: str | None) -> Location | None:
    """The location of a cluster with these nodes; `token` replaces their own."""
    if not nodes:
        return None
    tokens = {n.address: n.token if token is None else token for n in reversed(nodes)}
    return Location(tuple(reversed(tokens)), None, tuple(reversed(tokens.values())))
