"""Changes that the configuration of the cluster and of the job make to an admitted graph when it is accepted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from firesteel.config import Configuration
from firesteel.errors import InvalidConfigError, Problem
from firesteel.jobgraph.model import JobGraph
from firesteel.stores.job_graphs import Submission
from firesteel.types import vertex_id

OF_JOBS = "jobmanager.parallelism-overrides"
OF_VERTICES = "pipeline.jobvertex-parallelism-overrides"


def with_overrides(submission: Submission, configuration: Configuration) -> Submission:
    """The submission with the parallelism that the cluster prescribes for the job's name and its vertices, and that the job
    prescribes itself. Its digest stays the client's own."""
    graph = submission.graph
    wanted = parse_overrides(configuration.jobmanager.parallelism_overrides, OF_JOBS).get(graph.name)
    if wanted is not None:
        graph = graph.with_(parallelism=wanted)
    of_cluster = parse_overrides(configuration.pipeline.jobvertex_parallelism_overrides, OF_VERTICES)
    graph = _with_vertices(graph, {**of_cluster, **(graph.settings.parallelism_overrides or {})})
    return submission if graph is submission.graph else dataclasses.replace(submission, graph=graph)


def _with_vertices(graph: JobGraph, wanted: Mapping[str, int]) -> JobGraph:
    """Vertices by name or id; those of other jobs are not here."""
    found = {v.name: wanted.get(v.name, wanted.get(vertex_id(v.name))) for v in graph.vertices}
    if not any(found.values()):
        return graph
    return graph.with_(
        vertices=tuple(
            v.model_copy(update={"parallelism": found[v.name]}) if found[v.name] else v for v in graph.vertices
        )
    )


def parse_overrides(words: Sequence[str], key: str) -> dict[str, int]:
    """`name:N` words of the option `key`. Raises InvalidConfigError."""
    found: dict[str, int] = {}
    problems = []
    for word in words:
        name, _, number = word.rpartition(":")
        if name and number.isdigit() and int(number) > 0:
            found[name] = int(number)
        else:
            problems.append(Problem(f"'{word}' is not of the form name:N", "write for example orders:4", field=key))
    if problems:
        raise InvalidConfigError(problems)
    return found


def check_overrides(configuration: Configuration) -> None:
    """Raises InvalidConfigError."""
    parse_overrides(configuration.jobmanager.parallelism_overrides, OF_JOBS)
    parse_overrides(configuration.pipeline.jobvertex_parallelism_overrides, OF_VERTICES)
