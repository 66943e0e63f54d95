"""From a Document to a valid graph: variables, model, completion, validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from firesteel.errors import InvalidPipelineError, Problem

from .checks.context import Context
from .complete import complete
from .document import Document, Lines, Locator, in_line_order
from .model import JobGraph
from .parse import parse
from .validate import check_all
from .variables import substitute


@dataclass(frozen=True)
class Assembled:
    graph: JobGraph
    problems: tuple[Problem, ...]
    """Uncertain ones only."""
    variables: Mapping[str, str]


def assemble(document: Document, *, variables: Mapping[str, str], base_dir: Path | None) -> Assembled:
    """The graph that `document` describes, or InvalidPipelineError with everything that is wrong."""
    substituted = substitute(document, variables)
    document = substituted.document
    problems = list(document.problems)
    if document.data is None and problems:
        raise InvalidPipelineError(problems)
    parsed = parse(document.data, Locator(document.file, document.lines))
    seen = {(p.vertex, p.field) for p in problems if p.field}
    if document.lost:
        seen.add((None, "vertices"))  # they are not missing, they were not understood
    if parsed.graph is None:
        graph, found = None, []
    else:
        graph = complete(parsed.graph, base_dir)
        # Without the artifacts that were meant, functions cannot be looked up.
        unknown_artifacts = any((p.field or "").startswith("settings.artifacts") for p in parsed.problems)
        context = Context(
            graph,
            parsed.at,
            base_dir=None if unknown_artifacts else base_dir,
            partial=parsed.partial or bool(document.lost),
            broken=_names(document.data) | {name.lower() for name in document.lost if name},
        )
        found = check_all(context)
    # A field that cannot be read (an unknown variable, say) makes further complaints about it pointless.
    problems += [p for p in (*parsed.problems, *found) if (p.vertex, p.field) not in seen]
    problems = in_line_order(problems)
    if graph is None or any(p.certain for p in problems):
        raise InvalidPipelineError(problems)
    return Assembled(graph, tuple(problems), substituted.variables)


def parse_graph(data: object, *, file: str | None = None, lines: Lines | None = None) -> JobGraph:
    """The graph in a JSON value, with the inputs of its queries filled in.

    Not validated beyond its shape: see `validate`.

    Raises:
        InvalidPipelineError: with every field that is missing, unknown or of the wrong type.
    """
    parsed = parse(data, Locator(file, lines or {}))
    if parsed.graph is None or parsed.problems:
        raise InvalidPipelineError(parsed.problems)
    return complete(parsed.graph, None)


def _names(data: object) -> frozenset[str]:
    match data:
        case {"vertices": list(vertices)}:
            return frozenset(str(v["name"]).lower() for v in vertices if isinstance(v, dict) and "name" in v)
    return frozenset()
