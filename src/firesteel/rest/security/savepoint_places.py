"""Where the node reads and writes savepoints for non-admins (S42): only below directories that an admin has configured.

The node accesses them with its own rights. A caller who could name any path could make it connect to any host and write to
any directory.
"""

from __future__ import annotations

from firesteel.config import Configuration
from firesteel.errors import InvalidRequestError, Problem
from firesteel.savepoint.places import below


def check_savepoint_place(configuration: Configuration, path: str, field: str) -> None:
    """Check the path of a savepoint. Nothing is opened, but links in local paths are resolved.

    Raises:
        InvalidRequestError: The path is not below any of the directories.
    """
    _check(path, [configuration.state.savepoints_dir, *configuration.security.savepoint_directories], field)


def check_restore_place(configuration: Configuration, path: str) -> None:
    """Check a path to start from, which may be a savepoint or a checkpoint."""
    state = configuration.state
    roots = [state.savepoints_dir, state.checkpoints_dir, *configuration.security.savepoint_directories]
    _check(path, roots, "settings.restore.path")


def _check(path: str, roots: list[str], field: str) -> None:
    if "\0" not in path and any(below(path, root) is not None for root in roots):
        return
    raise InvalidRequestError(
        [
            Problem(
                f"'{path[:200]}' is not below a savepoint directory",
                "leave it out, name a directory below state.savepoints.dir, or ask an admin to add it to "
                "security.savepoint-directories.allowed",
                field=field,
            )
        ]
    )
