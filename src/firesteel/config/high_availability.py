"""The options of high availability: how a leader is elected, and where the cluster keeps what must survive it."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from firesteel.config.option import Section, option
from firesteel.config.values import Location, PathBase, PositiveDuration, ValueKind, integer


class HaType(StrEnum):
    NONE = "none"
    SQL = "sql"
    ZOOKEEPER = "zookeeper"
    KUBERNETES = "kubernetes"


def _parse_backend(text: str, _: PathBase) -> str:
    """A word of HaType, or a factory as `package.module:name`; Flink's spelling without a colon is accepted as well."""
    if text.lower() in {*HaType}:
        return HaType(text.lower())
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*", text):
        raise ValueError(text)
    return text


Backend = Annotated[
    str,
    ValueKind(
        "backend",
        "a backend",
        f"write one of {', '.join(HaType)}, or the factory of your own backend as package.module:name",
        _parse_backend,
    ),
]


class HighAvailabilityOptions(Section, prefix="high-availability"):
    """How a leader is elected, and where the cluster keeps what must survive it."""

    type: Backend = option(
        default=HaType.SQL,
        description=(
            "Where graphs, results and leadership are kept: `sql` in a database, `zookeeper` and `kubernetes` in these "
            "systems, `none` in memory, so that a restart forgets every job; anything else is the factory of your own "
            "backend, as `package.module:name`."
        ),
        since="0.1",
        deprecated=("high-availability",),
    )
    cluster_id: str = option(
        default="default",
        description=(
            "Name of the cluster: all its nodes have the same, and clusters that share a database have different ones."
        ),
        since="0.1",
    )
    sql_url: str | None = option(
        key="sql.url",
        default=None,
        default_text="an SQLite file in `data.dir`",
        description=(
            "Database of the `sql` type: `sqlite:////absolute/path.db` for nodes of one host, or "
            "`postgresql://user:password@host:5432,host2:5432/database` for several."
        ),
        since="0.1",
        secret=True,
    )
    lease_duration: PositiveDuration = option(
        default=10.0,
        description=(
            "How long a leader that has gone silent keeps its leadership; one whose process on this host is gone is "
            "replaced at once."
        ),
        since="0.1",
    )
    poll_interval: PositiveDuration = option(
        default=2.0,
        description="How often the leader looks for job graphs that were added to or removed from the store by others.",
        since="0.1",
    )
    retry_initial_backoff: PositiveDuration = option(
        key="retry.initial-backoff",
        default=0.05,
        description=(
            "First pause before a store operation that failed temporarily is tried again; it doubles each time."
        ),
        since="0.1",
    )
    retry_max_backoff: PositiveDuration = option(
        key="retry.max-backoff",
        default=5.0,
        description="Longest pause between two tries of a store operation.",
        since="0.1",
    )
    storage_dir: Location | None = option(
        key="storageDir",
        default=None,
        default_text="none",
        description=(
            "Directory or URL that all nodes can reach; `zookeeper` and `kubernetes` require it and keep large values "
            "there."
        ),
        since="0.2",
    )


class ZooKeeperAcl(StrEnum):
    OPEN = "open"
    CREATOR = "creator"


class ZooKeeperSaslMechanism(StrEnum):
    NONE = "none"
    DIGEST_MD5 = "DIGEST-MD5"


class ZooKeeperOptions(Section, prefix="high-availability.zookeeper"):
    """The backend `zookeeper`: its ensemble, its sessions and its credentials."""

    quorum: str | None = option(
        default=None,
        default_text="none",
        description="The ensemble, as `host:port,host:port,...`.",
        since="0.2",
    )
    path_root: str = option(
        key="path.root",
        default="/firesteel",
        description="The znode under which each cluster has its own, named by `high-availability.cluster-id`.",
        since="0.2",
    )
    session_timeout: PositiveDuration = option(
        key="client.session-timeout",
        default=10.0,
        description=(
            "After this time without a heartbeat the ensemble drops a leader; the leader itself stops acting a third "
            "earlier; the servers may grant a shorter or longer time."
        ),
        since="0.2",
    )
    connection_timeout: PositiveDuration = option(
        key="client.connection-timeout",
        default=15.0,
        description="How long an operation waits for a connection, and for its answer, before it fails.",
        since="0.2",
    )
    retry_wait: PositiveDuration = option(
        key="client.retry-wait",
        default=1.0,
        description="Longest pause between two attempts to connect; the first is short, and each doubles the last.",
        since="0.2",
    )
    max_retry_attempts: Annotated[int, integer(at_least=0)] = option(
        key="client.max-retry-attempts",
        default=3,
        description="How often a read is repeated when the connection broke before its answer came.",
        since="0.2",
    )
    acl: ZooKeeperAcl = option(
        key="client.acl",
        default=ZooKeeperAcl.OPEN,
        description=(
            "Who may use the cluster's nodes in ZooKeeper: `open` is everyone who can reach the ensemble, `creator` "
            "only clients with the credentials of `client.auth` or `sasl.*`."
        ),
        since="0.2",
    )
    auth: str | None = option(
        key="client.auth",
        default=None,
        default_text="none",
        description="`user:password`, sent to ZooKeeper as its scheme `digest`; without TLS, in plain text.",
        since="0.2",
        secret=True,
    )
    sasl_mechanism: ZooKeeperSaslMechanism = option(
        key="sasl.mechanism",
        default=ZooKeeperSaslMechanism.NONE,
        description="How to authenticate with SASL; this needs the package `pure-sasl`.",
        since="0.2",
    )
    sasl_service_name: str = option(
        key="sasl.service-name",
        default="zookeeper",
        description="The service name of the servers.",
        since="0.2",
    )
    sasl_username: str | None = option(
        key="sasl.username",
        default=None,
        default_text="none",
        description="User of the mechanism `DIGEST-MD5`.",
        since="0.2",
        secret=True,
    )
    sasl_password: str | None = option(
        key="sasl.password",
        default=None,
        default_text="none",
        description="Password of the mechanism `DIGEST-MD5`.",
        since="0.2",
        secret=True,
    )
    ssl_enabled: bool = option(
        key="ssl.enabled",
        default=False,
        description="Use TLS to the servers, on their `secureClientPort`.",
        since="0.2",
    )
    ssl_ca: Path | None = option(
        key="ssl.ca",
        default=None,
        default_text="the system's",
        description="PEM file with the authorities that sign the servers' certificates.",
        since="0.2",
    )
    ssl_certificate: Path | None = option(
        key="ssl.certificate",
        default=None,
        default_text="none",
        description="PEM file with this node's own certificate, for servers that ask for one.",
        since="0.2",
    )
    ssl_key: Path | None = option(
        key="ssl.key",
        default=None,
        default_text="none",
        description="PEM file with the key of `ssl.certificate`.",
        since="0.2",
    )
    ssl_key_password: str | None = option(
        key="ssl.key-password",
        default=None,
        default_text="none",
        description="Password of `ssl.key`, if it has one.",
        since="0.2",
        secret=True,
    )
    ssl_verify: bool = option(
        key="ssl.verify",
        default=True,
        description="Check that a server's certificate is signed by an authority and is for its host.",
        since="0.2",
    )


class KubernetesOptions(Section, prefix="kubernetes"):
    """The backend `kubernetes`: its API server and its namespace."""

    namespace: str = option(
        default="default",
        description="Namespace of the Lease and the ConfigMaps.",
        since="0.2",
    )
    config_file: Path | None = option(
        key="config.file",
        default=None,
        default_text="the service account of the pod; elsewhere `$KUBECONFIG` or `~/.kube/config`",
        description="The kubeconfig that says how to reach the API server.",
        since="0.2",
    )
    context: str | None = option(
        default=None,
        default_text="the current one",
        description="The context of the kubeconfig to use.",
        since="0.2",
    )
