"""Faster sessions for jobs that bring no code of their own.

Spark Connect gives every session a class loader, for classes that its client may send. Spark caches the code that it generates
by class loader: so each job compiles again what the one before it has compiled, for the driver and for the executor, and the
JVM begins anew to interpret it. That is a third of the processor time of a trivial job. The settings against it are read when a
session is first spoken to, so that no client can be in time with them; but a copy of a session reads them for itself. So there
is a model session on each engine, which no job uses, and jobs without code get a copy of it (see decisions/0024).
"""

from __future__ import annotations

import hashlib
import time
import uuid

from firesteel.engines.record import EngineRecord
from firesteel.spark_connect.session import EngineSession

SETTINGS = {
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "false",
}
_DAY = 86400


def model_of(engine: EngineRecord, now: float) -> str:
    """The id of an engine's model session. The engine's token is not enough to guess it, and so to change it for
    others.

    Another one every day: Spark ends sessions that it takes for idle, and an id that has ended can never be used again.
    """
    secret = hashlib.sha256(f"model session/{engine.ui_secret}/{int(now // _DAY)}".encode()).digest()
    return str(uuid.UUID(bytes=secret[:16], version=4))


def begin_plainly(session: EngineSession, engine: EngineRecord, *, now: float | None = None) -> bool:
    """Let a session that was not spoken to yet begin as a copy of the engine's model.

    False when there is none: the session is then an ordinary one, and slower. An engine that Firesteel did not start is
    left as it is.
    """
    if engine.spec.attached or not engine.ui_secret:
        return False
    return session.begin_as_copy(model_of(engine, time.time() if now is None else now), SETTINGS)
