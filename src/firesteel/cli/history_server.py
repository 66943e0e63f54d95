"""`firesteel history-server` serves archived jobs."""

from __future__ import annotations

import click

from firesteel.cli.nodes import become
from firesteel.cli.options import Given, configured


@click.command()
@configured
def history_server(given: Given) -> int:
    """Serve the API and the dashboard for archived jobs of one or many clusters, until a signal ends it.

    It reads `historyserver.archive.fs.dir`, which names the directories that clusters archive their ended jobs to
    (their `jobmanager.archive.fs.dir`), and keeps an index of them below `data.dir`. It needs no cluster, and runs no job.
    """
    become("firesteel.history", given)
