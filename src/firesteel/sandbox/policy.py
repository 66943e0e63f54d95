"""Who may touch what: the sandbox of an engine, of a driver, and of a task that opens what a caller names.

There are two kinds of owners. The user who runs the node could open any file of it by hand, so their jobs may too; processes of
the node and of other owners stay out of their reach. Jobs of others may use what an admin lists, and what programs need. An
engine that all owners share may use the machine, but for what is the node's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from firesteel.sandbox.owners import below
from firesteel.sandbox.rules import Sandbox, real

_DEVICES = tuple(
    f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue")
)
_KERNEL = ("/proc", "/sys")
_PROGRAMS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/opt", "/etc", "/nix/store", "/gnu/store")
_NAME_SERVICE = ("/etc/resolv.conf", "/etc/localtime")
"""Often links to places that are not among the programs."""
_SECRETS_OF_ROOT = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/ssl/private")
"""Their modes keep others from them; root is kept from them by this."""


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    user: str
    """Who runs the node."""
    hidden: tuple[str, ...]
    """The files of the node, of all owners and of the system that no job may touch. Real paths, as all paths here."""
    programs: tuple[str, ...]
    """Python, Java and Spark, where they are outside of the usual places."""
    caches: tuple[str, ...] = ()
    """Of the node, for all to read."""
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    """Where an admin says that the data of all owners are."""
    checkpoints: str | None = None
    savepoints: str | None = None
    """The directories of all owners; None where they are on no file system of this machine."""
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
        return Sandbox((*programs, *self.read), self.write, (*hidden, *secrets), shown, _DEVICES)

    def task(self, owner: str, *shown: Path) -> Sandbox | None:
        """For lines of ours that open what a caller of this owner names, and read `shown`; the owner's checkpoints and
        savepoints are open to them. None: there is nothing to keep from this owner."""
        if self.trusts(owner):
            return None
        places = self._places(owner, self.checkpoints, self.savepoints)
        return _with(self.files(owner), shown=real(*shown), own=places)

    def disposal(self, owner: str) -> Sandbox | None:
        """For the removal of a savepoint on behalf of an admin: also those of others. None: as for `task`."""
        sandbox = self.task(owner)
        if sandbox is None:
            return None
        return _with(sandbox, own=tuple(p for p in (self.checkpoints, self.savepoints) if p is not None))

    def engine(self, owner: str | None, home: Path, work: Path) -> Sandbox:
        """`work` is what the engine may write to in its `home`."""
        own = (*real(work), *self._places(owner, self.checkpoints))
        return _with(self.files(owner), shown=real(home), own=own)

    def driver(self, owner: str, *, shown: tuple[Path, ...], own: tuple[Path, ...]) -> Sandbox:
        """Of a process that runs code of users: a program, or the JVM of one. `shown` and `own` are of its attempt."""
        read = (*real(*shown), *self._places(owner, self.savepoints))
        written = (*real(*own), *self._places(owner, self.checkpoints))
        return _with(self.files(owner), shown=read, own=written)

    def private_temporary(self, owner: str | None) -> bool:
        """Whether the usual directory for temporary files is not for this owner."""
        if owner is None:
            return any(h.startswith(f"{self.temporary}/") or h == self.temporary for h in self.hidden)
        return not self.trusts(owner)

    def _places(self, owner: str | None, *roots: str | None) -> tuple[str, ...]:
        """The directories of an owner, made now: what is not there cannot be granted."""
        there = [Path(below(root, owner or "")) for root in roots if root is not None]
        for place in there:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return tuple(str(p) for p in there)


def _with(sandbox: Sandbox, *, shown: tuple[str, ...] = (), own: tuple[str, ...] = ()) -> Sandbox:
    return sandbox._replace(shown=(*sandbox.shown, *shown), own=(*sandbox.own, *own))
