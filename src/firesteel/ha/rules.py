"""The checks that every store makes before a write, in one place so that no backend reads the protocol its own way."""

from __future__ import annotations

import re

from firesteel.errors import FencingError, VersionConflictError
from firesteel.ha.protocols import NEW, Epoch

NEVER = Epoch(0)
"""The newest epoch of a cluster in which nobody has led yet."""

_PATH = re.compile(r"(?!\.{1,2}(/|\Z))[A-Za-z0-9._-]+(/(?!\.{1,2}(/|\Z))[A-Za-z0-9._-]+)*")


def check_path(path: str) -> None:
    """Refuse what some backend could not keep (`.` and `..` are not segments in ZooKeeper or a file system)."""
    if not _PATH.fullmatch(path):
        raise ValueError(f"'{path}' is not a path of the store; join segments of [A-Za-z0-9._-] with single slashes")


def check_epoch(epoch: Epoch, newest: Epoch, doing: str) -> None:
    if newest == NEVER:
        raise FencingError(f"{doing} was refused: nobody has led this cluster yet; write as its leader")
    if epoch != newest:
        raise FencingError(
            f"{doing} was refused: it was sent by leader {epoch}, and the newest leader is {newest}; "
            "leave it to that leader"
        )


def check_version(path: str, current: int, expected: int | None) -> None:
    """`current` is NEW when nothing is there."""
    if expected is None or expected == current:
        return
    found = "nothing is there" if current == NEW else f"it is of version {current}"
    wanted = "nothing to be there" if expected == NEW else f"version {expected}"
    raise VersionConflictError(f"'{path}' was not written: the writer expected {wanted}, but {found}; read it again")
