"""Settings that a starting process passes on standard input: as arguments, secrets would be visible to all users (S27)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from firesteel.errors import FiresteelError


def settings_from_stdin() -> dict[str, str]:
    """The settings from standard input. Without them, as when the starting process died, this would be another cluster."""
    return texts(object_from_stdin())


def object_from_stdin() -> dict[str, Any]:
    """The JSON object on standard input. Raises FiresteelError unless all of it is there."""
    try:
        found = json.loads(sys.stdin.read())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise FiresteelError("no settings on standard input: the process that started this node is gone")
    return found


def texts(found: Mapping[str, Any]) -> dict[str, str]:
    return {str(k): str(v) for k, v in found.items()}
