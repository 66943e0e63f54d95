"""Errors between a client and a cluster, in addition to those of `firesteel.errors`.

FiresteelError
├── ClusterError                  a node answered with an error that has no name of its own
│   └── ClusterUnreachableError   no node answered in time; names the addresses and the last error of each
├── JobFailedError                the job has ended FAILED
├── JobCanceledError              the job has ended CANCELED
└── JobTimeoutError               the caller's timeout was over before the job was; the job continues
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firesteel.errors import FiresteelError
from firesteel.failure import Failure
from firesteel.types import JobID


class ClusterError(FiresteelError):
    """A node answered with an error."""

    def __init__(self, message: str, *, status: int | None = None, messages: Sequence[str] = ()) -> None:
        self.status = status
        """The status of the HTTP answer, if there was one."""
        self.messages = tuple(messages)
        """The node's error messages."""
        super().__init__(message)


class DashboardNotServedError(ClusterError):
    """No dashboard was built into the installation of the node."""


class ClusterUnreachableError(ClusterError):
    """No node answered in time, or there is none."""

    def __init__(self, message: str, *, attempts: Mapping[str, str] | None = None) -> None:
        self.attempts = dict(attempts or {})
        """Each address that was tried, with its last error."""
        super().__init__(message)


class JobFailedError(FiresteelError):
    """The job has ended FAILED."""

    def __init__(self, job_id: JobID, name: str, failure: Failure | None) -> None:
        self.job_id = job_id
        self.failure = failure
        """None when the cluster knows only that it failed."""
        text = f"job {_named(job_id, name)} failed"
        if failure is not None:
            text += f": {failure}"
            if failure.traceback:
                text += f"\n{failure.traceback.rstrip()}"
        super().__init__(text)


class JobCanceledError(FiresteelError):
    """The job has ended CANCELED."""

    def __init__(self, job_id: JobID, name: str) -> None:
        self.job_id = job_id
        super().__init__(f"job {_named(job_id, name)} was canceled")


class JobTimeoutError(FiresteelError, TimeoutError):
    """The caller's timeout is over. What it waited for continues."""

    def __init__(self, job_id: JobID | None, message: str) -> None:
        self.job_id = job_id
        super().__init__(message)


def _named(job_id: JobID, name: str) -> str:
    return f"{job_id} '{name}'" if name else job_id
