"""Exactly-once commit of batch file sinks, on a local file system, HDFS or an object store."""

from firesteel.sinks.record import CommitSummary
from firesteel.sinks.staged import Begin, StagedFileSink

__all__ = ["Begin", "CommitSummary", "StagedFileSink"]
