"""Finding the parts of an example and reading what it wrote."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlparse

from pyarrow import dataset

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(d for d in EXAMPLES.iterdir() if (d / "generate.py").is_file())


def module(example: str, name: str) -> ModuleType:
    """`generate` or `expected` of an example; they have the same names everywhere, so none is put into sys.modules."""
    spec = importlib.util.spec_from_file_location(f"{example}_{name}", EXAMPLES / example / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def read_parquet(directory: Path) -> list[dict[str, Any]]:
    """All rows, partition columns included; times with their zone, which Spark's older time type leaves out."""
    rows = dataset.dataset(directory, format="parquet", partitioning="hive").to_table().to_pylist()
    return [{k: _with_zone(v) for k, v in row.items()} for row in rows]


def read_json(files: Iterator[Path] | list[Path]) -> list[dict[str, Any]]:
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    return [json.loads(line, parse_float=Decimal) for line in lines]


def streamed_files(directory: Path) -> list[Path]:
    """What a streaming query has committed to `directory`. A batch that was cut short may have left more files there."""
    entries = []
    for log in (directory / "_spark_metadata").iterdir():
        if not log.name.startswith("."):
            entries += [json.loads(line) for line in log.read_text("utf-8").splitlines()[1:]]
    return sorted({Path(unquote(urlparse(e["path"]).path)) for e in entries if e["action"] == "add"})


def _with_zone(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
