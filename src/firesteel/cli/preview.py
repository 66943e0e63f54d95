"""The first rows of a file output, read with pyarrow: enough to see that a pipeline did what was meant."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from firesteel.jobgraph.model import Sink


def preview(sink: Sink, rows: int) -> tuple[list[str], list[list[Any]]]:
    """Column names and first rows; empty where the output is not local files of a format that we can read here."""
    import pyarrow
    from pyarrow import dataset

    root = Path((sink.path or "").removeprefix("file://"))
    if sink.format not in ("parquet", "csv", "json", "orc") or not root.is_dir():
        return [], []
    files = [
        f
        for f in sorted(root.rglob(f"*.{sink.format}*"), key=lambda f: (f.stat().st_mtime_ns, f.name))
        if f.stat().st_size and not any(p.startswith(("_", ".")) for p in f.relative_to(root).parts)
    ]
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
    except pyarrow.ArrowInvalid:
        return [], []
    data = table.to_pylist()
    return table.column_names, [[row[c] for c in table.column_names] for row in itertools.islice(data, rows)]
