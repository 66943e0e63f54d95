"""A directory for each owner: what an engine may write to must be known before its jobs are."""

from __future__ import annotations

import hashlib
import re

_OTHER = re.compile(r"[^a-z0-9]+")
_NAME = re.compile(r"[a-z0-9-]{1,24}-[0-9a-f]{12}")


def owner_directory(owner: str) -> str:
    """The name of the owner's directory: a readable part, and a digest that tells similar names apart."""
    readable = _OTHER.sub("-", owner.lower())[:24].strip("-")
    return f"{readable or 'owner'}-{hashlib.sha256(owner.encode()).hexdigest()[:12]}"


def is_owner_directory(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def below(root: str, owner: str) -> str:
    """The owner's directory in `root`, a path or a URL; without an owner it is `root` itself."""
    return f"{root.rstrip('/')}/{owner_directory(owner)}" if owner else root.rstrip("/")


def job_directory(root: str, owner: str, job_id: str) -> str:
    return f"{below(root, owner)}/{job_id}"
