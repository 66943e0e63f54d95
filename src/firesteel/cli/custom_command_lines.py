"""Which target a command line means. The ways to say it are tried in order of preference, and the first that applies counts.

`GenericCLI` is `-t` or `execution.target`, from wherever the configuration has it; `DefaultCLI` is for a command line that says
neither: `-m` or `client.addresses` mean a remote cluster, nothing at all means the one of this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import click

from firesteel.cli.options import Given
from firesteel.deployment.local import LOCAL
from firesteel.deployment.standalone import REMOTE


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options of a command line that say which cluster it is about."""

    target: str | None = None
    address: str | None = None
    """`host:port` as Flink's users write it, or URLs."""


class CustomCommandLine(Protocol):
    """One way to say which cluster is meant."""

    def is_active(self, given: Given, line: ClusterOptions) -> bool: ...

    def target(self, given: Given, line: ClusterOptions) -> str: ...


class GenericCLI:
    """`-t TARGET`, or `execution.target` of the configuration."""

    def is_active(self, given: Given, line: ClusterOptions) -> bool:
        return line.target is not None or given.configuration.execution.target is not None

    def target(self, given: Given, line: ClusterOptions) -> str:
        chosen = line.target or given.configuration.execution.target
        assert chosen is not None
        return chosen


class DefaultCLI:
    """Neither: a remote cluster if nodes are named, else the one of this machine."""

    def is_active(self, given: Given, line: ClusterOptions) -> bool:
        return True

    def target(self, given: Given, line: ClusterOptions) -> str:
        return REMOTE if line.address is not None or given.configuration.client.addresses else LOCAL


COMMAND_LINES: Sequence[CustomCommandLine] = (GenericCLI(), DefaultCLI())


def effective(given: Given, line: ClusterOptions | None = None) -> Given:
    """The configuration with the target that the command line means, and its addresses. May be repeated.

    Raises click.UsageError when `-t` and `-m` contradict each other.
    """
    line = line or ClusterOptions()
    active = next(c for c in COMMAND_LINES if c.is_active(given, line))
    target = active.target(given, line)
    addresses: tuple[str, ...] | None = None
    if line.address is not None:
        if target == LOCAL:
            raise click.UsageError("-t local and -m exclude each other")
        addresses = _urls(given, line.address)
    elif target == LOCAL and given.configuration.client.addresses:
        addresses = ()  # those of the configuration are meant for other commands
    elif target == REMOTE and not given.configuration.client.addresses:
        raise click.UsageError("-t remote needs -m ADDRESS")
    if addresses is None and given.configuration.execution.target == target:
        return given
    return given.with_target(target, addresses)


def _urls(given: Given, text: str) -> tuple[str, ...]:
    tls = given.configuration.security.ssl_enabled or given.configuration.client.ca is not None
    words = [w.strip() for w in text.split(",") if w.strip()]
    return tuple(w if "://" in w else f"{'https' if tls else 'http'}://{w}" for w in words)
