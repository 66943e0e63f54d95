"""Validation: what must hold in a job graph beyond the types of its fields. It reports all problems at once."""

from __future__ import annotations

from pathlib import Path

from firesteel.errors import Problem

from .checks import functions, relations, settings, sinks, structure
from .checks.context import Context
from .document import Lines, Locator, in_line_order
from .model import JobGraph


def validate(
    graph: JobGraph, *, base_dir: Path | None = None, lines: Lines | None = None, file: str | None = None
) -> list[Problem]:
    """Everything that is wrong with `graph`, in order of lines.

    Args:
        graph: a completed graph (see `complete`), as `load_pipeline` and `parse_graph` return it.
        base_dir: the directory of the pipeline. None: the job's files are elsewhere, so functions and files are not
            looked up.
        lines: line per place in the data the graph was made from, e.g. `("vertices", 2, "query")`.
        file: the name of the pipeline file for the messages.
    """
    return check_all(Context(graph, Locator(file, lines or {}), base_dir=base_dir))


def check_all(context: Context) -> list[Problem]:
    for subject in (structure, relations, sinks, functions, settings):
        subject.check(context)
    structure.check_readers(context)
    return in_line_order(context.problems)
