"""Command groups that import a command when it is called: most need little of Firesteel, and none needs all of it."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

Table = Mapping[str, tuple[str, str, str]]
"""For each command: its module, its name there, and its short help."""


class LazyGroup(click.Group):
    def __init__(self, *args: Any, table: Table, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._table = table

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in self._table:
            return None
        module, attribute, _ = self._table[name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self._table, n=1) if args else []
            if not near or not error.message.startswith("No such command"):
                raise
            raise click.UsageError(f"No such command '{args[0]}'. Did you mean '{near[0]}'?", context) from None

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in self._table.items()])

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name, help=text) for name, (_, _, text) in self._table.items()]
        return [n for n in names if n.value.startswith(incomplete)] + click.Command.shell_complete(
            self, context, incomplete
        )
