"""A job graph that comes from the network: the full checks of a pipeline file, without any file of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from firesteel.errors import InvalidPipelineError, Problem
from firesteel.jobgraph.assemble import assemble
from firesteel.jobgraph.document import Document, Locator
from firesteel.jobgraph.model import JobGraph
from firesteel.jobgraph.variables import substitute
from firesteel.jobgraph.yaml_source import read_yaml
from firesteel.rest.native.graph_limits import too_much_substitution, unfit, unfit_yaml
from firesteel.rest.native.graph_places import place_problems

P = ParamSpec("P")
T = TypeVar("T")

FILE = "pipeline"
"""What a text without a file is called in messages that name a line."""
MAX_PROBLEMS = 100
"""Entries of one answer."""

_THREADS = ThreadPoolExecutor(2, thread_name_prefix="graph-input")
"""A graph that takes long to check holds up other graphs, and nothing else."""


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What is said about a graph takes CPU, and imports the parser of SQL: not for the event loop."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, lambda: call(*args, **kwargs))


def graph_of_json(data: Any, variables: Mapping[str, str] | None, *, local_files: bool = False) -> JobGraph:
    """The graph in a JSON value.

    A finished graph is taken literally: `${name}` means something only where there are variables, given here (not None)
    or declared in the graph.

    Raises:
        InvalidPipelineError: with everything that is wrong with it.
    """
    if variables is None and isinstance(data, dict) and "variables" in data:
        variables = {}
    return _checked(Document(data), variables, local_files=local_files)


def graph_of_yaml(
    text: str, variables: Mapping[str, str] = MappingProxyType({}), *, local_files: bool = False
) -> JobGraph:
    """The graph of a pipeline in YAML. Raises like `graph_of_json`."""
    if problem := unfit_yaml(text, FILE):
        raise InvalidPipelineError([problem])
    try:
        document = read_yaml(text, file=FILE)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, say
        raise InvalidPipelineError(
            [Problem(f"the pipeline cannot be read: {error}", "correct it", file=FILE)]
        ) from None
    return _checked(document, variables, local_files=local_files)


def _checked(document: Document, variables: Mapping[str, str] | None, *, local_files: bool = False) -> JobGraph:
    if document.data is None and document.problems:
        raise InvalidPipelineError(document.problems)
    _refuse(unfit(document))
    if variables is not None:
        if too_much_substitution(document.data, variables):
            raise InvalidPipelineError(
                [Problem("the variables are too long for how often they are used", "shorten them")]
            )
        document = substitute(document, variables).document
        _refuse(unfit(document))
    places = place_problems(document.data, Locator(document.file, document.lines), local_files=local_files)
    try:
        # What is left of `${` by now is meant as it stands.
        graph = assemble(replace(document, data=_literal(document.data)), variables={}, base_dir=None).graph
    except InvalidPipelineError as error:
        _refuse([*error.problems, *places])
        raise
    except RecursionError:
        message = "its vertices, or the parts of a query, are nested too deeply to be followed"
        raise InvalidPipelineError([Problem(message, "have fewer vertices that read each other in a chain")]) from None
    _refuse(places)
    return graph


def _refuse(problems: Sequence[Problem]) -> None:
    certain = list(dict.fromkeys(p for p in problems if p.certain))
    if not certain:
        return
    shown = certain[:MAX_PROBLEMS]
    if more := len(certain) - len(shown):
        shown.append(Problem(f"there are {more} more problems", "correct these first"))
    raise InvalidPipelineError(shown)


def _literal(value: Any) -> Any:
    """`value` so that `substitute` gives it back as it is."""
    match value:
        case str():
            return value.replace("${", "$${") if "${" in value else value
        case list():
            return [_literal(v) for v in value]
        case dict():
            return {k: _literal(v) for k, v in value.items()}
        case _:
            return value
