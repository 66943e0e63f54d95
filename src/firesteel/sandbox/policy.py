"""Who may touch what: the sandbox of an engine, of a driver, and of a task that opens what a caller names.

There are two kinds of owners. The user who runs the node could open any of its files by hand, so their jobs may use all of
the machine but for what is the node's or another owner's. Jobs of others may use what an admin lists, and what programs need.
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
        """None: an engine that all owners share, because an admin chose so."""
        return owner in (None, "", self.user)

    def files(self, owner: str | None, *, whole: bool = False) -> Sandbox:
        """What `owner` may open. `whole`: also what is hidden; for owners who are trusted only."""
        common = ("/dev", *_KERNEL)
        shown = (*_KERNEL, *self.caches)
        if not self.trusts(owner):
            hidden = (*common, *self.hidden, *(real(*_SECRETS_OF_ROOT) if os.geteuid() == 0 else ()))
            programs = (*real(*_PROGRAMS, *_NAME_SERVICE), *self.programs)
            return Sandbox((*programs, *self.read), self.write, hidden, shown, _DEVICES)
        hidden = common if whole else (*common, *self.hidden)
        return Sandbox((), ("/",), hidden, shown, _DEVICES, names=True)

    def task(self, owner: str, *, whole: bool = False) -> Sandbox:
        """Of a task of ours that opens what a caller names: also the checkpoints and savepoints of that owner."""
        places = self._places(owner, self.checkpoints, self.savepoints)
        return _with(self.files(owner, whole=whole), own=places)

    def foreign(self, owner: str, *shown: Path) -> Sandbox | None:
        """For lines of the node that open what a caller of this owner names, and read `shown`; None: nothing to keep from them,
        as they could open every file by hand."""
        return None if self.trusts(owner) else _with(self.task(owner), shown=real(*shown))

    def engine(self, owner: str | None, home: Path, work: Path, *, whole: bool = False) -> Sandbox:
        """`work` is what the engine may write to in its `home`."""
        own = (*real(work), *self._places(owner, self.checkpoints))
        return _with(self.files(owner, whole=whole), shown=real(home), own=own)

    def driver(self, owner: str, *, shown: tuple[Path, ...], own: tuple[Path, ...], whole: bool = False) -> Sandbox:
        """Of a process that runs code of users: a program, or the JVM of one. `shown` and `own` are of its attempt."""
        read = (*real(*shown), *self._places(owner, self.savepoints))
        written = (*real(*own), *self._places(owner, self.checkpoints))
        return _with(self.files(owner, whole=whole), shown=read, own=written)

    def private_temporary(self, owner: str | None) -> bool:
        """Whether the usual directory for temporary files is not for this owner."""
        on_the_way = f"{self.temporary}/"
        return not self.trusts(owner) or any(h.startswith(on_the_way) or h == self.temporary for h in self.hidden)

    def _places(self, owner: str | None, *roots: str | None) -> tuple[str, ...]:
        """The directories of an owner, made now: what is not there cannot be granted."""
        there = [Path(below(root, owner or "")) for root in roots if root is not None]
        for place in there:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return tuple(str(p) for p in there)


def _with(sandbox: Sandbox, *, shown: tuple[str, ...] = (), own: tuple[str, ...] = ()) -> Sandbox:
    return sandbox._replace(shown=(*sandbox.shown, *shown), own=(*sandbox.own, *own))
