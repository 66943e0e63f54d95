"""The directory of one sink in its target, which records what was begun, what was decided and what is done.

    <target>/_firesteel/<job id>-<vertex>/
        attempt-<n>.begun     attempt n may write; without it no commit of attempt n may be decided
        attempt-<n>/          Spark writes here
        given-up              an earlier attempt was given up, not seen to end: it may still wake up somewhere
        commit.json           the decision; made exclusively, never changed
        done                  the decision is carried out
    <target>/_firesteel/<job id>-<vertex>.over
                              the job has ended, and an attempt that was given up must not begin any more

Order is everything: `begun` before Spark, `commit.json` before the first move, all moves before the first removal,
`done` last. The directory is removed in the order begun, staging, commit.json, done: a process that still finds a
record finds its `done` too, and one that writes a record too late finds no `begun` and takes the record back.

The highest `begun` is the claim: an attempt below it neither begins nor decides. An attempt writes its own `begun`
before it looks for others, and `over` is written before the clean-up looks for those that have begun. So of two that
meet, at least one sees the other.
"""

from __future__ import annotations

import logging
import re

from firesteel.errors import CommitConflictError, SupersededError
from firesteel.fs.store import FileStore, Move, PathKind, lost
from firesteel.sinks.plan import SUCCESS, emptied_directories
from firesteel.sinks.record import CommitRecord, CommitSummary, Decision, decode, decode_done, encode, encode_done

logger = logging.getLogger(__name__)

PRIVATE = "_firesteel"
_RECORD = "commit.json"
_DONE = "done"
_BEGUN = ".begun"
_GIVEN_UP = "given-up"
OVER = ".over"
"""The end of the name that is left behind where an attempt may wake up after the job has ended."""
_ATTEMPT = re.compile(r"attempt-\d+")
_CLAIM = re.compile(r"attempt-(\d+)\.begun")


class CommitLog:
    """The directory of one (job, vertex) under `target`. It holds no state of its own: every call asks the store."""

    def __init__(self, store: FileStore, target: str, name: str) -> None:
        self._store = store
        self._target = target
        self.name = name
        self.directory = f"{target}/{PRIVATE}/{name}"

    def staging(self, attempt: int) -> str:
        return f"{self.directory}/attempt-{attempt}"

    def begin(self, attempt: int, *, after_given_up: bool = False) -> None:
        """Claim the sink for `attempt`. `after_given_up`: an earlier one may still wake up.

        Raises:
            SupersededError: a later attempt has claimed it, or the job is over.
        """
        self._store.make_directory(self.directory)
        if after_given_up:
            self._store.write(f"{self.directory}/{_GIVEN_UP}", b"")
        self._store.write(self._begun(attempt), b"")
        self.check_claim(attempt)

    def check_claim(self, attempt: int) -> None:
        """Raise SupersededError when `attempt` may no longer commit."""
        claims = [int(m[1]) for n in self._store.names(self.directory) if (m := _CLAIM.fullmatch(n))]
        if (latest := max(claims, default=attempt)) > attempt:
            raise self.superseded(attempt, latest)
        if self._store.kind(f"{self.directory}{OVER}") is not None:
            self.discard(attempt)
            raise SupersededError(
                f"attempt {attempt} was given up and its job has ended since: it has written nothing to {self._target} — "
                "check the job's recorded result"
            )

    def superseded(self, attempt: int, by: int) -> SupersededError:
        """The error of an attempt that comes too late; what it has staged is removed."""
        self.discard(attempt)
        return SupersededError(
            f"attempt {attempt} was given up and attempt {by} has taken over: attempt {attempt} has written nothing to "
            f"{self._target}"
        )

    def discard(self, attempt: int) -> None:
        """Remove what an attempt has staged that will never be decided on."""
        self._store.remove([self._begun(attempt)])
        self._store.remove_tree(self.staging(attempt))
        self._store.remove_empty([self.directory, f"{self._target}/{PRIVATE}"])

    def has_begun(self, attempt: int) -> bool:
        return self._store.kind(self._begun(attempt)) is PathKind.FILE

    def _begun(self, attempt: int) -> str:
        return f"{self.staging(attempt)}{_BEGUN}"

    def is_empty(self) -> bool:
        return not self._store.names(self.directory)

    def done(self) -> CommitSummary | None:
        return decode_done(self._store.read(f"{self.directory}/{_DONE}"))

    def record(self) -> CommitRecord | None:
        """The decision; None while there is none.

        Raises:
            CommitConflictError: it cannot be read.
        """
        path = f"{self.directory}/{_RECORD}"
        data = self._store.read(path)
        if data is None:
            return None
        record = decode(data, path)
        if f"{record.job_id}-{record.vertex}" != self.name:
            raise CommitConflictError(
                f"{path} is the record of {record.job_id}-{record.vertex} — move it back to that directory"
            )
        return record

    def decide(self, record: CommitRecord) -> CommitRecord:
        """Make `record` the decision, or return the one that another process made before."""
        try:
            if self._store.create(f"{self.directory}/{_RECORD}", encode(record)):
                return record
        except FileNotFoundError as e:
            raise self._cleaned_up() from e
        decided = self.record()
        if decided is None:
            raise self._cleaned_up()
        return decided

    def withdraw(self) -> None:
        """Take back a decision that this process has just made for a job that has ended and was cleaned up."""
        self._store.remove([f"{self.directory}/{_RECORD}"])

    def _cleaned_up(self) -> CommitConflictError:
        return CommitConflictError(
            f"{self.directory} was cleaned up meanwhile: the job has ended elsewhere and nothing was committed here — "
            "check the job's recorded result"
        )

    def apply(self, record: CommitRecord) -> CommitSummary:
        """Carry out a commit. Any number of processes may do so at once or again, up to the clean-up.

        Raises:
            CommitConflictError: a file is lost, or the attempt was cleaned up. Then nothing is removed.
        """
        done = self.done()
        if done is not None:
            return done
        if record.decision is not Decision.COMMIT or not self.has_begun(record.attempt):
            raise self._cleaned_up()
        self._move(record)
        self._remove(record)
        self._store.touch(f"{self._target}/{SUCCESS}")
        self._mark_done(record)
        logger.info("committed attempt %d of %s: %d files", record.attempt, self.name, len(record.files))
        return record.committed

    def _mark_done(self, record: CommitRecord) -> None:
        if self.has_begun(record.attempt):  # else another process finished it and cleaned up: put nothing back
            try:
                self._store.write(f"{self.directory}/{_DONE}", encode_done(record.committed))
            except FileNotFoundError:  # cleaned up this very moment
                pass

    def _move(self, record: CommitRecord) -> None:
        """Move every staged file into place, after checking what an earlier try has moved."""
        staging = self.staging(record.attempt)
        present = self._store.sizes(staging)
        moves = [Move(f"{staging}/{f.staged}", f"{self._target}/{f.final}", f.size) for f in record.files]
        for f in record.files:
            if present.get(f.staged, f.size) != f.size:
                raise CommitConflictError(
                    f"{staging}/{f.staged} has {present[f.staged]} bytes, {f.size} were committed: attempt "
                    f"{record.attempt} was written again after its commit — run Spark once per attempt"
                )
        waiting = [m for m, f in zip(moves, record.files, strict=True) if f.staged in present]
        gone = [m for m, f in zip(moves, record.files, strict=True) if f.staged not in present]
        self._check_moved(gone)
        self._store.move(waiting)

    def _check_moved(self, moves: list[Move]) -> None:
        for move, size in zip(moves, self._store.sizes_of([m.target for m in moves]), strict=True):
            if size != move.size:
                raise lost(move, size)

    def _remove(self, record: CommitRecord) -> None:
        self._store.remove([f"{self._target}/{path}" for path in record.remove])
        self._store.remove_empty([f"{self._target}/{d}" for d in emptied_directories(record.remove)])

    def remove(self, *, after_given_up: bool = False) -> None:
        """Remove the directory, and its parent when this was the last one. The order is part of the protocol.

        When an attempt was given up, a note stays that the job is over.
        """
        names = self._store.names(self.directory)
        if after_given_up or _GIVEN_UP in names:
            self._store.make_directory(f"{self._target}/{PRIVATE}")
            self._store.write(f"{self.directory}{OVER}", b"")
            names = self._store.names(self.directory)  # one that has begun before it could see this note
        self._store.remove([f"{self.directory}/{n}" for n in names if n.endswith(_BEGUN)])
        for name in names:
            if _ATTEMPT.fullmatch(name):
                self._store.remove_tree(f"{self.directory}/{name}")
        self._store.remove([f"{self.directory}/{_RECORD}"])
        self._store.remove([f"{self.directory}/{_DONE}"])
        self._store.remove_tree(self.directory)
        self._store.remove_empty([f"{self._target}/{PRIVATE}"])
