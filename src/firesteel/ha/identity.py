"""The store that the files of a cluster belong to, recorded beside them without secrets.

Only the store of a cluster knows whether its jobs and engines are alive. A command that asked another store, because an
option was left out, would think that everything was left behind. So nodes record their store, and a command that names
another one is refused.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from firesteel.config.high_availability import HaType
from firesteel.config.loader import Configuration
from firesteel.errors import InvalidConfigError, Problem
from firesteel.fs.files import read_json, write_json
from firesteel.ha.services import DATABASE
from firesteel.processes import ProcessIdentity

FILE = "store.json"
"""The name of the file in the cluster's directory."""
_TYPE = "high-availability.type"
_URL = "high-availability.sql.url"
_QUORUM = "high-availability.zookeeper.quorum"
_NODE = "node"
"""The process that wrote the file, for a store that dies with it."""
_OWN_FILE = "cluster.db in data.dir"


def identity_of(configuration: Configuration) -> dict[str, str]:
    """The options that say which store a cluster has, without passwords."""
    kind = configuration.high_availability.type
    said = {_TYPE: str(kind.value if isinstance(kind, HaType) else kind)}
    match kind:
        case HaType.SQL:
            url = configuration.high_availability.sql_url
            own = f"sqlite:{os.path.realpath(configuration.data.dir / DATABASE)}"
            place = _without_secrets(url) if url else own
            said[_URL] = _OWN_FILE if place == own else place  # so that the directory may be moved
        case HaType.ZOOKEEPER:
            servers = (configuration.zookeeper.quorum or "").split(",")
            said[_QUORUM] = ",".join(sorted(s.strip() for s in servers))
            said["high-availability.zookeeper.path.root"] = configuration.zookeeper.path_root
        case HaType.KUBERNETES:
            said["kubernetes.namespace"] = configuration.kubernetes.namespace
    return said


def claim(directory: Path, configuration: Configuration) -> None:
    """Record the store of a node that starts. Raises InvalidConfigError if the files belong to another store."""
    check(directory, configuration)
    said = identity_of(configuration)
    me = ProcessIdentity.of(os.getpid())
    if said[_TYPE] == HaType.NONE.value and me is not None:
        said[_NODE] = f"{me.pid} {me.started}"
    elif _noted(directory) == said:
        return
    file = directory / FILE
    if _noted(directory):
        write_json(file, said)
        return
    mine = directory / f"{FILE}.{secrets.token_hex(4)}"
    write_json(mine, said)
    try:
        os.link(mine, file)  # of two nodes that start at once with different stores, one is refused
    except FileExistsError:
        check(directory, configuration)
    finally:
        mine.unlink()


def check(directory: Path, configuration: Configuration) -> None:
    """Raises InvalidConfigError, naming the difference, when the files in `directory` belong to another store."""
    noted, said = _noted(directory), identity_of(configuration)
    if not noted or _is_gone(noted):
        return
    keys = [k for k in sorted({*noted, *said} - {_NODE}) if not _agree(k, noted.get(k), said.get(k))]
    if not keys:
        return
    problem = Problem(
        f"this data directory belongs to a cluster with {_shown(noted, keys)}, but this command has {_shown(said, keys)}",
        "set the same high-availability options as for its nodes, with -D or in a configuration file, or use another data.dir "
        f"or high-availability.cluster-id; if the cluster has moved to another store for good, remove {directory / FILE}",
        field=keys[0] if _TYPE not in keys else _TYPE,
    )
    raise InvalidConfigError([problem])


def _shown(options: Mapping[str, str], keys: Sequence[str]) -> str:
    return ", ".join(f"{key}={options[key]}" for key in keys if key in options)


def _agree(key: str, one: str | None, other: str | None) -> bool:
    if key == _QUORUM and one and other:
        return not set(one.split(",")).isdisjoint(other.split(","))  # servers come and go
    return one == other


def _noted(directory: Path) -> dict[str, str]:
    """The recorded options; empty when there are none or they cannot be read."""
    try:
        content = read_json(directory / FILE)
    except (ValueError, OSError):
        return {}
    return {str(k): str(v) for k, v in content.items()} if isinstance(content, dict) else {}


def _is_gone(noted: Mapping[str, str]) -> bool:
    """Whether the store was in the memory of a process that has ended."""
    pid, _, started = noted.get(_NODE, "").partition(" ")
    return noted.get(_TYPE) == HaType.NONE.value and not (pid.isdecimal() and ProcessIdentity(int(pid), started).alive)


def _without_secrets(url: str) -> str:
    """The hosts and the database, without user, password and parameters that do not name a location."""
    parts = urlsplit(url)
    scheme = parts.scheme.partition("+")[0]
    if scheme == "sqlite":
        return f"sqlite:{os.path.realpath(parts.path[1:]) if len(parts.path) > 1 else parts.path}"
    hosts = [parts.netloc.rpartition("@")[2], *parse_qs(parts.query).get("host", [])]
    return f"{'postgresql' if scheme.startswith('postgres') else scheme}://{','.join(filter(None, hosts))}{parts.path}"
