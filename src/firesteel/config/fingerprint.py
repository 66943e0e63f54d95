"""Fingerprints of settings: two processes can compare their settings without revealing them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from firesteel.config.loader import Configuration, attribute_of
from firesteel.config.sections import OPTIONS

_OF_CLIENTS = ("client.", "local-cluster.", "rest.port", "execution.target")
"""Settings that do not belong to a cluster, only to the way clients talk to it."""


def fingerprint(configuration: Configuration) -> dict[str, str]:
    """A digest for each setting of a cluster that is not its default, and for each Spark setting."""
    found: dict[str, str] = {}
    for option in OPTIONS:
        if option.key.startswith(_OF_CLIENTS) or configuration.origin(option.key) == "default":
            continue
        section = getattr(configuration, attribute_of(option))
        value = getattr(section, option.attribute)
        found[option.key] = _digest("" if value is None else option.kind.show(value))
    return found | {key: _digest(value) for key, value in configuration.spark.items()}


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """The keys whose values differ."""
    return sorted(key for key in {*one, *other} if one.get(key) != other.get(key))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
