"""The one shape of engine that tests share, whoever starts it: this process, a command, or the node that a command wakes up."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Engines of tests live for minutes: what the second compiler and parallel collectors cost, they never earn back."""

SHAPE: Mapping[str, str] = {
    "engine.master": "local[2]",
    "engine.jvm-options": QUICK_JAVA,
    # Jobs of the tests sleep by calling Java, which takes no processor and no Python worker.
    "spark.sql.restrictedMode.enabled": "false",
}


def environment(data_dir: Path) -> dict[str, str]:
    """For commands that use this data directory: an engine of `SHAPE` that is there already is theirs as well."""
    conf = data_dir / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "config.yaml").write_text(json.dumps(dict(SHAPE)))  # which is YAML
    mine = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
    return {**mine, "FIRESTEEL_DATA_DIR": str(data_dir), "FIRESTEEL_CONF_DIR": str(conf)}
