"""The exception tree. Where a package is named, the error is declared there, beside what raises it.

    FiresteelError
    ├── InvalidInputError          something a user wrote is wrong; carries every Problem found
    │   ├── InvalidPipelineError   a pipeline file or job graph
    │   │   └── NothingToRestoreError  there is no savepoint where it says that one is
    │   ├── InvalidConfigError     a configuration file, environment variable or -D
    │   └── InvalidRequestError    a request to the REST API
    ├── EnvironmentNotReadyError   the machine lacks something (Java, a package); says how to get it
    ├── EngineError
    │   ├── EngineStartError       the Spark process died or did not answer; carries its last log lines
    │   ├── EngineLostError        an engine that was there is gone
    │   └── QueryStoppedError      something other than Firesteel stopped a streaming query
    ├── WorkerLostError            a worker was given up; all that ran there counts as ended
    ├── AttemptElsewhereError      an attempt runs on another host, and cannot be seen from here
    ├── ErrandTookTooLongError     a process that opened a path for a caller took too long and was killed (jobmaster)
    ├── JobNotFoundError
    ├── OperationNotFoundError     no savepoint, checkpoint or stop was triggered under that id
    ├── DuplicateJobError          another job has this id, or had it and ended
    ├── JobStateError              the state of the job does not allow this
    ├── WorkerNotFoundError        no worker of that id or name is known
    ├── WorkerStateError           the state of the worker does not allow this
    ├── ResourcesUnavailableError  no engine that could be started is large enough
    ├── NotLeadingError            this node does not lead, or no longer does; ask the leader
    ├── StoreError                 the HA store
    │   ├── FencingError           a former leader tried to write; nothing was written
    │   ├── VersionConflictError   another writer was first
    │   ├── StoreUnavailableError  out of reach or busy; may work later
    │   │   └── UndoneError        nothing was written, and an immediate retry may succeed (ha)
    │   ├── ShardFullError         no space for a value; a pointer to it may fit (ha)
    │   ├── UnreadableRecordError  one record is damaged or newer; the store itself works (stores)
    │   └── StoreBrokenError       damaged, read-only, full or of another version; a person has to look at it
    │       └── StoreFailingError  its disk is full or fails; nothing was written, and it may work again
    ├── ArchiveError               the archive is out of reach or refused a job; may work later (stores)
    ├── BlobNotFoundError          no file of that digest was uploaded, or it was collected since
    ├── TooLargeError              more bytes than are allowed
    │   └── QuotaExceededError     more than the owner may store in total
    ├── SavepointError             a savepoint could not be taken, read or disposed of
    │   └── NoSavepointError       there is none, or not a whole one
    ├── UnauthenticatedError       the caller is unknown
    ├── AuthenticationUnavailableError  keys or tokens cannot be read; all callers are refused meanwhile (rest)
    ├── ForbiddenError             the caller may not do this
    ├── RateLimitedError           too many requests of one caller; says when to try again
    ├── HttpError                  an answer whose text the contract prescribes (rest)
    ├── TookTooLongError           a check of what a caller sent took too much time or memory (rest)
    ├── ClusterError               a node gave an unexpected answer (client)
    │   ├── ClusterUnreachableError  no node answered in time, or there is none
    │   ├── DashboardNotServedError  the node has no files of a dashboard
    │   └── UnansweredError        no answer came, or not a complete one
    ├── ClusterDeploymentError     a cluster could not be deployed; nothing of it is left (deployment)
    │   ├── ApplicationEndedError  the application of this id has ended already (deployment)
    │   └── UnsupportedTargetError  the target cannot do what was asked (deployment)
    ├── JobFailedError             the job that the caller waited for has failed (client)
    ├── JobCanceledError           it was cancelled (client)
    ├── JobTimeoutError            the caller's timeout is over (client)
    ├── ServiceStartError          a part of the cluster could not start; says which and why
    ├── OutputError                an output cannot be written; names the vertex and the path
    └── CommitConflictError        two runs of different attempt chains tried to commit one sink
        └── SupersededError        an attempt that was given up came back; it has written nothing since

Domain errors do not know HTTP or exit codes; cli and rest map them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in what a user wrote, with where it is and how to fix it."""

    message: str
    """What is wrong, one sentence, no full stop."""
    fix: str = ""
    """What to do, imperative, no full stop."""
    vertex: str | None = None
    field: str | None = None
    """Dotted path of the field, e.g. `options.header`; relative to the vertex when there is one."""
    file: str | None = None
    line: int | None = None
    certain: bool = True
    """False for a suspicion that only Spark can confirm, such as SQL that our own parser does not know."""

    def __str__(self) -> str:
        where = ""
        if self.file:
            where = f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        what = []
        if self.vertex:
            what.append(f"vertex '{self.vertex}'")
        if self.field:
            what.append(f"field '{self.field}'")
        subject = f"{', '.join(what)}: " if what else ""
        fix = f" — {self.fix}" if self.fix else ""
        return f"{where}{subject}{self.message}{fix}"


class FiresteelError(Exception):
    """Base of everything that Firesteel raises on purpose."""


class InvalidInputError(FiresteelError):
    """Something that a user wrote is wrong. `problems` holds every mistake, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(p) for p in self.problems))


class InvalidPipelineError(InvalidInputError):
    """A pipeline file or a job graph."""


class NothingToRestoreError(InvalidPipelineError):
    """There is no savepoint where the job should start from one."""


class InvalidConfigError(InvalidInputError):
    """A configuration file, an environment variable or a -D."""


class InvalidRequestError(InvalidInputError):
    """A request to the REST API."""


class EnvironmentNotReadyError(FiresteelError):
    """The machine lacks something; the message says how to get it."""


class EngineError(FiresteelError):
    """An engine could not be used."""


class EngineStartError(EngineError):
    """The Spark process died at start or did not answer in time."""

    def __init__(self, message: str, log_tail: str = "") -> None:
        self.log_tail = log_tail
        super().__init__(f"{message}\n{log_tail}" if log_tail else message)


class EngineLostError(EngineError):
    """A running engine is gone."""


class OutputError(FiresteelError):
    """An output cannot be written; tells the vertex and the error of the file system."""

    def __init__(self, vertex: str, path: str, error: OSError) -> None:
        self.vertex = vertex
        what = error.strerror or str(error) or type(error).__name__
        where = f": '{error.filename}'" if error.filename and str(error.filename) != path else ""
        fix = "check the path and its permissions"
        if isinstance(error, PermissionError):
            # In a sandbox, permission bits do not show this.
            fix += " (jobs of owners other than the node's user may write only below security.sandbox.write-paths)"
        super().__init__(f"cannot write the output '{path}': {what}{where} — {fix}")


class QueryStoppedError(EngineError):
    """A streaming query was stopped by something other than Firesteel."""

    firesteel_sink: str = ""


class WorkerLostError(FiresteelError):
    """A worker was given up: all that ran there counts as ended, and nothing there can be asked."""


class AttemptElsewhereError(FiresteelError):
    """An attempt runs on another host, where it can be neither seen nor ended from here."""


class JobNotFoundError(FiresteelError):
    """No job with this id is known."""


class OperationNotFoundError(FiresteelError):
    """No operation with this trigger id is known for the job."""


class DuplicateJobError(FiresteelError):
    """The id belongs to another job, or to one that has ended for good."""


class JobStateError(FiresteelError):
    """The job exists, but its state does not allow this."""


class WorkerNotFoundError(FiresteelError):
    """No worker of that id or name has joined the cluster."""


class WorkerStateError(FiresteelError):
    """The state of the worker, or another worker in its place, does not allow this."""


class ResourcesUnavailableError(FiresteelError):
    """The job asks for more than any engine here could have."""


class NotLeadingError(FiresteelError):
    """This node does not lead."""


class StoreError(FiresteelError):
    """An operation of the HA store failed."""


class FencingError(StoreError):
    """The write carried an outdated epoch. Nothing was written."""


class VersionConflictError(StoreError):
    """The value has another version than the writer expected. Nothing was written."""


class StoreUnavailableError(StoreError):
    """Out of reach or busy; trying again later may work."""


class StoreBrokenError(StoreError):
    """Damaged, read-only, full, or written by a newer version. An operator has to look at it."""


class StoreFailingError(StoreBrokenError):
    """The disk is full, or the write failed. Nothing was written, and the existing data is intact."""


class BlobNotFoundError(FiresteelError):
    """No file with this digest is stored."""


class TooLargeError(FiresteelError):
    """More bytes than are allowed."""


class QuotaExceededError(TooLargeError):
    """More than the owner may store in total."""


class SavepointError(FiresteelError):
    """A savepoint could not be taken, read or disposed of."""


class NoSavepointError(SavepointError):
    """There is no savepoint, or not a whole one. That is certain: one that cannot be read is another error."""


class UnauthenticatedError(FiresteelError):
    """The caller is unknown."""

    def __init__(self, message: str, *, token_given: bool = False) -> None:
        self.token_given = token_given
        super().__init__(message)


class ForbiddenError(FiresteelError):
    """The caller may not do this."""


class RateLimitedError(FiresteelError):
    """Too many requests of one caller."""

    def __init__(self, message: str, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class ServiceStartError(FiresteelError):
    """A part of the cluster could not start."""

    def __init__(self, part: str, cause: BaseException) -> None:
        self.part = part
        super().__init__(f"the {part} could not start: {cause}")


class CommitConflictError(FiresteelError):
    """A sink's commit record does not fit what this job is about to commit."""


class SupersededError(CommitConflictError):
    """A later attempt of the job has taken over an output or a checkpoint, or the job has ended."""

    firesteel_sink: str = ""
