"""The files of a checkpoint that a query needs to continue after a given batch. Pure: names in, names out.

What Spark writes (seen with 4.3): `metadata`; a number per batch in `offsets/` and `commits/`; logs of sources, named
by number, in `sources/`; and per partition of each stateful operator, in `state/<operator>/<partition>[/<store>]/`,
the state after batch N as version N+1: `V.snapshot` and `V.delta` of the HDFS-backed store, `V.zip` and `V.changelog`
of RocksDB. A zip lists the files in `SSTs/` that belong to it. Names with a UUID (`V_<uuid>.zip`) are those of
checkpoint format 2, which keeps the files of failed tries apart. Nothing is ever changed in place, and names that
begin with a dot are temporaries and checksums.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from firesteel.savepoint.manifest import NONE

_VERSION = re.compile(r"(\d+)(_[0-9a-fA-F-]{36})?\.(delta|snapshot|zip|changelog)")
_LOG_ENTRY = re.compile(r"(\d+)(\.compact)?")
_FULL = ("snapshot", "zip")
_KEPT_BATCHES = 2
"""Spark reads the last batch and the one before it. It removes older ones, perhaps while we copy."""


class TornError(Exception):
    """The files do not fit together, because something was removed meanwhile: list them again."""


@dataclass(slots=True)
class Chosen:
    required: list[str] = field(default_factory=list)
    optional: list[str] = field(default_factory=list)
    """Files that are copied if they still exist."""
    archives: dict[str, bool] = field(default_factory=dict)
    """The RocksDB archives among them, whose members are needed too; and whether they are required."""


def newest(names: Iterable[str]) -> int:
    """The last batch of a log, of which these are the file names; NONE when it is empty."""
    return max((int(n) for n in names if n.isdecimal()), default=NONE)


def choose(files: Iterable[str], batch: int, *, begun: bool = False) -> Chosen:
    """The files that a query needs to continue after `batch`, of a checkpoint with these files.

    `begun` includes what the next batch has planned to read, if it had begun. It then reads exactly that, so a sink
    that knows a batch by its number gets the same rows for it again.

    Raises:
        TornError: something of it is missing.
    """
    chosen = Chosen()
    there = [f for f in files if not any(part.startswith(".") for part in f.split("/"))]
    if "metadata" in there:
        chosen.required.append("metadata")
    for log in ("offsets", "commits"):
        chosen.required += _batches(log, there, batch)
    if begun and f"offsets/{batch + 1}" in there:
        chosen.required.append(f"offsets/{batch + 1}")
    sources = [f for f in there if f.startswith("sources/")]
    check_logs(sources)
    chosen.required += sources
    if batch != NONE:
        if "metadata" not in there:
            raise TornError("metadata")
        _state([f for f in there if f.startswith("state/")], batch, chosen)
    return chosen


def _batches(log: str, there: Iterable[str], batch: int) -> list[str]:
    names = (f.removeprefix(f"{log}/") for f in there if f.startswith(f"{log}/"))
    numbers = sorted(int(n) for n in names if n.isdecimal() and int(n) <= batch)
    if batch != NONE and batch not in numbers:
        raise TornError(f"{log}/{batch}")
    return [f"{log}/{n}" for n in numbers[-_KEPT_BATCHES:]]


# -- logs -----------------------------------------------------------------------------------------------------------


def check_logs(files: Iterable[str]) -> None:
    """Raise TornError when a log that is compacted from time to time lacks an entry after its last compaction."""
    logs: dict[str, list[str]] = defaultdict(list)
    for file in files:
        directory, _, name = file.rpartition("/")
        logs[directory].append(name)
    for directory, names in logs.items():
        entries = [m for n in names if (m := _LOG_ENTRY.fullmatch(n))]
        if len(entries) < len(names):
            continue  # a log of another kind
        numbers = {int(m[1]) for m in entries}
        compacted = [int(m[1]) for m in entries if m[2]]
        missing = set(range(max(compacted, default=min(numbers)), max(numbers))) - numbers
        if missing:
            raise TornError(f"{directory}/{min(missing)}")


# -- state ----------------------------------------------------------------------------------------------------------


def _state(files: list[str], batch: int, chosen: Chosen) -> None:
    stores: dict[str, list[re.Match[str]]] = defaultdict(list)
    for file in files:
        directory, _, name = file.rpartition("/")
        parts = directory.split("/")
        version = _VERSION.fullmatch(name.removesuffix(".crc"))
        if parts[-1] in ("SSTs", "logs"):
            continue  # by the archives that name them
        if version and not any(p.startswith("_") for p in parts):
            if not name.endswith(".crc"):
                stores[directory].append(version)
        elif parts[-2:] == ["_metadata", "v2"] and name.isdecimal() and int(name) > batch:
            continue
        else:
            chosen.required.append(file)
    there = set(files)
    for directory, versions in stores.items():
        _store(directory, versions, batch + 1, there, chosen)


def _store(directory: str, versions: list[re.Match[str]], target: int, there: set[str], chosen: Chosen) -> None:
    """The newest full copy of the state that is not newer than `target`, and the changes from there."""
    base = max((int(v[1]) for v in versions if v[3] in _FULL and int(v[1]) <= target), default=0)
    changes = {int(v[1]) for v in versions if v[3] not in _FULL}
    missing = set(range(base + 1, target + 1)) - changes
    if missing:
        raise TornError(f"{directory}: version {min(missing)}")
    for v in versions:
        file, number = f"{directory}/{v[0]}", int(v[1])
        # With ids in the names, the newest copy may be of a try that failed, and the one that counts an older one.
        if number > target or (number < base and not v[2]):
            continue
        required = number >= base
        found = [f for f in (file, f"{file}.crc") if f in there]
        (chosen.required if required else chosen.optional).extend(found)
        if v[3] == "zip":
            chosen.archives[file] = required


def members(archive: bytes, path: str, there: Collection[str]) -> list[str]:
    """The files that a RocksDB archive at `path` refers to.

    Raises:
        TornError: one of them is missing.
    """
    directory = path.rpartition("/")[0]
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            text = opened.read("metadata").decode()
        data = json.loads(text[text.index("{") :])
        named = [f"{directory}/SSTs/{f['dfsSstFileName']}" for f in data.get("sstFiles", [])]
        named += [f"{directory}/logs/{f['dfsLogFileName']}" for f in data.get("logFiles", [])]
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError):
        # Written in a way that we do not know: then all that might belong to it does.
        return [f for f in there if f.startswith((f"{directory}/SSTs/", f"{directory}/logs/")) and "/." not in f]
    for file in named:
        if file not in there:
            raise TornError(file)
    return named
