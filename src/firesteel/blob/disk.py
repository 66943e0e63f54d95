"""Operations on single files that are safe when another process works in the same directory at the same time.

There is no lock between processes, because one that is paused or hangs would keep it from all others (F4). Instead, a
process that wants a file to stay changes its time and then checks that it still exists (`refresh`); a process that
wants it removed moves it aside first, checks that it is still the file that was judged, and puts it back if not
(`take_away`). In every order of these steps either the file stays, or the process that wanted it to stay knows that it
is gone.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_ASIDE = re.compile(r"(.+)\.[0-9a-f]{16}\.gone")


@dataclass(frozen=True, slots=True)
class Stamp:
    """Bytes that were read once need not be read again while this is the same: every write changes it."""

    inode: int
    size: int
    modified: int
    changed: int

    @staticmethod
    def of(stat: os.stat_result) -> Stamp:
        return Stamp(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def same_age(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether it is the same file, not refreshed or replaced. (A move changes its ctime, so that says nothing here.)"""
    return (one.st_ino, one.st_mtime_ns) == (other.st_ino, other.st_mtime_ns)


def look(path: Path) -> os.stat_result | None:
    """The stamp of a file, without following links; None when there is none."""
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def set_time(target: Path | int, when: float) -> None:
    ns = (int(when * 1e9), int(when * 1e9))
    if isinstance(target, int):
        os.utime(target, ns=ns)
    else:
        os.utime(target, ns=ns, follow_symlinks=False)


def refresh(path: Path, when: float) -> bool:
    """Make a file as young as `when`. True: it exists, and no process that judged it before removes it any more."""
    try:
        set_time(path, when)
    except FileNotFoundError:
        return False
    return look(path) is not None  # it may have been moved aside, and judged, before its time changed


def take_away(path: Path, judged: Callable[[os.stat_result], bool], aside: Path | None = None) -> bool:
    """Remove a file, or move it to `aside`, if it is still the one that was `judged`. False: it stays, or was gone."""
    target = aside or path.with_name(f"{path.name}.{secrets.token_hex(8)}.gone")
    try:
        path.rename(target)
        if not judged(os.lstat(target)):
            # A newer file that was stored here meanwhile is replaced; that is harmless, as its content is the same.
            target.replace(path)
            return False
        if aside is None:
            target.unlink()
    except FileNotFoundError:  # it was gone, or a `put_back` elsewhere saved it from us
        return False
    return True


def put_back(directory: Path, when: float) -> None:
    """Undo what a `take_away` that was killed half-way left in a directory; the next one judges anew."""
    for name in names(directory):
        if (match := _ASIDE.fullmatch(name)) is None:
            continue
        aside, path = directory / name, directory / match[1]
        if look(path) is not None:
            aside.unlink(missing_ok=True)
        elif refresh(aside, when):
            try:
                aside.rename(path)
            except FileNotFoundError:
                pass  # its owner lives, and was faster


def names(directory: Path) -> list[str]:
    """The names in a directory, in order; none when it does not exist."""
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
