"""Removing a savepoint, and never anything else."""

from __future__ import annotations

from firesteel.errors import SavepointError
from firesteel.savepoint.files import Place
from firesteel.savepoint.manifest import DISPOSING, MANIFEST, REQUEST, is_data_directory
from firesteel.savepoint.take import find


def dispose(location: str, *, resumed: bool = False) -> None:
    """Remove the savepoint at `location`. May be repeated after a crash at any point.

    The manifest is removed first, so no job can start from a half-removed savepoint. Files that do not belong to the
    savepoint stay, and then so does the directory.

    Args:
        resumed: the removal was begun before and may have been finished, so a missing savepoint is fine.

    Raises:
        SavepointError: there is no savepoint, or it cannot be removed.
    """
    place = Place.at(location, "the savepoint directory")
    try:
        if place.read(DISPOSING) is None:
            if resumed and not place.names():
                return
            manifest = find(location)
            place.write(DISPOSING, manifest.to_bytes())
        place.remove(MANIFEST)
        for name in place.names():
            if is_data_directory(name):
                place.remove_tree(name)
        place.remove(REQUEST)
        place.remove(DISPOSING)
        place.store.remove_empty([place.location.root])
    except OSError as error:
        raise SavepointError(f"the savepoint {location} could not be removed: {error}") from error
