"""Release the Spark session of an attempt whose driver did not do it: everything that it runs ends, and its id is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from firesteel.driver.attempt import AttemptDirectory
from firesteel.spark.session import EngineSession, quiet_client_logs


def main(args: dict[str, Any]) -> int:
    spec = AttemptDirectory(Path(args["directory"])).read_spec()
    if spec.engine is not None:
        quiet_client_logs()
        EngineSession(spec.engine.remote(spec.attempt.session_id)).close()
    return 0
