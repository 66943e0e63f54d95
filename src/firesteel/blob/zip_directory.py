"""Reads the directory of a zip strictly, one member at a time.

Python's own reader loads the whole directory of an archive into memory before its members can be counted, and tolerates
many errors. Here a reader can stop when it has seen enough, and what can be understood in two ways is refused.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

STORED, DEFLATED = 0, 8
ENCRYPTED, UTF8 = 0x1, 0x800
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_MEMBER = struct.Struct("<4s4B4HL2L5H2L")
_LOCAL = struct.Struct("<4s2B4HL2L2H")
_UNICODE_PATH = 0x7075
_ALL_ONES = 0xFFFFFFFF


class BadZipError(Exception):
    """Not a zip, or one that can be understood in more than one way. The message is the rest of a sentence."""


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    flags: int
    method: int
    packed: int
    """Bytes in the archive."""
    size: int
    """Bytes unpacked, as the archive says."""
    crc: int
    mode: int
    """Of the file on the system where the archive was made; 0 when that had none."""
    start: int
    """Where its data begin."""
    header: int
    """Where its local header begins."""


def members(file: BinaryIO) -> Iterator[Member]:
    """The members of an archive, as its directory lists them. Raises BadZipError where one is not in order."""
    count, size, offset, shift = _directory(file)
    read = 0
    for _ in range(count):
        file.seek(offset + read)
        head = _take(file, _MEMBER, b"PK\x01\x02", "an entry of its directory")
        flags, method, packed, unpacked = head[5], head[6], head[10], head[11]
        raw = _exactly(file, head[12])
        extra = _exactly(file, head[13])
        read += _MEMBER.size + head[12] + head[13] + head[14]
        if read > size:
            raise BadZipError("has a directory that is longer than it says")
        name = _name(raw, flags, extra)
        if _ALL_ONES in (packed, unpacked, head[18]):
            raise BadZipError(f"has a member of 4 GiB or more ({name[:80]!r})")
        header = head[18] + shift
        start = _local(file, header, raw, flags, method)
        if start + packed > offset:
            raise BadZipError(f"ends before its member {name[:80]!r} does")
        yield Member(name, flags, method, packed, unpacked, head[9], head[17] >> 16, start, header)
    if read != size:
        raise BadZipError("has a directory that is shorter than it says")


def _directory(file: BinaryIO) -> tuple[int, int, int, int]:
    """How many members, and where their directory lies: its size, its place, and by how much all places are off."""
    length = file.seek(0, os.SEEK_END)
    begin = max(0, length - _END.size - 0xFFFF)
    file.seek(begin)
    tail = file.read(length - begin)
    # As Python looks for it: at the very end, or else the last one that there is.
    at = len(tail) - _END.size
    if at < 0 or not (tail[at : at + 4] == b"PK\x05\x06" and tail.endswith(b"\0\0")):
        at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise BadZipError("is not a zip, or was cut off")
    _, disk, first_disk, here, count, size, offset, comment = _END.unpack_from(tail, at)
    if at + _END.size + comment != len(tail):
        raise BadZipError("has extra data after its end")
    end = begin + at
    file.seek(max(0, end - _LOCATOR.size))
    if file.read(4) == b"PK\x06\x07":
        end -= _LOCATOR.size + _END64.size
        if end < 0:
            raise BadZipError("is not a zip, or was cut off")
        file.seek(end)
        _, _, _, _, disk, first_disk, here, count, size, offset = _take(file, _END64, b"PK\x06\x06", "its zip64 end")
    if disk or first_disk or here != count:
        raise BadZipError("is part of an archive that spans several files")
    place = end - size
    if place < 0 or place < offset:
        raise BadZipError("states a wrong position for its directory")
    return count, size, place, place - offset


def _local(file: BinaryIO, header: int, name: bytes, flags: int, method: int) -> int:
    """Where the data of a member begin. What stands before them must say the same as the directory."""
    file.seek(header)
    head = _take(file, _LOCAL, b"PK\x03\x04", "the head of a member")
    if (head[3] ^ flags) & (ENCRYPTED | UTF8) or head[4] != method or _exactly(file, head[10]) != name:
        raise BadZipError("has a member whose name in the directory differs from the one in its header")
    return header + _LOCAL.size + head[10] + head[11]


def _name(raw: bytes, flags: int, extra: bytes) -> str:
    try:
        name = raw.decode("utf-8" if flags & UTF8 else "cp437")
    except UnicodeDecodeError:
        raise BadZipError("has a member whose name is not UTF-8") from None
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        # Some programs take this name and others the one above.
        if kind == _UNICODE_PATH and extra[9 : 4 + length] != name.encode():
            raise BadZipError("has a member with two names")
        extra = extra[4 + length :]
    return name


def _take(file: BinaryIO, what: struct.Struct, signature: bytes, where: str) -> tuple[int, ...]:
    raw = file.read(what.size)
    if len(raw) < what.size or raw[:4] != signature:
        raise BadZipError(f"is damaged: {where} is missing")
    return what.unpack(raw)


def _exactly(file: BinaryIO, count: int) -> bytes:
    raw = file.read(count)
    if len(raw) < count:
        raise BadZipError("is not a zip, or was cut off")
    return raw
