"""Opening the high-availability backend that the configuration names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from firesteel.config.high_availability import HaType
from firesteel.config.loader import Configuration
from firesteel.errors import InvalidConfigError, Problem
from firesteel.ha.memory import MemoryHighAvailabilityServices
from firesteel.ha.protocols import HighAvailabilityServices

DATABASE = "cluster.db"
"""The SQLite file in `data.dir` when no database is named."""

BackendFactory: TypeAlias = Callable[[Configuration], Awaitable[HighAvailabilityServices] | HighAvailabilityServices]
"""The function or class that `high-availability.type: package.module:name` names: it opens a backend, or raises like
`open_high_availability`."""


async def open_high_availability(configuration: Configuration) -> HighAvailabilityServices:
    """Open the backend; the caller closes it.

    Its store raises StoreUnavailableError when it is unavailable; wrap it in a RetryingStore to wait instead.

    Raises:
        InvalidConfigError: An option of the backend is missing or wrong, or there is no such backend.
        StoreBrokenError: The store exists but cannot be used.
        StoreUnavailableError: It was busy or out of reach for too long.
    """
    # Each backend is imported when it is opened: libraries of the others take time to load, or are not installed.
    match configuration.high_availability.type:
        case HaType.NONE:
            return MemoryHighAvailabilityServices()
        case HaType.SQL:
            return await _open_sql(configuration)
        case HaType.ZOOKEEPER:
            from firesteel.ha.zookeeper.services import open_zookeeper

            return await open_zookeeper(configuration)
        case HaType.KUBERNETES:
            from firesteel.ha.kubernetes.services import open_kubernetes

            return await open_kubernetes(configuration)
        case factory:
            opened = _factory(factory)(configuration)
            return await opened if inspect.isawaitable(opened) else opened


async def _open_sql(configuration: Configuration) -> HighAvailabilityServices:
    from sqlalchemy import URL

    from firesteel.ha.sql.services import SqlHighAvailabilityServices

    options = configuration.high_availability
    url = options.sql_url or URL.create("sqlite", database=str(configuration.data.dir / DATABASE))
    return await SqlHighAvailabilityServices.open(
        url, cluster_id=options.cluster_id, lease_duration=options.lease_duration
    )


def _factory(name: str) -> BackendFactory:
    module, _, attribute = name.replace(":", ".").rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise _no_backend(f"the backend '{name}' cannot be imported: {error}", "install it on every node") from error
    if not callable(found):
        raise _no_backend(f"'{name}' is not callable", "name a function or a class that opens a backend")
    factory: BackendFactory = found
    return factory


def _no_backend(message: str, fix: str) -> InvalidConfigError:
    return InvalidConfigError([Problem(message, fix, field="high-availability.type")])
