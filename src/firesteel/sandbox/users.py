"""Operating-system users of owners: finds the user of an owner, and permanently becomes that user.

This is for nodes that run as root (`security.sandbox: user`). The kernel then keeps owners apart by its usual means:
the user ids of processes and the modes of files. Directories on the path to an owner's files can be entered but not
listed by other users; an owner's own files belong to that user alone.

Imported before a JVM is started: light parts of the standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import pwd
import stat
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

LEAST_UID = 1000
"""User ids below this are system accounts; a job runs as one of them only if an admin says so."""
WAY = 0o711
_OTHERS = 0o077
_CALLS = {  # setgroups, setresgid, setresuid
    "x86_64": (116, 119, 117),
    "aarch64": (159, 149, 147),
}


class OsUser(NamedTuple):
    name: str
    uid: int
    gid: int
    home: str

    @staticmethod
    def from_json(data: Iterable[Any] | None) -> OsUser | None:
        return OsUser(*data) if data else None

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


class NoUserError(Exception):
    """An owner has no user on this machine."""


def user_of(owner: str, mapped: Mapping[str, str], lookup: Callable[[str], pwd.struct_passwd] = pwd.getpwnam) -> OsUser:
    """The user that processes of `owner` run as: the one that is mapped, else the one of the same name.

    Raises NoUserError when there is none, or it is root or (not mapped) a system account.
    """
    name = mapped.get(owner, owner)
    try:
        entry = lookup(name)
    except (KeyError, ValueError):  # the second: a name with a zero byte
        raise NoUserError(
            f"owner {owner} has no user on this machine, but security.sandbox is user: run `useradd --create-home "
            f"{name}`, or name another user with security.sandbox.users: {owner}=USER"
        ) from None
    if entry.pw_uid == 0 or (entry.pw_uid < LEAST_UID and owner not in mapped):
        kind = "root" if entry.pw_uid == 0 else f"a system account (uid {entry.pw_uid})"
        raise NoUserError(
            f"jobs of owner {owner} cannot run as user {name}, which is {kind}: name another user with "
            f"security.sandbox.users: {owner}=USER"
        )
    return OsUser(name, entry.pw_uid, entry.pw_gid, entry.pw_dir)


def become(user: OsUser) -> None:
    """Give up root for good: this process, which must have one thread, is `user` from here on."""
    os.initgroups(user.name, user.gid)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    os.environ.update(user.environment)


def become_with_this_thread(user: OsUser) -> None:
    """As `become`, for the calling thread only: Linux has users by thread, and only the C library by process."""
    calls = _CALLS.get(platform.machine())
    if calls is None:
        raise OSError(errno.ENOSYS, f"threads cannot change their user on {platform.machine()}")
    setgroups, setresgid, setresuid = calls
    groups = os.getgrouplist(user.name, user.gid)
    _call(setgroups, len(groups), (ctypes.c_uint32 * len(groups))(*groups))
    _call(setresgid, user.gid, user.gid, user.gid)
    _call(setresuid, user.uid, user.uid, user.uid)


def give(path: str, user: OsUser) -> None:
    """Make a directory or file that the node has made the user's alone."""
    os.chown(path, user.uid, user.gid, follow_symlinks=False)
    mode = os.lstat(path).st_mode
    if not stat.S_ISLNK(mode):
        os.chmod(path, 0o700 if stat.S_ISDIR(mode) else 0o600)


def lend(directory: str, user: OsUser) -> None:
    """Let only the user read what is in a directory that the node has made. The contents still belong to the node."""
    for above, _, files in os.walk(directory):
        if above != directory:
            os.chmod(above, 0o755)  # noqa: S103  # below a directory that is the user's alone
        for name in files:
            path = os.path.join(above, name)
            if not os.path.islink(path):
                os.chmod(path, 0o444)
    give(directory, user)


def open_ways(roots: Iterable[str], path: str) -> None:
    """Let others enter, and not list, the directories from one of `roots` down to the one that has `path` in it."""
    for root in roots:
        if not path.startswith(f"{root.rstrip('/')}/"):
            continue
        way = os.path.dirname(path)
        while len(way) >= len(root):
            enterable(way)
            way = os.path.dirname(way)


def enterable(directory: str) -> None:
    """Let others enter a directory. What it contains was protected by the directory, and is now protected by its own
    mode."""
    mode = stat.S_IMODE(os.lstat(directory).st_mode)
    if mode == WAY:
        return
    close_entries(directory)
    os.chmod(directory, WAY)


def close_entries(directory: str) -> None:
    with os.scandir(directory) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            mode = stat.S_IMODE(status.st_mode)
            is_way = entry.is_dir(follow_symlinks=False) and mode == WAY
            if mode & _OTHERS and not entry.is_symlink() and not is_way and status.st_uid == os.geteuid():
                os.chmod(entry.path, mode & ~_OTHERS)


def closed_way(path: str) -> str | None:
    """The first directory on the way to `path`, or itself, that other users cannot enter."""
    parts = [path]
    while parts[-1] != "/":
        parts.append(os.path.dirname(parts[-1]))
    for directory in reversed(parts):
        try:
            mode = os.stat(directory).st_mode
        except OSError:
            return None  # reported by the code that needs it
        if stat.S_ISDIR(mode) and not mode & stat.S_IXOTH:
            return directory
    return None


def _call(number: int, *args: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *args) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
