"""Computes which files a sandboxed process may touch, as grants of hierarchies, from a `Sandbox` and directory
listings. Pure.

Landlock can only grant, not take away. So "all of this, but not that" becomes grants of everything beside the path that
leads from `this` down to `that`. What is created later in a directory on that path could not be granted: only processes
that start after it can use it.

Imported before a JVM is started, by a Python without site-packages: nothing but light parts of the standard library.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from firesteel.sandbox.users import OsUser

LIST = 1
"""The process may list directories."""
READ = 3
"""It may also read and execute files."""
WRITE = 7
"""It may also change everything."""

MOST_ENTRIES = 20_000
"""It may list one directory on the path; what is below stays closed."""


class Sandbox(NamedTuple):
    """Paths are absolute and without symbolic links (see `real`); each stands for the hierarchy beneath it."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    """Neither readable nor writable, even where `read` or `write` contain it."""
    shown: tuple[str, ...] = ()
    """Readable even below what is hidden."""
    own: tuple[str, ...] = ()
    """Writable even below what is hidden."""
    names: bool = False
    """Whether directories on the way to what is hidden can be listed. Names beneath them are then seen too, hidden or not."""
    user: OsUser | None = None
    """The user that the process becomes as well; None: it keeps its user."""

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @staticmethod
    def from_json(data: dict[str, Any]) -> Sandbox:
        read, write, hidden, shown, own = (tuple(data[k]) for k in ("read", "write", "hidden", "shown", "own"))
        return Sandbox(read, write, hidden, shown, own, names=data["names"], user=OsUser.from_json(data["user"]))


class PathAccess(NamedTuple):
    path: str
    access: int
    """LIST, READ or WRITE."""


def real(*paths: str | os.PathLike[str] | None) -> tuple[str, ...]:
    """The paths as a Sandbox has them, each once; None is left out."""
    return tuple(dict.fromkeys(os.path.realpath(p) for p in paths if p is not None))


def grants(sandbox: Sandbox, entries: Callable[[str], Iterable[str]]) -> Iterator[PathAccess]:
    """What to grant. `entries` gives the names in a directory, and none for anything else."""
    for roots, access in ((sandbox.write, WRITE), (sandbox.read, READ)):
        for root in roots:
            yield from _beside(root, access, sandbox, entries)
    for path in sandbox.shown:
        yield PathAccess(path, READ)
    for path in sandbox.own:
        yield PathAccess(path, WRITE)


def ways(sandbox: Sandbox) -> tuple[str, ...]:
    """The directories whose entries decide what is granted: while they do not change, neither does that."""
    above = {parent for hidden in sandbox.hidden for parent in _parents(hidden)}
    roots = [f"{root.rstrip('/')}/" for root in (*sandbox.write, *sandbox.read)]
    return tuple(sorted(p for p in above if any(f"{p.rstrip('/')}/".startswith(root) for root in roots)))


def _parents(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _beside(path: str, access: int, sandbox: Sandbox, entries: Callable[[str], Iterable[str]]) -> Iterator[PathAccess]:
    inside = f"{path.rstrip('/')}/"
    if any(path == hidden or path.startswith(f"{hidden.rstrip('/')}/") for hidden in sandbox.hidden):
        return
    if not any(hidden.startswith(inside) for hidden in sandbox.hidden):
        yield PathAccess(path, access)
        return
    if sandbox.names:
        yield PathAccess(path, LIST)
    for number, name in enumerate(entries(path)):
        if number >= MOST_ENTRIES:
            return
        yield from _beside(inside + name, access, sandbox, entries)
