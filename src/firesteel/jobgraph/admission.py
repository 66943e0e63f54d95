"""Admission: the one way from a document to a job graph, for the command, for the REST API and for uploaded programs.

Bounds come first, since later steps recurse; then variables, the caller's own settings, the model, its completion and
every check. A policy holds what differs between the callers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from firesteel.errors import InvalidPipelineError, Problem

from .checks.context import Context
from .complete import complete
from .document import Document, Lines, Locator, in_line_order
from .files import NamedFile, files_of
from .limits import too_much_substitution, unfit, unfit_yaml
from .model import JobGraph
from .parse import Parsed, parse
from .places import place_problems
from .validate import check_all
from .variables import substitute
from .yaml_source import read_yaml

FILE = "pipeline"
"""The name of a text without a file in messages that name a line."""
MAX_PROBLEMS = 100
"""The most problems that one answer lists."""
NOTHING: Mapping[str, Any] = MappingProxyType({})


class AllowedPlaces(StrEnum):
    """Where a graph may point (S9)."""

    ANY = "any"
    """Anywhere: problems show when the job runs."""
    UPLOADS = "uploads"
    """To data at absolute paths and URLs, and to uploaded files."""
    NODE = "node"
    """To the same places and to files of the node; for admins."""


def _refuses_nothing(_: JobGraph) -> Sequence[Problem]:
    return ()


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules that a document has to follow."""

    base_dir: Path | None = None
    """The directory of the pipeline: where relative paths start, and where functions are looked up."""
    bounded: bool = False
    """Whether it comes from a caller who may want to overload us (S25)."""
    places: AllowedPlaces = AllowedPlaces.ANY
    refuses: Callable[[JobGraph], Sequence[Problem]] = _refuses_nothing
    """Problems of a graph that is valid by itself: Spark settings, queries, functions that the caller may not use."""


OWN = Policy()
NETWORK = Policy(bounded=True, places=AllowedPlaces.UPLOADS)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A valid graph, completed, and what follows from it."""

    graph: JobGraph
    problems: tuple[Problem, ...] = ()
    """Suspicions that only Spark can settle. Certain problems have been raised."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The variables of the pipeline and their values."""

    @property
    def canonical(self) -> bytes:
        """The bytes that are stored."""
        return self.graph.canonical

    @property
    def files(self) -> tuple[NamedFile, ...]:
        """The files that travel with the job."""
        return tuple(files_of(self.graph))

    def digest(self, *, priority: int = 0, heartbeat: float | None = None) -> str:
        return digest_of(self.graph, priority=priority, initial_client_heartbeat_timeout=heartbeat)


def digest_of(graph: JobGraph, *, priority: int = 0, initial_client_heartbeat_timeout: float | None = None) -> str:
    """SHA-256 of everything that identifies a submission, so that a retry can be told from another job (I3).

    It is taken of the bytes that are stored.
    """
    terms = json.dumps([priority, initial_client_heartbeat_timeout], separators=(",", ":")).encode("ascii")
    return hashlib.sha256(b"[%b,%b" % (graph.canonical, terms[1:])).hexdigest()


def admit(
    document: Document,
    policy: Policy = OWN,
    *,
    variables: Mapping[str, str] | None = NOTHING,
    on_top: Mapping[str, Any] = NOTHING,
) -> Admitted:
    """The graph that `document` describes.

    Args:
        variables: values of its variables. None: the document is a finished graph, in which `${name}` is plain text.
        on_top: what the caller sets in place of what the document says: fields of the graph, and of its `settings`, where
            `spark` is merged. Taken literally.

    Raises:
        InvalidPipelineError: with everything that is wrong with it.
    """
    if document.data is None and document.problems:
        raise InvalidPipelineError(document.problems)
    values: Mapping[str, str] = {}
    if policy.bounded:
        _refuse(unfit(document))
    if variables is not None:
        if policy.bounded and too_much_substitution(document.data, variables):
            problem = Problem("the variables are too long for the number of their uses", "shorten them")
            raise InvalidPipelineError([problem])
        substituted = substitute(document, variables)
        document, values = substituted.document, substituted.variables
    if on_top:
        document = replace(document, data=_overlaid(document.data, on_top))
    if policy.bounded and (variables is not None or on_top):
        _refuse(unfit(document))
    misplaced = _misplaced(document, policy.places)
    try:
        graph, problems = _assembled(document, policy.base_dir)
    except InvalidPipelineError as error:
        if policy.bounded:
            _refuse([*error.problems, *misplaced])
        raise
    except RecursionError:
        if not policy.bounded:
            raise
        message = "its vertices, or the parts of a query, are nested too deeply"
        raise InvalidPipelineError([Problem(message, "use shorter chains of vertices")]) from None
    _refuse([*misplaced, *policy.refuses(graph)])
    return Admitted(graph, problems, values)


@dataclass(frozen=True, slots=True)
class SubmittedDocument:
    """A document from the network: plain data, or the text of a pipeline in YAML."""

    data: Any = None
    yaml: str | None = None
    variables: Mapping[str, str] | None = None
    """The values of its variables; None for a finished graph, which is literal unless it declares variables itself."""
    on_top: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        on_top = dict(self.on_top)
        return {"data": self.data, "yaml": self.yaml, "variables": self.variables, "on_top": on_top}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SubmittedDocument:
        return SubmittedDocument(data["data"], data["yaml"], data["variables"], data["on_top"])

    def admitted(self, policy: Policy) -> Admitted:
        """See `admit`."""
        if self.yaml is not None:
            return admit(read_bounded(self.yaml), policy, variables=self.variables or {}, on_top=self.on_top)
        variables = self.variables
        if variables is None and isinstance(self.data, dict) and "variables" in self.data:
            variables = {}
        return admit(Document(self.data), policy, variables=variables, on_top=self.on_top)


def read_bounded(text: str) -> Document:
    """The pipeline in a YAML text that may have been written to overload us. Raises InvalidPipelineError."""
    if problem := unfit_yaml(text, FILE):
        raise InvalidPipelineError([problem])
    try:
        return read_yaml(text, file=FILE)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, say
        problem = Problem(f"the pipeline cannot be read: {error}", "correct it", file=FILE)
        raise InvalidPipelineError([problem]) from None


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


def _assembled(document: Document, base_dir: Path | None) -> tuple[JobGraph, tuple[Problem, ...]]:
    """The completed graph and what is doubtful about it; raises InvalidPipelineError with all that is wrong."""
    problems = list(document.problems)
    if document.data is None and problems:
        raise InvalidPipelineError(problems)
    parsed = parse(document.data, Locator(document.file, document.lines))
    seen = {(p.vertex, p.field) for p in problems if p.field}
    if document.lost:
        seen.add((None, "vertices"))  # they are not missing, they were not understood
    graph, found = None, []
    if parsed.graph is not None:
        graph = complete(parsed.graph, base_dir)
        found = check_all(_context(document, graph, parsed, base_dir))
    # A field that cannot be read (an unknown variable, say) makes further complaints about it pointless.
    problems += [p for p in (*parsed.problems, *found) if (p.vertex, p.field) not in seen]
    problems = in_line_order(problems)
    if graph is None or any(p.certain for p in problems):
        raise InvalidPipelineError(problems)
    return graph, tuple(problems)


def _context(document: Document, graph: JobGraph, parsed: Parsed, base_dir: Path | None) -> Context:
    # Without the artifacts that were meant, functions cannot be looked up.
    unknown_artifacts = any((p.field or "").startswith("settings.artifacts") for p in parsed.problems)
    return Context(
        graph,
        parsed.at,
        base_dir=None if unknown_artifacts else base_dir,
        partial=parsed.partial or bool(document.lost),
        broken=_names(document.data) | {name.lower() for name in document.lost if name},
    )


def _misplaced(document: Document, places: AllowedPlaces) -> list[Problem]:
    if places is AllowedPlaces.ANY:
        return []
    at = Locator(document.file, document.lines)
    return place_problems(document.data, at, local_files=places is AllowedPlaces.NODE)


def _overlaid(data: Any, on_top: Mapping[str, Any]) -> Any:
    if not isinstance(data, dict):
        return data  # the next step says so
    given = data.get("settings")
    if given is not None and not isinstance(given, dict):
        return data
    changes = dict(on_top)
    settings = {**(given or {}), **changes.pop("settings", {})}
    if given and isinstance(given.get("spark"), dict) and "spark" in settings:
        settings["spark"] = {**given["spark"], **settings["spark"]}
    return {**data, **changes, "settings": settings}


def _refuse(problems: Sequence[Problem]) -> None:
    certain = list(dict.fromkeys(p for p in problems if p.certain))
    if not certain:
        return
    shown = certain[:MAX_PROBLEMS]
    if more := len(certain) - len(shown):
        shown.append(Problem(f"there are {more} more problems", "fix these first"))
    raise InvalidPipelineError(shown)


def _names(data: object) -> frozenset[str]:
    match data:
        case {"vertices": list(vertices)}:
            return frozenset(str(v["name"]).lower() for v in vertices if isinstance(v, dict) and "name" in v)
    return frozenset()
