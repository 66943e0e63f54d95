"""Where the node reads and writes savepoints for those who are not admin (S42): below directories that an admin has named.

The node itself goes there, with its own rights. A caller who could name any place would have it connect to any host and write
below any directory.
"""

from __future__ import annotations

from firesteel.config import Configuration
from firesteel.errors import InvalidRequestError, Problem
from firesteel.savepoint.places import below


def check_savepoint_place(configuration: Configuration, path: str, field: str) -> None:
    """Nothing is opened, but links in local paths are followed.

    Raises:
        InvalidRequestError: It is below none of the directories.
    """
    _check(path, [configuration.state.savepoints_dir, *configuration.security.savepoint_directories], field)


def check_restore_place(configuration: Configuration, path: str) -> None:
    """The same for one to start from: a job goes on from a checkpoint as it does from a savepoint."""
    state = configuration.state
    roots = [state.savepoints_dir, state.checkpoints_dir, *configuration.security.savepoint_directories]
    _check(path, roots, "settings.restore.path")


def _check(path: str, roots: list[str], field: str) -> None:
    if "\0" not in path and any(below(path, root) is not None for root in roots):
        return
    raise InvalidRequestError(
        [
            Problem(
                f"'{path[:200]}' is not below a directory for savepoints",
                "leave it out, name a directory below state.savepoints.dir, or have an admin add it to "
                "security.savepoint-directories.allowed",
                field=field,
            )
        ]
    )
