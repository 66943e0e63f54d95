"""Ids that the contract requires and Firesteel does not generate."""

from __future__ import annotations

import hashlib


def vertex_id(name: str) -> str:
    """32 hex digits for a vertex, the same in every job and every run that has a vertex of this name."""
    return hashlib.sha256(f"vertex/{name}".encode()).hexdigest()[:32]
