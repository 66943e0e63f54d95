"""What a sink does to rows that are at its place already, and where its options say so."""

from __future__ import annotations

from .formats import BatchCommit, lookup
from .model import Delivery, Mode, Overwrite, SaveMode, Sink

CHECKPOINT_LOCATION = "checkpointLocation"
PARTITION_OVERWRITE = "partitionOverwriteMode"
"""Spark's option for what `overwrite: dynamic` or `all` says."""
_STATIC = {"dynamic": Overwrite.DYNAMIC, "static": Overwrite.ALL}


def is_staged(sink: Sink) -> bool:
    """Whether a batch job writes the sink aside and moves its files into place."""
    if sink.delivery is Delivery.AT_LEAST_ONCE or sink.path is None or sink.format is None:
        return False
    return lookup(sink.format).commit is BatchCommit.STAGED_FILES


def save_mode(sink: Sink, mode: Mode) -> SaveMode:
    """The mode of a sink. Files that another run has left are not added to unless the pipeline says so."""
    if sink.mode is not None:
        return sink.mode
    return SaveMode.ERROR if mode is Mode.BATCH and is_staged(sink) else SaveMode.APPEND


def option(sink: Sink, name: str) -> str | None:
    """An option of the sink; to Spark, their names have no case."""
    return next((value for key, value in sink.options.items() if key.lower() == name.lower()), None)


def overwritten(sink: Sink) -> Overwrite | None:
    """Which partitions an overwrite replaces; None where the pipeline does not say."""
    if sink.overwrite is not None:
        return sink.overwrite
    return _STATIC.get((option(sink, PARTITION_OVERWRITE) or "").lower())
