"""The sandbox for jobs on this machine, as the configuration asks for it and the kernel allows."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from firesteel.config import Configuration
from firesteel.config.sections import Isolation, SandboxKind
from firesteel.engines.java import find_java, spark_home
from firesteel.errors import EnvironmentNotReadyError, FiresteelError, InvalidRequestError, Problem
from firesteel.hosts import this_user
from firesteel.layout import ClusterLayout
from firesteel.sandbox import landlock
from firesteel.sandbox.policy import SandboxPolicy
from firesteel.sandbox.rules import real
from firesteel.sandbox.users import close_entries, closed_way

logger = logging.getLogger(__name__)


_MADE: dict[int, tuple[Configuration, SandboxPolicy | None]] = {}
"""Policies by the identity of their configuration, kept so that ids are not reused: finding Java for each job is
slow."""
_MOST_MADE = 16


def sandbox_policy(configuration: Configuration) -> SandboxPolicy | None:
    """The sandbox policy of a configuration; None: drivers and engines run without a sandbox.

    Raises EnvironmentNotReadyError when one is asked for that this machine does not have.
    """
    made = _MADE.get(id(configuration))
    if made is None:
        if len(_MADE) >= _MOST_MADE:
            _MADE.clear()
        made = _MADE[id(configuration)] = (configuration, _make(configuration))
    return made[1]


def _make(configuration: Configuration) -> SandboxPolicy | None:
    security = configuration.security
    if security.sandbox is SandboxKind.OFF:
        return None
    users = _users(configuration) if security.sandbox is SandboxKind.USER else None
    if landlock.version() < landlock.LEAST_VERSION and users is None:
        if security.sandbox is SandboxKind.AUTO:
            return None
        raise EnvironmentNotReadyError(
            f"security.sandbox is landlock, but {landlock_is_missing()}; set it to auto or off to run jobs without a "
            "sandbox"
        )
    state = configuration.state
    checkpoints, savepoints = _local(state.checkpoints_dir), _local(state.savepoints_dir)
    caches = real(configuration.data.cache_dir)
    secrets = (
        configuration.data.dir,
        security.tokens_file,
        security.ssl_key,
        security.audit_log,
        checkpoints,
        savepoints,
        _local(configuration.jobmanager.archive_fs_dir),
        _local(configuration.high_availability.storage_dir),
        _sqlite_file(configuration.high_availability.sql_url),
    )
    return SandboxPolicy(
        user=this_user(),
        hidden=(*real(*secrets), *caches),
        programs=_programs(configuration),
        caches=caches,
        read=real(*security.sandbox_read),
        write=real(*security.sandbox_write, *map(_local, security.savepoint_directories)),
        checkpoints=checkpoints,
        savepoints=savepoints,
        users=users,
        node=real(configuration.data.dir, checkpoints, savepoints),
        temporary=os.path.realpath(tempfile.gettempdir()),
    )


def _users(configuration: Configuration) -> tuple[tuple[str, str], ...]:
    """Raises EnvironmentNotReadyError when processes of other users cannot run here."""
    if (missing := users_are_missing(configuration)) is not None:
        raise EnvironmentNotReadyError(f"security.sandbox is user, but {missing}")
    words = [word.partition("=") for word in configuration.security.sandbox_users]
    return tuple((owner, user) for owner, _, user in words)


def users_are_missing(configuration: Configuration) -> str | None:
    """Why owners cannot have users of their own, and what to do; None when they can."""
    if os.geteuid() != 0:
        return (
            "this node does not run as root, and only root can start processes of other users: "
            "start it as root, or choose landlock"
        )
    if configuration.engine.isolation is Isolation.SESSION:
        return "engine.isolation is session, and an engine that all owners share has no user: set it to owner or job"
    bad = [word for word in configuration.security.sandbox_users if not all(word.partition("="))]
    if bad:
        return f"security.sandbox.users has '{bad[0]}', which is not of the form owner=user"
    for path in (*_programs(configuration), *real(configuration.data.dir.parent)):
        if (closed := closed_way(path)) is not None:
            return (
                f"other users cannot enter {closed}, which leads to {path}: put Python, Java, Spark and data.dir in "
                "places that all users can enter, such as /opt and /var/lib"
            )
    return None


def close_files_of_the_node(configuration: Configuration) -> None:
    """Protect the node's files by their own modes where other users can enter its directories."""
    if configuration.security.sandbox is not SandboxKind.USER:
        return
    os.umask(0o077)
    directory = ClusterLayout.of(configuration).home
    for way in (configuration.data.dir, directory.parent, directory):
        if way.is_dir():
            close_entries(str(way))


def check_owner(configuration: Configuration, owner: str) -> None:
    """Raises InvalidRequestError when jobs of `owner` cannot run here."""
    policy = sandbox_policy(configuration)
    try:
        if policy is not None:
            policy.os_user(owner)
    except EnvironmentNotReadyError as error:
        raise InvalidRequestError([Problem(str(error))]) from None


def say_what_holds(configuration: Configuration) -> None:
    """Log which sandbox is in force, when a node starts."""
    security = configuration.security
    found = landlock.version()
    if security.sandbox is SandboxKind.OFF:
        logger.warning("security.sandbox is off: user code can read and write all files of this node and of all owners")
    elif security.sandbox is SandboxKind.USER:
        more = f" and in a sandbox (Landlock, version {found})" if found >= landlock.LEAST_VERSION else ""
        logger.info("drivers and engines run as users of their owners%s", more)
    elif found < landlock.LEAST_VERSION:
        logger.warning(
            "there is no sandbox: %s; user code can read and write all files of this node and of all owners",
            landlock_is_missing(),
        )
    elif found < landlock.SCOPES_VERSION:
        logger.warning(
            "drivers and engines run in a sandbox (Landlock, version %d), but user code can send signals to this node "
            "and ask it for its owner's token: Linux 6.12 or later prevents that",
            found,
        )
    else:
        logger.info("drivers and engines run in a sandbox (Landlock, version %d)", found)


def landlock_is_missing() -> str:
    """Why Landlock cannot be used here."""
    if not sys.platform.startswith("linux"):
        return "Landlock needs Linux, which this is not"
    found = landlock.version()
    if found:
        return f"this kernel has version {found} of Landlock, but {landlock.LEAST_VERSION} is needed (Linux 6.2)"
    return "this kernel does not support Landlock, or does not let this process use it"


def _programs(configuration: Configuration) -> tuple[str, ...]:
    """Python with its packages, Java and Spark. The code that needs a missing one reports it."""
    places: list[str | Path] = [sys.prefix, sys.base_prefix, *_directories(sys.path)]
    python = Path(configuration.driver.python or sys.executable)
    places += [python.parent.parent, Path(os.path.realpath(python)).parent.parent]
    with contextlib.suppress(FiresteelError):
        places.append(find_java(configuration.java.home).home)
    with contextlib.suppress(FiresteelError):
        places.append(spark_home())
    return tuple(p for p in real(*places) if p != "/")


def _directories(path: Iterable[str]) -> list[str]:
    return [p for p in path if p and os.path.exists(p)]


def _local(location: str | None) -> str | None:
    if location is None:
        return None
    for prefix in ("file://", "file:"):
        location = location.removeprefix(prefix)
    return None if "://" in location else os.path.realpath(location)


def _sqlite_file(url: str | None) -> str | None:
    if url is None or not url.startswith("sqlite"):
        return None
    _, separator, path = url.partition(":///")
    return path.partition("?")[0] if separator and path else None
