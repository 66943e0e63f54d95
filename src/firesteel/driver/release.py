"""Releases the Spark session of an attempt whose driver did not: all its work ends, and its id cannot be used again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from firesteel.attempts.attempt import AttemptDirectory
from firesteel.spark_connect.leftovers import QUIET_SECONDS, end_sessions
from firesteel.spark_connect.session import EngineSession, quiet_client_logs


def main(args: dict[str, Any]) -> int:
    """Exit code 0 says that the engine has confirmed it; a session that it never had counts as released."""
    directory = AttemptDirectory(Path(args["directory"]))
    spec = directory.read_spec()
    if spec.engine is not None:
        quiet_client_logs()
        ids = directory.session_ids(spec.ids)
        sessions = {session_id: EngineSession(spec.remote(session_id)) for session_id in ids}
        operations = [spec.ids.operation_id(sink.name) for sink in spec.graph.sinks]
        if not end_sessions(spec.engine, sessions, operations, quiet=args.get("quiet") or QUIET_SECONDS):
            sys.stderr.write("jobs of the attempt are still running after their session was released\n")
            return 1
    return 0
