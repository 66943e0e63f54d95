"""The sandbox policy: what an engine, a driver, and a task that opens caller-named paths may touch.

There are two kinds of owners. The user who runs the node could open any of its files anyway, so their jobs may too;
processes of the node and of other owners stay out of their reach. Jobs of others may use what an admin lists, and what
programs need. An engine that all owners share may use the machine, except for the node's own files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from firesteel.errors import EnvironmentNotReadyError
from firesteel.sandbox.owners import below
from firesteel.sandbox.rules import Sandbox, real
from firesteel.sandbox.users import NoUserError, OsUser, enterable, give, lend, open_ways, user_of

_DEVICES = tuple(
    f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue")
)
_KERNEL = ("/proc", "/sys")
_PROGRAMS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/opt", "/etc", "/nix/store", "/gnu/store")
_NAME_SERVICE = ("/etc/resolv.conf", "/etc/localtime")
"""Paths that are often links to places outside the program directories."""
_SECRETS_OF_ROOT = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/ssl/private")
"""Files that their modes protect from other users; this protects them from root."""


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    user: str
    """The user who runs the node."""
    hidden: tuple[str, ...]
    """The files of the node, of all owners and of the system that no job may touch. Real paths, as all paths here."""
    programs: tuple[str, ...]
    """Python, Java and Spark, where they are outside of the usual places."""
    caches: tuple[str, ...] = ()
    """Files of the node that all may read."""
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    """Where, according to an admin, the data of all owners are."""
    checkpoints: str | None = None
    savepoints: str | None = None
    """The directories of all owners; None where they are on no file system of this machine."""
    users: tuple[tuple[str, str], ...] | None = None
    """Owners and the users that their processes run as, where each owner has one; None: all are the node's user."""
    node: tuple[str, ...] = ()
    """Directories of the node in which owners have places."""
    temporary: str = "/tmp"  # noqa: S108  # replaced by a private one where it would be shared with others

    def trusts(self, owner: str | None) -> bool:
        """Whether this is the user who runs the node, who could open every file by hand. A job without an owner was
        submitted by them, before there were owners."""
        return owner in ("", self.user)

    def files(self, owner: str | None) -> Sandbox:
        """What `owner` may open; None: an engine that all owners share, because an admin chose so."""
        if self.trusts(owner):
            return Sandbox(write=("/",))
        hidden = ("/dev", *_KERNEL, *self.hidden)
        shown = (*_KERNEL, *self.caches)
        if owner is None:
            return Sandbox((), ("/",), hidden, shown, _DEVICES, names=True)
        secrets = real(*_SECRETS_OF_ROOT) if os.geteuid() == 0 else ()
        programs = (*real(*_PROGRAMS, *_NAME_SERVICE), *self.programs)
        user = self.os_user(owner)
        return Sandbox((*programs, *self.read), self.write, (*hidden, *secrets), shown, _DEVICES, user=user)

    def os_user(self, owner: str) -> OsUser | None:
        """The user that processes of `owner` run as; None: that of the node. Raises EnvironmentNotReadyError when the owner
        should have one, and has none."""
        if self.users is None or self.trusts(owner):
            return None
        try:
            return user_of(owner, dict(self.users))
        except NoUserError as error:
            raise EnvironmentNotReadyError(str(error)) from None

    def task(self, owner: str, *shown: Path) -> Sandbox | None:
        """For lines of ours that open what a caller of this owner names, and read `shown`; the owner's checkpoints and
        savepoints are open to them. None: there is nothing to keep from this owner."""
        if self.trusts(owner):
            return None
        places = self._places(owner, self.checkpoints, self.savepoints)
        return self._lent(_with(self.files(owner), shown=real(*shown), own=places))

    def disposal(self, owner: str) -> Sandbox | None:
        """For the removal of a savepoint on behalf of an admin: also those of others. None: as for `task`."""
        sandbox = self.task(owner)
        if sandbox is None:
            return None
        # Where owners are users, it becomes the one whose savepoint it is, when it has seen that.
        sandbox = sandbox._replace(user=None)
        return _with(sandbox, own=tuple(p for p in (self.checkpoints, self.savepoints) if p is not None))

    def engine(self, owner: str | None, home: Path, work: Path) -> Sandbox:
        """`work` is what the engine may write to in its `home`."""
        own = (*real(work), *self._places(owner, self.checkpoints))
        return self._lent(_with(self.files(owner), shown=real(home), own=own))

    def driver(self, owner: str, *, shown: tuple[Path, ...], own: tuple[Path, ...], files: Path) -> Sandbox:
        """Of a process that runs code of users: a program, or the JVM of one. `shown` and `own` are of its attempt, `files`
        the copies of what its job uploaded."""
        read = (*real(*shown, files), *self._places(owner, self.savepoints))
        written = (*real(*own), *self._places(owner, self.checkpoints))
        sandbox = _with(self.files(owner), shown=read, own=written)
        if sandbox.user is not None and files.exists():
            lend(real(files)[0], sandbox.user)
        return self._lent(sandbox)

    def private_temporary(self, owner: str | None) -> bool:
        """Whether this owner may not use the usual directory for temporary files."""
        if owner is None:
            return any(h.startswith(f"{self.temporary}/") or h == self.temporary for h in self.hidden)
        return not self.trusts(owner)

    def _places(self, owner: str | None, *roots: str | None) -> tuple[str, ...]:
        """The directories of an owner, made now: what is not there cannot be granted."""
        there = [Path(below(root, owner or "")) for root in roots if root is not None]
        user = self.os_user(owner) if owner else None
        for place in there:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if user is not None:
                open_ways(self.node, str(place))
                give(str(place), user)
        return tuple(str(p) for p in there)

    def _lent(self, sandbox: Sandbox) -> Sandbox:
        """The sandbox, after its user was given access to all that is granted among the files of the node."""
        if sandbox.user is not None:
            for path in (*sandbox.shown, *sandbox.own):
                open_ways(self.node, path)
            for path in sandbox.own:
                if _inside(path, self.node) and os.path.lexists(path):
                    give(path, sandbox.user)
            for path in sandbox.shown:
                if _inside(path, self.node) and os.path.isdir(path) and os.lstat(path).st_uid == os.geteuid():
                    enterable(path)
        return sandbox


def _inside(path: str, roots: tuple[str, ...]) -> bool:
    return any(path.startswith(f"{root.rstrip('/')}/") for root in roots)


def _with(sandbox: Sandbox, *, shown: tuple[str, ...] = (), own: tuple[str, ...] = ()) -> Sandbox:
    return sandbox._replace(shown=(*sandbox.shown, *shown), own=(*sandbox.own, *own))
