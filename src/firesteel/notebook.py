"""`firesteel.spark()`: a Spark session on an engine of the cluster, for notebooks and shells."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from firesteel.client.sessions import open_session, session_graph
from firesteel.config import Configuration, load_configuration
from firesteel.errors import EnvironmentNotReadyError, JobStateError
from firesteel.spark_connect import relative_paths
from firesteel.status import JobStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_SECONDS = 5.0
_made_absolute: set[Path] = set()
"""Directories to which relative paths have been bound in this process."""


def spark(
    name: str = "notebook",
    *,
    idle_timeout: str = "1 h",
    settings: Mapping[str, str] | None = None,
    anew: bool = False,
    configuration: Configuration | None = None,
) -> SparkSession:
    """Open a Spark session on an engine of the cluster, as your job with this name.

    The session lives on the engine, not in this process: after a restart of the notebook the same call finds it again,
    with its views and settings. It ends with `spark.stop()`, with `firesteel cancel`, or when nothing has run in it for
    `idle_timeout`.
    The cluster is the one that `client.addresses` names, or else that of this machine, which is started if necessary.

    Args:
        name: The name of the session; a running session of this name is joined.
        idle_timeout: For example `30 min`.
        settings: Spark settings, for a new session.
        anew: Make a new session even if one of this name is running.
        configuration: By default the result of `load_configuration`.

    Raises:
        FiresteelError: There is no cluster, or it did not provide a session; the message says why.
    """
    from firesteel.cli.connection import open_connection
    from firesteel.cli.options import Given

    given = Given(configuration or load_configuration(), {}, {}, None)
    with open_connection(given) as cluster:
        opened = open_session(
            cluster.client, session_graph(name, idle_timeout, settings or {}), anew=anew, waiting=_tell
        )
        local = cluster.local
    return connect_to(opened.remote, relative_to=Path.cwd() if local else None)


def connect_to(remote: str, *, relative_to: Path | None) -> SparkSession:
    """Use the session behind `remote` in this process; `getOrCreate` returns it from then on."""
    _check_mode()
    from pyspark.sql import SparkSession

    # Without it DDL strings and functions look for a classic SparkContext.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    if relative_to is not None and relative_to not in _made_absolute:
        relative_paths.for_connect(relative_to)
        _made_absolute.add(relative_to)
    _check_reachable(remote)
    session: Any = SparkSession.builder.remote(remote).create()
    try:
        _ = session.version
    except Exception as error:
        if "INVALID_HANDLE" in str(error):
            raise JobStateError("the session has ended in the meantime; call firesteel.spark() again") from None
        raise
    return session


def _check_reachable(remote: str) -> None:
    """Check that the engine can be reached, as PySpark would try for ten minutes."""
    address = urlsplit(remote)
    try:
        socket.create_connection((address.hostname or "localhost", address.port or 15002), CONNECT_SECONDS).close()
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"cannot reach the engine at {address.netloc} from here: {error} — engines listen on the loopback "
            "address of their host; run this there, or forward that port"
        ) from None


def _check_mode() -> None:
    """Check the mode of PySpark, which decides once per process whether it uses its own JVM or a server."""
    context = sys.modules.get("pyspark.core.context")
    if context is not None and context.SparkContext._active_spark_context is not None:
        raise EnvironmentNotReadyError(
            "this process already has a classic SparkContext; stop it or restart the kernel, then call firesteel.spark()"
        )


def _tell(status: JobStatus) -> None:
    if status is JobStatus.CREATED and sys.stderr.isatty():
        sys.stderr.write("firesteel: waiting for an engine …\n")
