"""Landlock, Linux's sandbox for unprivileged processes: a process permanently gives up rights for itself and its
children.

Three system calls, without a library. What a domain may not touch is refused to every user, including root. A process
in a domain can neither trace processes outside (read their memory, environment or open files through /proc) nor, from
version 6 on, send them signals or connect to their abstract sockets.

Not restricted by it: looking at what a file is (stat), changing its mode, owner or times, and connecting to a socket that is a
file. Imported before a JVM is started: light parts of the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import sys
from collections.abc import Iterator

from firesteel.sandbox.rules import LIST, READ, Sandbox, grants
from firesteel.sandbox.users import become

LEAST_VERSION = 3
"""Linux 6.2. Before it, files can be truncated by their path, and before 5.19 not be moved between directories, which every
commit of Spark does."""
SCOPES_VERSION = 6
"""Linux 6.12: signals and abstract sockets."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_SCOPES = 0b11
_NO_NEW_PRIVILEGES = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE = 1 << 14
_EVERYTHING = (1 << 15) - 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_RIGHTS = {LIST: _READ_DIR, READ: _EXECUTE | _READ_FILE | _READ_DIR}

_DROP_FROM_BOUNDING_SET = 24
_KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 10})
"""The capabilities that root keeps: to change owners and modes of files, to override modes, to become other users, low
ports. Without the others it cannot load code into the kernel, read its memory, or that of other processes past
Landlock."""
_LAST_CAPABILITY = 40


class SandboxError(OSError):
    """A sandbox could not be entered; the process must not continue."""


def version() -> int:
    """The version of Landlock that this kernel has; 0 for none."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return max(0, _call(_CREATE_RULESET, None, 0, _ASK_VERSION))
    except OSError:
        return 0


def enter(sandbox: Sandbox) -> None:
    """Restrict this process, which must have one thread, to `sandbox`. Raises SandboxError when that is impossible.

    With a user of its own it becomes that user, and is restricted as well where the kernel can do it.
    """
    with _told():
        if sandbox.user is not None and version() < LEAST_VERSION:
            become(sandbox.user)
            return
        # As root, who can look up every place that is granted.
        ruleset = _ruleset(sandbox, scopes=version() >= SCOPES_VERSION)
        try:
            if sandbox.user is not None:
                become(sandbox.user)
            _restrict(ruleset)
        finally:
            os.close(ruleset)
        _drop_capabilities()


def make_ruleset(sandbox: Sandbox) -> int:
    """A ruleset descriptor for the files of `sandbox`, which any number of threads can use."""
    with _told():
        return _ruleset(sandbox, scopes=False)


def enter_with_this_thread(ruleset: int) -> None:
    """Restrict the calling thread, and those that it starts, to what `make_ruleset` was given. The process itself is
    not restricted, so this confines our own code to its purpose; it does not confine user code."""
    with _told():
        _restrict(ruleset)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SandboxError(error.errno, f"cannot enter the sandbox: {error.strerror}") from error


def _ruleset(sandbox: Sandbox, *, scopes: bool) -> int:
    ruleset = _create_ruleset(scopes=scopes)
    try:
        for path, access in grants(sandbox, entries):
            _grant(ruleset, path, _RIGHTS.get(access, _EVERYTHING))
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def _restrict(ruleset: int) -> None:
    _check(_LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _call(_RESTRICT_SELF, ruleset, 0)


def _create_ruleset(*, scopes: bool) -> int:
    attributes = _Attributes(_EVERYTHING, 0, _SCOPES if scopes else 0)
    size = ctypes.sizeof(_Attributes) if scopes else ctypes.sizeof(ctypes.c_uint64)
    return _call(_CREATE_RULESET, ctypes.byref(attributes), size, 0)


def entries(path: str) -> list[str]:
    """The names in a directory; none when it cannot be read."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def _grant(ruleset: int, path: str, rights: int) -> None:
    """Add a rule for a path; one that does not exist, or is a link to another place, needs none."""
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        mode = os.fstat(fd).st_mode
        allowed = rights if stat.S_ISDIR(mode) else rights & _OF_FILES
        if allowed and not stat.S_ISLNK(mode):
            _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(_Beneath(allowed, fd)), 0)
    finally:
        os.close(fd)


def _drop_capabilities() -> None:
    """Take from root the means to get around Landlock. Other users have none that could be dropped."""
    if os.geteuid() != 0:
        return
    for number in range(_LAST_CAPABILITY + 1):
        if number not in _KEPT_CAPABILITIES:
            _LIBC.prctl(_DROP_FROM_BOUNDING_SET, number, 0, 0, 0)  # EPERM: root of a container that lacks even this
    header = _CapabilityHeader(0x20080522, 0)
    held = (_Capabilities * 2)()
    _check(_LIBC.capget(ctypes.byref(header), held))
    for word, data in enumerate(held):
        kept = sum(1 << (number - 32 * word) for number in _KEPT_CAPABILITIES if number // 32 == word)
        data.effective &= kept
        data.permitted &= kept
        data.inheritable &= kept
    _check(_LIBC.capset(ctypes.byref(header), held))


class _Attributes(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Capabilities(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


def _call(number: int, *args: object) -> int:
    return _check(_LIBC.syscall(ctypes.c_long(number), *args))


def _check(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(result)
