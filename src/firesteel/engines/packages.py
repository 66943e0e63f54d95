"""Where Spark keeps the packages that it fetches (`spark.jars.packages`), in a sandbox.

Ivy writes below its home even when it has everything. The user's own Ivy home is for the user's own jobs; if other
owners could replace files there, these would run in the engines of all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

IVY = ".ivy2.5.2"
"""In the home of the user; Spark's own choice."""


def ivy_settings(settings: Mapping[str, str], *, trusted: bool, home: Path, work: Path) -> dict[str, str]:
    """Settings for an engine in a sandbox that fetches packages.

    Of the user's own engine it makes the directory: one that is not there when an engine starts is closed to it.
    """
    if not settings.get("spark.jars.packages") or settings.get("spark.jars.ivy"):
        return {}
    if not trusted:
        return {"spark.jars.ivy": str(work / "ivy")}
    with contextlib.suppress(OSError):  # then Ivy says what is wrong with it
        (home / IVY).mkdir(exist_ok=True)
    return {}
