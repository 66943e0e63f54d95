"""Names that a cluster accepts for uploaded files."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator

_LONGEST_NAME = 128
_REFUSED = re.compile(r"[^A-Za-z0-9._+-]")


def acceptable_name(name: str) -> str:
    """`name`, changed as little as possible into one that a cluster accepts for an uploaded file. Idempotent."""
    plain = "".join(_plain(name))
    plain = re.sub(r"\.{2,}", ".", plain).rstrip(".").lstrip("._+-")
    stem, suffix = os.path.splitext(plain)
    suffix = suffix[:20]
    return (stem[: _LONGEST_NAME - len(suffix)] + suffix) or "file"


def _plain(name: str) -> Iterator[str]:
    for char in unicodedata.normalize("NFKD", name):
        if not unicodedata.combining(char):
            yield _REFUSED.sub("_", char)
