"""Release the Spark session of an attempt whose driver did not do it: everything that it runs ends, and its id is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from firesteel.driver.attempt import AttemptDirectory
from firesteel.spark.session import EngineSession, quiet_client_logs


def main(args: dict[str, Any]) -> int:
    """Exit code 0 says that the engine has confirmed it; a session that it never had counts as released."""
    directory = AttemptDirectory(Path(args["directory"]))
    spec = directory.read_spec()
    if spec.engine is not None:
        quiet_client_logs()
        for session_id in directory.session_ids(spec.attempt):
            session = EngineSession(spec.engine.remote(session_id))
            session.client.release_session()
    return 0
