"""What a sink does to rows that are already at its place, and which options say so."""

from __future__ import annotations

from .formats import BatchCommit, lookup
from .model import Delivery, Mode, Overwrite, SaveMode, Sink

CHECKPOINT_LOCATION = "checkpointLocation"
PARTITION_OVERWRITE = "partitionOverwriteMode"
"""Spark's option for `overwrite: dynamic` and `overwrite: all`."""
_STATIC = {"dynamic": Overwrite.DYNAMIC, "static": Overwrite.ALL}


def is_staged(sink: Sink) -> bool:
    """Whether a batch job stages the files of the sink and then moves them into place."""
    if sink.delivery is Delivery.AT_LEAST_ONCE or sink.path is None or sink.format is None:
        return False
    return lookup(sink.format).commit is BatchCommit.STAGED_FILES


def save_mode(sink: Sink, mode: Mode) -> SaveMode:
    """The mode of a sink. By default nothing is added to files that another run has written."""
    if sink.mode is not None:
        return sink.mode
    return SaveMode.ERROR if mode is Mode.BATCH and is_staged(sink) else SaveMode.APPEND


def option(sink: Sink, name: str) -> str | None:
    """The value of an option of the sink; to Spark, option names have no case."""
    return next((value for key, value in sink.options.items() if key.lower() == name.lower()), None)


def overwritten(sink: Sink) -> Overwrite | None:
    """Which partitions an overwrite replaces; None where the pipeline does not say."""
    if sink.overwrite is not None:
        return sink.overwrite
    return _STATIC.get((option(sink, PARTITION_OVERWRITE) or "").lower())
