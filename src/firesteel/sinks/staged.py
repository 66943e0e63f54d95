"""A batch file sink that commits exactly once: Spark writes to a staging directory, and a recorded decision moves the
files into place.

    sink = StagedFileSink("/data/out", job_id, "out", mode=SaveMode.OVERWRITE)
    if sink.begin(attempt) is Begin.RUN:
        df.write.mode("overwrite").option("partitionOverwriteMode", "static").parquet(sink.staging_path(attempt))
        sink.commit(attempt)
    # ... the job's result is recorded ...
    sink.cleanup()

Whatever dies in between, the next `begin`, `commit` or `abandon` finishes or discards what was begun. The reasons for
the order of the steps are in docs/decisions/0002-exactly-once-file-sinks.md.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from firesteel.errors import CommitConflictError, InvalidPipelineError, Problem, SupersededError
from firesteel.fs.store import FileStore, PathKind, locate, open_store
from firesteel.jobgraph.model import NAME_PATTERN, SaveMode
from firesteel.sinks import plan
from firesteel.sinks.log import OVER, PRIVATE, CommitLog
from firesteel.sinks.record import CommitRecord, CommitSummary, Decision
from firesteel.types import JobID, parse_job_id

logger = logging.getLogger(__name__)


class Begin(Enum):
    RUN = "run Spark into staging_path(attempt), then commit(attempt)"
    ALREADY_COMMITTED = "an earlier attempt's rows are in place; do not run Spark"
    IGNORED = "rows of others are in place and stay as they are; do not run Spark"


class StagedFileSink:
    """The commit of one sink of one job. Blocking; holds no state, so any process may make one for the same sink.

    An attempt number stands for one run of Spark: running it again after its process died is fine, running it twice
    at the same time is not (take the next number).
    """

    def __init__(
        self,
        path: str,
        job_id: JobID,
        vertex: str,
        *,
        mode: SaveMode,
        dynamic_partitions: bool = False,
        given_up: int = 0,
        storage_options: Mapping[str, Any] | None = None,
        store: FileStore | None = None,
    ) -> None:
        """
        Args:
            path: The target directory as Spark gets it: an absolute local path or a URI.
            mode: What happens to rows that others wrote there: APPEND leaves them, OVERWRITE replaces those that are
                there at the time of the commit, ERROR refuses to write if there are any, IGNORE then writes nothing.
            dynamic_partitions: With OVERWRITE: replace rows only in the partitions that get new ones.
            given_up: The last attempt of the job that was given up without being seen to end; 0 when there is none.
            storage_options: Options for fsspec, see `locate`.
            store: The file store to use instead of the one that `path` names.
        """
        parse_job_id(job_id)
        if not re.fullmatch(NAME_PATTERN, vertex):
            raise ValueError(f"a vertex name is a plain identifier, not {vertex!r}")
        self._uri = path.rstrip("/")
        self._vertex = vertex
        self._job_id = job_id
        self._mode = mode
        self._dynamic = dynamic_partitions
        self._given_up = given_up
        location = locate(path, vertex, storage_options or {})
        self._target = location.root
        self._store = store or open_store(location)
        self._log = CommitLog(self._store, self._target, f"{job_id}-{vertex}")

    def staging_path(self, attempt: int) -> str:
        """Where Spark writes attempt `attempt`, with the path spelled as the user gave it."""
        return f"{self._uri}/{PRIVATE}/{self._log.name}/attempt-{attempt}"

    def begin(self, attempt: int) -> Begin:
        """Return whether this attempt has to run. A commit that an earlier one decided is finished first.

        Raises:
            InvalidPipelineError: the target is a file, or it has rows of others and the mode is ERROR.
            CommitConflictError: the job was abandoned, or its record cannot be read.
            SupersededError: a later attempt has begun, or the job has ended.
        """
        if self._settle(attempt) is not None:
            return Begin.ALREADY_COMMITTED
        if self._store.kind(self._target) is PathKind.FILE:
            fix = "give a directory; Spark writes one file per partition into it"
            raise InvalidPipelineError([Problem(f"'{self._uri}' is a file", fix, vertex=self._vertex, field="path")])
        if self._mode in (SaveMode.ERROR, SaveMode.IGNORE):
            existing = self._store.sizes(self._target)
            if plan.replaced_files(existing.keys(), self._job_id, self._vertex):
                if self._mode is SaveMode.IGNORE:
                    return Begin.IGNORED
                raise self._in_use()
        self._log.begin(attempt, after_given_up=self._given_up > 0)
        return Begin.RUN

    def commit(self, attempt: int) -> CommitSummary:
        """Put the rows of `attempt` in place, or those of the attempt that was decided before.

        Returns:
            The files that are in place now; `attempt` says whose rows they are.

        Raises:
            InvalidPipelineError: the mode is ERROR, and others have put rows there since `begin`.
            CommitConflictError: Spark's write is not complete, the job is over, or a record cannot be applied.
            SupersededError: a later attempt has taken over. Nothing of this one will be seen.
        """
        settled = self._settle(attempt)
        if settled is not None:
            return settled
        self._check_begun(attempt)
        record = self._plan(attempt)
        self._log.check_claim(attempt)
        # An attempt that stops here, and wakes up when a later one has begun, may still decide first: then the later one
        # finishes this decision instead of making its own.
        decided = self._log.decide(record)
        if decided is record and not self._log.has_begun(attempt):
            # The job was committed and cleaned up by others while we planned; our record came after the end.
            self._log.withdraw()
        return self._finish(decided, attempt)

    def check(self, attempt: int) -> None:
        """Raise SupersededError when `attempt` has begun and may no longer commit, which may be why Spark has failed."""
        self._check_begun(attempt)
        self._log.check_claim(attempt)

    def _check_begun(self, attempt: int) -> None:
        if not self._log.has_begun(attempt):
            self._log.discard(attempt)
            raise SupersededError(
                f"attempt {attempt} of sink '{self._vertex}' was not begun, or its job has ended and was cleaned up: "
                f"nothing was committed — call begin({attempt}) before Spark writes"
            )

    def abandon(self) -> CommitSummary | None:
        """Abandon the sink. A commit that is decided is final: it is finished and returned, and `cleanup` is still due.

        Otherwise the sink is closed first (a late `commit` of any attempt fails), then its staged files are removed.
        """
        if self._log.done() is None and self._is_leftover():
            self._remove()
            return None
        settled = self._settle_or_abandon()
        if settled is None:
            self._remove()
        return settled

    def cleanup(self) -> None:
        """Remove all our files except the rows. Call it only once the job's result is recorded, as the sink forgets it.

        May be repeated. A commit that is decided and not carried out is carried out first.
        """
        if self.abandon() is not None:
            self._remove()

    def _remove(self) -> None:
        self._log.remove(after_given_up=self._given_up > 0)

    def _settle(self, attempt: int | None = None) -> CommitSummary | None:
        """Finish a commit that is decided; None when there is none. `attempt`: who asks, if it is one."""
        done = self._log.done()
        if done is not None:
            self._check_turn(done.attempt, attempt)
            return done
        record = self._log.record()
        return None if record is None else self._finish(record, attempt)

    def _finish(self, record: CommitRecord, attempt: int | None = None) -> CommitSummary:
        if record.decision is Decision.ABANDON:
            raise CommitConflictError(f"sink '{self._vertex}' of job {self._job_id} was abandoned — submit a new job")
        self._check_turn(record.attempt, attempt)
        return self._log.apply(record)

    def _check_turn(self, decided: int, attempt: int | None) -> None:
        """An attempt finishes decisions of earlier ones. It has no part in those of later ones, and is told so."""
        if attempt is not None and decided > attempt:
            raise self._log.superseded(attempt, decided)

    def _is_leftover(self) -> bool:
        """Whether no decision can be made here any more: there is nothing, or a clean-up was interrupted."""
        if self._log.is_empty():
            return True
        record = self._log.record()
        if record is None:
            return False
        return record.decision is Decision.ABANDON or not self._log.has_begun(record.attempt)

    def _settle_or_abandon(self) -> CommitSummary | None:
        settled = self._settle()
        if settled is None:
            decided = self._log.decide(CommitRecord(Decision.ABANDON, self._job_id, self._vertex))
            if decided.decision is Decision.COMMIT:
                return self._log.apply(decided)
        return settled

    def _plan(self, attempt: int) -> CommitRecord:
        staging = self._log.staging(attempt)
        files = plan.staged_files(
            self._store.sizes(staging), self._job_id, self._vertex, attempt, where=self.staging_path(attempt)
        )
        remove: tuple[str, ...] = ()
        if self._mode is SaveMode.OVERWRITE:
            remove = self._replaced(plan.touched_directories(files) if self._dynamic else ("",))
        elif self._mode in (SaveMode.ERROR, SaveMode.IGNORE) and self._replaced(("",)):
            if self._mode is SaveMode.ERROR:
                raise self._in_use()
            files = ()
        return CommitRecord(Decision.COMMIT, self._job_id, self._vertex, attempt, files, remove)

    def _in_use(self) -> InvalidPipelineError:
        fix = (
            "set 'mode: append' to add to it, 'mode: overwrite' to replace it or 'mode: ignore' to leave it as it is, "
            "or choose another path"
        )
        message = f"'{self._uri}' already has output of another job"
        return InvalidPipelineError([Problem(message, fix, vertex=self._vertex, field="mode")])

    def _replaced(self, within: tuple[str, ...]) -> tuple[str, ...]:
        """The files of others at the target, which an overwrite removes.

        A commit of another job that is under way is finished first: a snapshot with half of it would delete that half
        and leave the other. Files of a commit appear after its record, so open records are finished; as a listing takes
        time, the snapshot counts when two agree.
        """
        before: tuple[str, ...] | None = None
        while True:
            existing = self._store.sizes(self._target, within)
            replaced = plan.replaced_files(existing.keys(), self._job_id, self._vertex)
            if not self._finish_others() and replaced == before:
                return replaced
            before = replaced

    def _finish_others(self) -> bool:
        """Roll forward open commits of other sinks in this target. Returns whether there was one."""
        any_open = False
        for name in self._store.names(f"{self._target}/{PRIVATE}"):
            log = CommitLog(self._store, self._target, name)
            if name == self._log.name or name.endswith(OVER) or log.done() is not None:
                continue
            try:
                record = log.record()
                if record is not None and record.decision is Decision.COMMIT:
                    log.apply(record)
                    any_open = True
            except CommitConflictError as e:
                # It can never be finished. Replacing what it left is what an overwrite is for.
                logger.warning("sink '%s' replaces an unfinished commit: %s", self._vertex, e)
        return any_open
