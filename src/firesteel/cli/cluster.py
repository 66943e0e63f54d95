"""`firesteel cluster`: the cluster of this machine as a whole."""

from __future__ import annotations

import click

from firesteel.cli.lazy import LazyGroup

COMMANDS = {
    "start": ("firesteel.cli.nodes", "start", "Start a node that stays until it is stopped."),
    "stop": ("firesteel.cli.nodes", "stop", "End the node of this machine; jobs go on."),
    "status": (
        "firesteel.cli.cluster_status",
        "status",
        "Tell who leads, what there is to run on, and how many jobs there are.",
    ),
    "handover": ("firesteel.cli.handover", "handover", "Have another node lead."),
    "gc": ("firesteel.cli.gc", "gc", "Find and remove what was left behind."),
    "token": ("firesteel.cli.tokens", "token", "Make, list and revoke tokens."),
}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def cluster() -> None:
    """The cluster of this machine, whose files are in the data directory."""
