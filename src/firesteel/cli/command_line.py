"""Options and arguments that commands about jobs share: which cluster they talk to, and how a job is named."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from firesteel.cli.connection import cluster_options, is_awake, open_connection, retrieved
from firesteel.cli.custom_command_lines import ClusterOptions, effective
from firesteel.cli.options import Given, configured, json_option, split_definitions
from firesteel.config import load_configuration
from firesteel.errors import FiresteelError

__all__ = ["CheckedCommand", "attached", "cluster_options", "complete_jobs", "effective", "job_argument", "json_option"]

_MOST_COMPLETIONS = 100
_COMPLETION_SECONDS = "1 s"


class CheckedCommand(click.Command):
    """A command whose whole command line goes through `check` before a cluster is looked for, let alone woken up."""

    def __init__(self, *args: Any, check: Callable[[click.Context], None], **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._check = check

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(context, args)
        if not context.resilient_parsing:
            self._check(context)
        return rest


def attached(function: Callable[..., Any]) -> Callable[..., Any]:
    """Connect a command as `connected` does, but to a cluster that is awake whatever its settings are.

    The settings that a cluster was started with matter to commands that run something, not to those that only look.
    """

    @cluster_options
    @configured
    @functools.wraps(function)
    def wrapper(given: Given, line: ClusterOptions, **rest: Any) -> Any:
        with open_connection(effective(given, line), as_it_is=True) as cluster:
            return function(cluster=cluster, **rest)

    return wrapper


def complete_jobs(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The jobs of the cluster in question, if it is awake. Any error means that nothing is proposed."""
    try:
        options, variables = split_definitions(context.params.get("definitions") or ())
        options["client.timeout"] = _COMPLETION_SECONDS
        file: Path | None = context.params.get("config_file")
        given = Given(load_configuration(file=file, overrides=options), options, variables, file)
        given = effective(given, ClusterOptions(context.params.get("cluster_target"), context.params.get("address")))
        if not is_awake(given):
            return []
        with retrieved(given) as client:
            jobs = [j for j in client.jobs() if j.job_id.startswith(incomplete.lower())]
    except (FiresteelError, click.ClickException, OSError):
        return []
    newest = sorted(jobs, key=lambda j: j.started_at, reverse=True)[:_MOST_COMPLETIONS]
    return [CompletionItem(j.job_id, help=f"{j.name} {j.status.value}") for j in newest]


job_argument = click.argument("job", shell_complete=complete_jobs)
