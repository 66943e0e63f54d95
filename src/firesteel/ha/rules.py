"""The checks that every store makes before a write, in one place so that all backends agree on the protocol."""

from __future__ import annotations

import re

from firesteel.errors import FencingError, VersionConflictError
from firesteel.ha.protocols import NEW, Epoch

NEVER = Epoch(0)
"""The newest epoch of a cluster that has had no leader yet."""

_PATH = re.compile(r"(?!\.{1,2}(/|\Z))[A-Za-z0-9._-]+(/(?!\.{1,2}(/|\Z))[A-Za-z0-9._-]+)*")


def check_path(path: str) -> None:
    """Refuse paths that some backend could not store (`.` and `..` are not segments in ZooKeeper or a file system)."""
    if not _PATH.fullmatch(path):
        raise ValueError(f"'{path}' is not a valid store path; join segments of [A-Za-z0-9._-] with single slashes")


def check_epoch(epoch: Epoch, newest: Epoch, doing: str) -> None:
    if newest == NEVER:
        raise FencingError(f"{doing} was refused: this cluster has had no leader yet; only a leader may write")
    if epoch != newest:
        raise FencingError(
            f"{doing} was refused: it was sent by the leader of epoch {epoch}, and the newest epoch is {newest}; "
            "leave it to the new leader"
        )


def check_version(path: str, current: int, expected: int | None) -> None:
    """`current` is NEW when there is no value."""
    if expected is None or expected == current:
        return
    found = "there is none" if current == NEW else f"it has version {current}"
    wanted = "no value" if expected == NEW else f"version {expected}"
    raise VersionConflictError(f"'{path}' was not written: the writer expected {wanted}, but {found}; read it again")
