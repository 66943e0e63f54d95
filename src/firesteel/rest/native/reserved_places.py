"""Places of the cluster itself: its data directory, checkpoints and savepoints. Whoever names a path inside of them
must be an admin, or name the checkpoint of a job that is theirs (S36).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from firesteel.config import Configuration
from firesteel.errors import Problem
from firesteel.jobgraph.model import JobGraph
from firesteel.jobgraph.modes import CHECKPOINT_LOCATION, option
from firesteel.rest.params import HEX_ID
from firesteel.savepoint.places import below


@dataclass(frozen=True, slots=True)
class NamedPlace:
    """A reserved place that a graph names."""

    problem: Problem
    job: str | None
    """The job whose checkpoint it is; None for all else."""


class ReservedPlaces:
    def __init__(self, configuration: Configuration) -> None:
        self._checkpoints = configuration.state.checkpoints_dir
        self._others = (configuration.state.savepoints_dir, str(configuration.data.dir))

    def checkpoints_in(self, graph: JobGraph) -> list[NamedPlace]:
        """The checkpoints of streams that are inside of reserved places. Follows links, so it may block."""
        named = []
        for sink in graph.sinks:
            path = option(sink, CHECKPOINT_LOCATION)
            if not path:
                continue
            problem = Problem(
                "the checkpoint is in a directory of the cluster, and not in one of a job of yours that is known here",
                "name a directory of your own, or remove the option",
                vertex=sink.name,
                field=f"options.{CHECKPOINT_LOCATION}",
            )
            inside = below(path, self._checkpoints)
            if inside is not None:
                first = inside.partition("/")[0]
                named.append(NamedPlace(problem, first if re.fullmatch(HEX_ID, first) else None))
            elif (
                any(below(path, other) is not None or below(other, path) is not None for other in self._others)
                or below(self._checkpoints, path) is not None
            ):
                named.append(NamedPlace(problem, None))
        return named
