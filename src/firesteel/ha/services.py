"""Opening the high-availability backend that the configuration names."""

from __future__ import annotations

from firesteel.config.loader import Configuration
from firesteel.config.sections import HaType
from firesteel.ha.memory import MemoryHighAvailabilityServices
from firesteel.ha.protocols import HighAvailabilityServices

DATABASE = "cluster.db"
"""The SQLite file in `data.dir` when no database is named."""


async def open_high_availability(configuration: Configuration) -> HighAvailabilityServices:
    """The open backend; the caller closes it.

    Its store says StoreUnavailableError when that is so; RetryingStore is for those who would rather wait.

    Raises:
        InvalidConfigError: The database URL is none, or of a kind that is not supported.
        StoreBrokenError: The database is there but cannot be used.
        StoreUnavailableError: It is busy, and stayed so.
    """
    options = configuration.high_availability
    match options.type:
        case HaType.NONE:
            return MemoryHighAvailabilityServices()
        case HaType.SQL:
            # Local: SQLAlchemy costs start-up time that a cluster in memory need not pay.
            from sqlalchemy import URL

            from firesteel.ha.sql.services import SqlHighAvailabilityServices

            url = options.sql_url or URL.create("sqlite", database=str(configuration.data.dir / DATABASE))
            return await SqlHighAvailabilityServices.open(
                url, cluster_id=options.cluster_id, lease_duration=options.lease_duration
            )
