"""A directory that an attempt takes over from one that may still be alive, so that this one can write nothing to it any more.

    <place>                                 the directory; after it was taken over a file, which names its successor
    <place>.taken-<k>-<job>-<attempt>       the k-th successor; of several the highest counts, the others are files
    <place>.taken-….was                     the successor of this name has a successor
    <place>.late-<hex>                      what somebody has made under an old name meanwhile; it counts for nothing

Whoever was given up knows the directory by its path only. So it is renamed, in one step, and a file is put where it was:
every later write under the old path fails, also one that would make missing directories. The content is in one place at any
time. An attempt looks for a later one after its own step, and the later one blocks all names before its own, so of two that
meet, the earlier one loses.

Object stores have no such rename. There nothing is taken over, and what Spark itself refuses is all that is refused.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from firesteel.errors import EnvironmentNotReadyError, FiresteelError, InvalidPipelineError, SupersededError
from firesteel.fs.store import FileStore, PathKind, locate, open_store

_TAKEN = re.compile(r"\.taken-(\d+)-([0-9a-f]{8})-(\d+)")
_LATE = ".late-"
_WAS = ".was"
_TRIES = 20


@dataclass(frozen=True, slots=True, order=True)
class _Taken:
    """A name under which a place was taken over. Job ids are shortened: a place has few jobs in its life."""

    count: int
    attempt: int
    job: str

    @property
    def suffix(self) -> str:
        return f".taken-{self.count}-{self.job}-{self.attempt}"


class Generations:
    """All names of one place. Every call asks the store."""

    def __init__(self, store: FileStore, root: str) -> None:
        self._store = store
        self._root = root

    def latest(self) -> _Taken | None:
        return max(self._all(), default=None)

    def _all(self, end: str = "") -> list[_Taken]:
        parent, _, name = self._root.rpartition("/")
        try:
            names = self._store.names(parent or "/")
        except PermissionError:  # who may not look there cannot have taken anything over there
            return []
        rest = [n[len(name) :].removesuffix(end) for n in names if n.startswith(f"{name}.") and n.endswith(end)]
        return sorted(_Taken(int(m[1]), int(m[3]), m[2]) for r in rest if (m := _TAKEN.fullmatch(r)))

    def suffix(self) -> str:
        """What the name of the directory that counts has more than the place."""
        latest = self.latest()
        return latest.suffix if latest is not None else ""

    def later_than(self, job_id: str, attempt: int) -> int | None:
        """The attempt of the same job that has taken the place over from `attempt`."""
        latest = self.latest()
        mine = latest is not None and latest.job == job_id[:8]
        return latest.attempt if latest is not None and mine and latest.attempt > attempt else None

    def take(self, job_id: str, attempt: int, given_up: int) -> str:
        """Make the place one that no attempt up to `given_up` writes to; returns the suffix of its name.

        Raises:
            SupersededError: a later attempt has it.
        """
        latest = self._taken(job_id, attempt, given_up)
        if latest is None:
            return ""
        self._block(latest)
        self._check(job_id, attempt)
        return latest.suffix

    def _taken(self, job_id: str, attempt: int, given_up: int) -> _Taken | None:
        for _ in range(_TRIES):
            self._check(job_id, attempt)
            latest = self.latest()
            if not given_up or (latest is not None and latest.job == job_id[:8] and latest.attempt > given_up):
                return latest
            source = self._path(latest)
            target = self._path(_Taken(latest.count + 1 if latest else 1, attempt, job_id[:8]))
            if latest is not None:
                # Noted first: between the two steps of a take-over, nothing else tells that this name was in use.
                self._store.write(f"{source}{_WAS}", b"")
            # Seen in the next round, with what others have done meanwhile.
            if not self._store.rename_directory(source, target) and self._store.kind(source) is None:
                self._store.make_directory(target)
        raise FiresteelError(
            f"{self._root} could not be taken over: it is not a directory, or others keep changing it — check what is there"
        )

    def _check(self, job_id: str, attempt: int) -> None:
        if (later := self.later_than(job_id, attempt)) is not None:
            raise superseded(attempt, later, self._root)

    def _block(self, latest: _Taken) -> None:
        """Put a file under every name but the latest."""
        names = sorted({*self._all(), *self._all(_WAS)})
        for path in [self._root, *(self._path(t) for t in names if t < latest)]:
            for _ in range(_TRIES):
                kind = self._store.kind(path)
                if kind is PathKind.FILE:
                    break
                if kind is PathKind.DIRECTORY:
                    self._set_aside(path, latest)
                    continue
                try:
                    self._store.create(path, f"taken over: {self._root}{latest.suffix}\n".encode())
                except OSError:
                    if self._store.kind(path) is None:
                        raise
            else:
                raise FiresteelError(
                    f"{path} keeps being made again by an attempt that was given up — end its processes"
                )

    def _set_aside(self, path: str, latest: _Taken) -> None:
        """An earlier attempt began there when we had looked. What it did counts if there was nothing before, else not."""
        mine = self._path(latest)
        if not self._store.names(mine):
            self._store.remove_empty([mine])
            if self._store.kind(mine) is None and self._store.rename_directory(path, mine):
                return
            self._store.make_directory(mine)
        self._store.rename_directory(path, f"{self._root}{_LATE}{secrets.token_hex(4)}")

    def _path(self, taken: _Taken | None) -> str:
        return f"{self._root}{taken.suffix if taken else ''}"


def superseded(attempt: int, later: int, place: str) -> SupersededError:
    return SupersededError(
        f"attempt {attempt} was given up and attempt {later} has taken over {place}: nothing of attempt {attempt} can be "
        "committed there any more"
    )


def current(place: str) -> str:
    """The directory that `place` stands for, spelled as it was given."""
    return f"{place.rstrip('/')}{found.suffix()}" if (found := at(place)) is not None else place


def at(place: str) -> Generations | None:
    """The names of a place; None when it is on a file system on which nothing can be taken over."""
    try:
        location = locate(place, "", {})
        store = open_store(location)
    except (InvalidPipelineError, EnvironmentNotReadyError):
        return None  # one that only Spark can look into
    return Generations(store, location.root) if store.renames_directories else None


def take(place: str, job_id: str, attempt: int, given_up: int) -> str:
    """`Generations.take`, where that is possible; the directory that `place` stands for from then on.

    Raises:
        SupersededError: a later attempt has it.
        FiresteelError: it cannot be renamed.
    """
    try:
        found = at(place)
        return place if found is None else f"{place.rstrip('/')}{found.take(job_id, attempt, given_up)}"
    except FiresteelError:
        raise
    except Exception as error:
        if not given_up:
            return place  # a file system that the driver cannot look into, or not now: Spark can, or tells why not
        raise FiresteelError(
            f"{place} cannot be taken over from an attempt that was given up: {error} — its directory has to be writable, "
            "and must not be a mount of its own"
        ) from error
