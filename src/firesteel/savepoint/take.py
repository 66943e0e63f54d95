"""Taking a savepoint of a running query, without disturbing it, or of one that was stopped.

All steps may be repeated, by this leader or the next: the location is derived, the request says what to save, and a
complete savepoint is left as it is.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import time
from collections.abc import Callable, Sequence

from firesteel.errors import FiresteelError, NoSavepointError, SavepointError
from firesteel.savepoint import selection, sinklog
from firesteel.savepoint.files import Place, copy_files
from firesteel.savepoint.manifest import (
    CHECKPOINT,
    COPYING,
    DISPOSING,
    MANIFEST,
    MARK,
    MAX_MANIFEST,
    NONE,
    REQUEST,
    SINK_LOG,
    Manifest,
    SavedFile,
    SavedSink,
    SavepointRequest,
    SinkPlaces,
    is_data_directory,
)
from firesteel.savepoint.selection import TornError

logger = logging.getLogger(__name__)

TRIES = 10
PAUSE_SECONDS = 0.2


def prepare(location: str, request: SavepointRequest) -> None:
    """Record what is to be saved at `location`, which also shows that the place can be written to.

    Raises:
        SavepointError: it cannot be written to, or the place belongs to another savepoint.
    """
    place = Place.at(location, "the savepoint directory")
    try:
        if place.read(MANIFEST) is not None:
            return
        if place.create(REQUEST, request.to_bytes()):
            return
        there = place.read(REQUEST)
    except OSError as error:
        raise _unwritable(location, error) from error
    if there is not None:
        other = SavepointRequest.from_bytes(there, location)
        _check_owner(location, other.job_id, other.trigger_id, request)


def _check_owner(location: str, job_id: str, trigger_id: str, request: SavepointRequest) -> None:
    if (job_id, trigger_id) != (request.job_id, request.trigger_id):
        raise SavepointError(
            f"{location} belongs to the savepoint {trigger_id} of job {job_id}; choose another directory or trigger id"
        )


def find(location: str) -> Manifest:
    """The manifest of the savepoint at `location`.

    Raises:
        NoSavepointError: there is none, or it is not complete.
        SavepointError: it cannot be read.
    """
    place = Place.at(location, "the savepoint directory")
    try:
        raw = place.read(MANIFEST, limit=MAX_MANIFEST)
        names = [] if raw is not None else place.names()
    except OSError as error:
        raise SavepointError(f"the savepoint {location} cannot be read: {error}") from error
    if raw is not None:
        return Manifest.from_bytes(raw, location)
    if DISPOSING in names:
        raise NoSavepointError(
            f"the savepoint {location} is being deleted or was partly deleted; nothing can start from it"
        )
    if REQUEST in names or any(is_data_directory(n) for n in names):
        raise NoSavepointError(
            f"the savepoint {location} is not complete: it has no {MANIFEST}, which is written last; take a new one"
        )
    what = f"the directory has no {MANIFEST}" if names else "no such directory"
    raise NoSavepointError(f"there is no savepoint at {location}: {what}")


def take(
    location: str,
    *,
    alive: Callable[[], bool] | None,
    tries: int = TRIES,
    pause: Callable[[float], None] = time.sleep,
) -> Manifest:
    """Complete the savepoint that was prepared at `location`. One that is already complete is returned as it is.

    Args:
        alive: whether the job still runs. None: it was stopped, and its checkpoints stay as they are.

    Raises:
        SavepointError: it was not prepared, the job ended meanwhile, or files cannot be read or written.
    """
    place = Place.at(location, "the savepoint directory")
    try:
        done = place.read(MANIFEST)
        if done is not None:
            return Manifest.from_bytes(done, location)
        raw = place.read(REQUEST)
        if raw is None:
            raise SavepointError(f"the savepoint {location} was never prepared, or its files were removed")
        request = SavepointRequest.from_bytes(raw, location)
        writer = _Writer(place, request, alive, tries, pause)
        manifest = writer.write(location)
    except OSError as error:
        raise _unwritable(location, error) from error
    with contextlib.suppress(OSError, FiresteelError):
        _tidy(place, keep=manifest.data)
    return manifest


def take_ended(location: str, request: SavepointRequest) -> Manifest:
    """Make a savepoint at `location` of queries that have ended for good, with the batch that each had begun, if any.

    Several processes may do so at once: one of them wins, and all return its savepoint.

    Raises:
        SavepointError: files cannot be read or written.
    """
    place = Place.at(location, "the savepoint directory")
    try:
        manifest = _Writer(place, request, None, 1, time.sleep, begun=True).write(location)
    except (OSError, SavepointError) as error:
        # The one who won may have removed what we were about to write.
        if place.read(MANIFEST) is not None:
            return find(location)
        raise error if isinstance(error, SavepointError) else _unwritable(location, error) from error
    with contextlib.suppress(OSError, FiresteelError):
        _tidy(place, keep=manifest.data)
    return manifest


def abandon(location: str) -> None:
    """Remove what `prepare` left of a savepoint that will not be taken. Complete ones stay."""
    place = Place.at(location, "the savepoint directory")
    with contextlib.suppress(OSError):
        if place.read(MANIFEST) is None:
            place.remove(REQUEST)
            place.store.remove_empty([place.location.root])


def _tidy(place: Place, keep: str) -> None:
    """Remove the data directories of writers that did not finish."""
    for name in place.names():
        if is_data_directory(name) and name != keep:
            place.remove_tree(name)
    place.remove(REQUEST)


def _unwritable(location: str, error: OSError) -> SavepointError:
    return SavepointError(
        f"the savepoint {location} could not be taken: {error} — check that the directory is writable and has "
        "space, and that checkpoints can be read"
    )


class _Writer:
    """Copies what the sinks of one job need, into a data directory of its own."""

    def __init__(
        self,
        place: Place,
        request: SavepointRequest,
        alive: Callable[[], bool] | None,
        tries: int,
        pause: Callable[[float], None],
        *,
        begun: bool = False,
    ) -> None:
        self._begun = begun
        self._place = place
        self._request = request
        self._alive = alive
        self._tries = tries
        self._pause = pause
        self._name = f"data-{secrets.token_hex(4)}"

    def write(self, location: str) -> Manifest:
        mine = False
        try:
            sinks = {name: self._sink(name, places) for name, places in self._request.sinks.items()}
            if any(s.batch == NONE for s in sinks.values()):
                # Its checkpoint may be empty because it ended, and was removed.
                self._check_alive()
            r = self._request
            manifest = Manifest(r.job_id, r.job_name, r.trigger_id, time.time(), r.graph, self._name, sinks)
            mine = self._place.create(MANIFEST, manifest.to_bytes())
        finally:
            if not mine:
                with contextlib.suppress(OSError, FiresteelError):
                    self._place.remove_tree(self._name)
        if mine:
            return manifest
        other = find(location)  # another leader was faster
        _check_owner(location, other.job_id, other.trigger_id, self._request)
        return other

    def _check_alive(self) -> None:
        if self._alive is not None and not self._alive():
            raise SavepointError(
                f"job {self._request.job_id} ended while its savepoint was being taken; there is no savepoint"
            )

    def _sink(self, name: str, places: SinkPlaces) -> SavedSink:
        source = Place.of_checkpoint(places.checkpoint, name)
        output = Place.at(places.path, f"the output of sink '{name}'") if places.path else None
        target = self._place.below(f"{self._name}/{name}")
        if _being_made(source):
            raise SavepointError(
                f"the checkpoint of sink '{name}' is still being made from a savepoint; try again when its query runs"
            )
        torn: TornError | None = None
        for n in range(self._tries):
            if n:
                self._check_alive()
                self._pause(PAUSE_SECONDS)
            try:
                return self._try(places, source, output, target)
            except TornError as error:
                logger.info("savepoint of sink '%s': %s is gone, trying again", name, error)
                torn = error
                self._place.remove_tree(f"{self._name}/{name}")
        self._check_alive()
        raise SavepointError(
            f"the checkpoint of sink '{name}' in {places.checkpoint} changes faster than it can be copied, or is damaged: "
            f"{torn} was not there in {self._tries} tries — raise spark.sql.streaming.minBatchesToRetain"
        )

    def _try(self, places: SinkPlaces, source: Place, output: Place | None, target: Place) -> SavedSink:
        # The batch first: all that it needs is there before it counts as committed.
        batch = selection.newest(source.names("commits"))
        listed = source.files()
        if batch == NONE and selection.newest(source.names("commits")) != NONE:
            raise TornError("the first batch")  # what was listed may be of a later one
        chosen = selection.choose(listed, batch, begun=self._begun)
        there = set(listed)
        for archive, required in chosen.archives.items():
            self._add_members(source, archive, required, there, chosen)
        files = _copied(source, target, CHECKPOINT, chosen.required, chosen.optional)
        if output is not None and batch != NONE:
            log = output.below(sinklog.LOG)
            cut = sinklog.cut(log.names(), batch)
            if cut is not None:
                files |= _copied(log, target, SINK_LOG, cut.required, cut.optional)
        return SavedSink(batch, _query_id(target, files), places, files)

    def _add_members(
        self, source: Place, archive: str, required: bool, there: set[str], chosen: selection.Chosen
    ) -> None:
        try:
            raw = source.read(archive)
            if raw is None:
                raise TornError(archive)
            found = selection.members(raw, archive, there)
        except TornError:
            if required:
                raise
            return
        wanted = chosen.required if required else chosen.optional
        known = {*chosen.required, *wanted}  # versions share their files
        wanted += [f for f in found if f not in known]


def _being_made(checkpoint: Place) -> bool:
    raw = checkpoint.read(MARK)
    try:
        return bool(raw and json.loads(raw)["state"] == COPYING)
    except (ValueError, KeyError, TypeError):
        return True


def _copied(
    source: Place, target: Place, part: str, required: Sequence[str], optional: Sequence[str]
) -> dict[str, SavedFile]:
    done = copy_files(source, target.below(part), [*required, *optional])
    for name in required:
        if done[name] is None:
            raise TornError(name)
    return {f"{part}/{name}": file for name, file in done.items() if file is not None}


def _query_id(target: Place, files: dict[str, SavedFile]) -> str | None:
    if f"{CHECKPOINT}/metadata" not in files:
        return None
    raw = target.read(f"{CHECKPOINT}/metadata") or b"{}"
    try:
        return str(json.loads(raw)["id"])
    except (ValueError, KeyError, TypeError):
        return None
