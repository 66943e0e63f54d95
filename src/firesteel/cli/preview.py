"""A preview of a file output: its first rows, read with pyarrow, show whether a pipeline did what was meant."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import Any

from firesteel.jobgraph.model import Sink


def preview(sink: Sink, rows: int) -> tuple[list[str], list[list[Any]]]:
    """Column names and first rows; both empty unless the output is local files in a format that can be read here."""
    import pyarrow
    from pyarrow import dataset

    root = Path((sink.path or "").removeprefix("file://"))
    if sink.format not in ("parquet", "csv", "json", "orc") or not root.is_dir():
        return [], []
    files = _files(root, sink.format)
    if not files:
        return [], []
    reader: Any = sink.format
    if sink.format == "csv" and sink.options.get("header", "").lower() != "true":
        from pyarrow import csv

        reader = dataset.CsvFileFormat(read_options=csv.ReadOptions(autogenerate_column_names=True))
    try:
        table = dataset.dataset(
            [str(f) for f in files], format=reader, partitioning="hive", partition_base_dir=str(root)
        ).head(rows)
    except (pyarrow.ArrowInvalid, OSError):  # it cannot be read so, or another job replaces it right now
        return [], []
    data = table.to_pylist()
    return table.column_names, [[row[c] for c in table.column_names] for row in itertools.islice(data, rows)]


def _files(root: Path, suffix: str) -> list[Path]:
    """The committed files, oldest first. The job has ended, and what it staged may disappear meanwhile."""
    found = []
    for directory, below, names in os.walk(root):
        below[:] = [name for name in below if not name.startswith(("_", "."))]
        for name in names:
            file = Path(directory, name)
            if name.startswith(("_", ".")) or f".{suffix}" not in name:
                continue
            with contextlib.suppress(FileNotFoundError):
                status = file.stat()
                found.append((status.st_mtime_ns, name, file, status.st_size))
    return [file for _, _, file, size in sorted(found) if size]
