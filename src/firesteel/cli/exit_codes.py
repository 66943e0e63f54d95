"""Exit codes of the `firesteel` command."""

OK = 0
FAILED = 1
"""The job failed, or the command could not do what was asked."""
USAGE = 2
"""The command line is wrong."""
INVALID = 3
"""A pipeline or a configuration is wrong; nothing was run."""
ENGINE = 4
"""No Spark engine could be started or reached."""
UNREACHABLE = 5
"""No cluster answered."""
DENIED = 6
"""The cluster does not know the caller, or does not allow the request."""
TIMEOUT = 124
"""`firesteel wait --timeout` ran out of time before the job ended; the job continues."""
CANCELED = 130
"""Cancelled, by Ctrl-C or by `firesteel cancel`; or a stream that Ctrl-C has stopped."""
