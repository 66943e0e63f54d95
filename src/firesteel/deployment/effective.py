"""The effective configuration of a command: file < environment < -D."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Self

from firesteel.config import Configuration, load_configuration

TARGET = "execution.target"
ADDRESSES = "client.addresses"


class EffectiveConfiguration:
    """A configuration, and what a process of a cluster needs in order to have the same one."""

    def __init__(
        self,
        configuration: Configuration,
        overrides: Mapping[str, str] = MappingProxyType({}),
        config_file: Path | None = None,
    ) -> None:
        self.configuration = configuration
        self.overrides = overrides
        """What the command line sets."""
        self.config_file = config_file
        """The file that the command line names; None: the one that is found by itself."""

    def with_overrides(self, overrides: Mapping[str, str]) -> Self:
        """The same with `overrides` in place of its own. Raises InvalidConfigError."""
        changed = load_configuration(file=self.config_file, overrides=overrides)
        return self._replaced(changed, overrides)

    def with_target(self, target: str, addresses: tuple[str, ...] | None = None) -> Self:
        """The same for another target, and other nodes if `addresses` are given. Nothing is read again."""
        changes = {TARGET: target} | ({} if addresses is None else {ADDRESSES: " ".join(addresses)})
        before = self.configuration
        configuration = replace(
            before,
            execution=replace(before.execution, target=target),
            client=before.client if addresses is None else replace(before.client, addresses=addresses),
            origins=MappingProxyType({**before.origins, **dict.fromkeys(changes, "-D")}),
        )
        return self._replaced(configuration, {**self.overrides, **changes})

    def _replaced(self, configuration: Configuration, overrides: Mapping[str, str]) -> Self:
        return type(self)(configuration, overrides, self.config_file)
