"""Checks whether a zip or a wheel is safe to unpack on machines that are not the sender's (S24, S5, S6).

Nothing that an archive claims and that can be checked is trusted: each member is unpacked here, to nowhere, and
counted. Its headers may lie, and not every program that unpacks it stops where they say.
"""

from __future__ import annotations

import re
import stat
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from firesteel.blob.zip_directory import DEFLATED, ENCRYPTED, STORED, BadZipError, Member, members
from firesteel.errors import InvalidRequestError, Problem

MAX_NESTING = 2
"""A zip in a zip in a zip, and no further."""
MAX_DEPTH = 64
"""Directories in directories."""
MAX_NAME = 1024
_SHOWN = 20
_READ = 1 << 16
_SMALL = 1 << 20
"""An archive that unpacks to less than this is not a bomb, whatever its ratio."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True, slots=True)
class ZipContents:
    """What an archive has in it, with the archives inside."""

    entries: int
    total: int
    """Bytes, unpacked."""


class _Bomb(Exception):  # noqa: N818 - ends the check from any depth; never leaves this module
    """Nothing more is to be looked at."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


@dataclass(slots=True)
class _Budget:
    """What all archives, one inside the other, may come to together."""

    max_entries: int
    max_total: int
    max_ratio: float
    entries: int = 0
    total: int = 0

    def member(self) -> None:
        self.entries += 1
        if self.entries > self.max_entries:
            raise _Bomb(
                Problem(f"the archive has more than {self.max_entries:,} members", "split it, or leave some out")
            )

    def unpacked(self, member: Member, before: int, count: int) -> None:
        """`count` more bytes of a member that has given `before`."""
        self.total += count
        if self.total > self.max_total:
            raise _Bomb(Problem(f"the archive unpacks to more than {self.max_total:,} bytes", "split it"))
        size = before + count
        if size > _SMALL and size > self.max_ratio * max(1, member.packed):
            raise _Bomb(
                Problem(
                    f"the member {_shown(member.name)} unpacks to more than {self.max_ratio:g} times its packed size",
                    "leave it out, or upload it by itself",
                )
            )


def check_zip(path: Path, *, max_entries: int, max_total: int, max_ratio: float) -> ZipContents:
    """Read an archive to its end and say what is in it. Blocks, so call it in a thread; needs little memory for any
    input.

    Refused are: files that are not zip files, or ambiguous ones; more members, more bytes or a higher ratio than allowed,
    counted by unpacking, over all archives in the archive; archives nested deeper than any use has; members with absolute
    names, `..`, backslashes or control characters, two of one name, links and other things that are neither file nor
    directory, members that share bytes, and those that are encrypted or use an uncommon compression method.

    Raises:
        InvalidRequestError: Names the members and what is wrong with them.
    """
    budget = _Budget(max_entries, max_total, max_ratio)
    problems: list[Problem] = []
    try:
        with path.open("rb") as file:
            _check(file, budget, problems, nesting=0)
    except _Bomb as bomb:
        problems.append(bomb.problem)
    except BadZipError as error:
        problems.append(Problem(f"the archive {error}", "create it again with a common zip program, and upload that"))
    if problems:
        raise InvalidRequestError(problems[:_SHOWN])
    return ZipContents(budget.entries, budget.total)


def _check(file: BinaryIO, budget: _Budget, problems: list[Problem], nesting: int) -> None:
    found: list[Member] = []
    names: set[str] = set()
    for member in members(file):
        budget.member()
        found.append(member)
        if nesting == 0 and len(problems) < _SHOWN:  # what is inside an inner archive is not unpacked by us
            problems += _problems(member, names)
    _refuse_overlaps(found)
    for member in found:
        _unpack(file, member, budget, nesting)


def _problems(member: Member, names: set[str]) -> Iterator[Problem]:
    shown = _shown(member.name)
    if reason := _bad_name(member.name):
        yield Problem(f"the member {shown} {reason}", "pack files under plain relative names, such as pkg/module.py")
    if member.name in names and not member.name.endswith("/"):
        yield Problem(f"the archive has two members {shown}", "pack each file once")
    names.add(member.name)
    if stat.S_IFMT(member.mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        kind = "a symbolic link" if stat.S_ISLNK(member.mode) else "neither a file nor a directory"
        yield Problem(f"the member {shown} is {kind}", "pack the file itself")


def _bad_name(name: str) -> str:
    if not name or len(name) > MAX_NAME:
        return "has no name" if not name else f"has a name of more than {MAX_NAME} characters"
    if _CONTROL.search(name) or "\\" in name:
        return "has a backslash or a control character in its name"
    if name.startswith("/") or _DRIVE.match(name):
        return "has an absolute name"
    parts = name.removesuffix("/").split("/")
    if len(parts) > MAX_DEPTH:
        return f"lies more than {MAX_DEPTH} directories deep"
    if any(part in ("", ".", "..") for part in parts):
        return "has a name with '..', '.' or an empty part between slashes"
    return ""


def _refuse_overlaps(found: list[Member]) -> None:
    """Members that share bytes are how a small archive claims to be a large one."""
    end = 0
    for member in sorted(found, key=lambda m: m.header):
        if member.header < end:
            raise BadZipError(f"has overlapping members ({_shown(member.name)})")
        end = member.start + member.packed


def _unpack(file: BinaryIO, member: Member, budget: _Budget, nesting: int) -> None:
    pieces = _counted(file, member, budget)
    first = next(pieces, b"")
    if first[:4] not in (b"PK\x03\x04", b"PK\x05\x06"):
        for _ in pieces:
            pass
        return
    if nesting == MAX_NESTING:
        raise _Bomb(
            Problem(
                f"the archive nests archives too deeply, at {_shown(member.name)}", "pack it without nested archives"
            )
        )
    with tempfile.TemporaryFile() as inner:
        inner.write(first)
        for piece in pieces:
            inner.write(piece)
        try:
            _check(inner, budget, [], nesting + 1)
        except BadZipError:
            pass  # only begins like one: no program unpacks it further


def _counted(file: BinaryIO, member: Member, budget: _Budget) -> Iterator[bytes]:
    """The bytes of a member, counted before they are given on, and as many as it says."""
    size = crc = 0
    for piece in _inflated(file, member):
        budget.unpacked(member, size, len(piece))
        size += len(piece)
        crc = zlib.crc32(piece, crc)
        yield piece
    if size != member.size:
        raise BadZipError(f"states a wrong size for its member {_shown(member.name)}")
    if crc != member.crc:
        raise BadZipError(f"is damaged in its member {_shown(member.name)}: the checksum does not match")


def _inflated(file: BinaryIO, member: Member) -> Iterator[bytes]:
    if member.flags & ENCRYPTED:
        raise BadZipError(f"has an encrypted member ({_shown(member.name)})")
    if member.method not in (STORED, DEFLATED):
        raise BadZipError(f"compresses {_shown(member.name)} with a method that not every program reads; use 'deflate'")
    inflater = zlib.decompressobj(-zlib.MAX_WBITS) if member.method == DEFLATED else None
    at, end = member.start, member.start + member.packed
    while at < end:
        file.seek(at)  # anew each time: the consumer may read elsewhere in the file
        raw = file.read(min(_READ, end - at))
        at += len(raw)
        if not raw:
            raise BadZipError("is not a zip, or was cut off")
        if inflater is None:
            yield raw
            continue
        try:
            while piece := inflater.decompress(raw, _READ):
                raw = inflater.unconsumed_tail
                yield piece
        except zlib.error as error:
            raise BadZipError(f"is damaged in its member {_shown(member.name)}: {error}") from None
        if inflater.eof and (inflater.unused_data or at < end):
            raise BadZipError(f"has extra data after its member {_shown(member.name)}")
    if inflater is not None and not inflater.eof and member.packed:
        raise BadZipError(f"is damaged in its member {_shown(member.name)}: it was cut off")


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:77]}...")
