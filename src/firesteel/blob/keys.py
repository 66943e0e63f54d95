"""Names of uploaded files: the digest of the content, and the name under which a job sees the file.

The name that a client gives is only ever the last part of a path below a directory that we made, and it is checked before
that (S4-S6): no separator of any system, nothing hidden, nothing that could mean another directory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

BlobKey = NewType("BlobKey", str)
"""The SHA-256 of the content, 64 lower-case hex digits."""

_KEY = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_SCHEME = "blob:"


def is_blob_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def parse_blob_key(text: str) -> BlobKey:
    """The key that `text` spells, or ValueError."""
    if not is_blob_key(text):
        raise ValueError(f"the key of a file is its SHA-256, 64 lower-case hex digits, not {text[:80]!r}")
    return BlobKey(text)


def is_blob_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and ".." not in text and not text.endswith(".")


def parse_blob_name(text: str) -> str:
    """`text` when a job may see a file under it, or ValueError."""
    if not is_blob_name(text):
        raise ValueError(
            f"{text[:160]!r} is not a valid file name: use up to 128 letters, digits and . _ + -, "
            "beginning with a letter or digit, without '..' and without a dot at the end"
        )
    return text


def is_blob_ref(text: str) -> bool:
    """Whether `text` is meant as a reference, which need not be a valid one.

    Callers use this to tell references from paths, and a broken reference must never be taken for a path.
    """
    return text[: len(_SCHEME)].lower() == _SCHEME


@dataclass(frozen=True, slots=True)
class BlobRef:
    """An uploaded file as a job graph names it: `blob:<key>/<name>`. There are none with a key or name that is not one."""

    key: BlobKey
    name: str

    def __post_init__(self) -> None:
        parse_blob_key(self.key)
        parse_blob_name(self.name)

    @classmethod
    def parse(cls, text: str) -> BlobRef:
        """The reference that `text` spells, or ValueError."""
        key, slash, name = text.removeprefix(_SCHEME).partition("/")
        if not text.startswith(_SCHEME) or not slash:
            raise ValueError(f"a reference to an uploaded file is blob:<sha256>/<name>, not {text[:240]!r}")
        return cls(parse_blob_key(key), parse_blob_name(name))

    def __str__(self) -> str:
        return f"{_SCHEME}{self.key}/{self.name}"
