"""The policies under which job graphs from the network are admitted.

A graph does not say who owns a savepoint, an upload or a directory of the cluster. That is checked when a job is accepted
(`native/submit.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.config.sections import Role
from firesteel.errors import Problem
from firesteel.jobgraph.admission import AllowedPlaces, Policy
from firesteel.jobgraph.model import JobGraph
from firesteel.rest.security.functions import refused_functions
from firesteel.rest.security.principals import Principal
from firesteel.rest.security.queries import refused_queries
from firesteel.rest.security.spark_settings import refused_settings


def policy_for(principal: Principal, spark_settings: Sequence[str]) -> Policy:
    """The policy for jobs of `principal`. Admins may name files of the node, which they could read anyway, and set any option.

    `spark_settings`: settings that non-admins may use in addition to the default ones.
    """
    if principal.role is Role.ADMIN:
        return Policy(bounded=True, places=AllowedPlaces.NODE)

    def refuses(graph: JobGraph) -> list[Problem]:
        problems = refused_settings(graph.settings.spark, spark_settings)
        problems += refused_queries(graph)
        problems += refused_functions(graph)
        if graph.settings.directory is not None:
            fix = "remove it; jobs of non-admins get their own directory"
            problems.append(Problem("may only be set by admins", fix, field="settings.directory"))
        return problems

    return Policy(bounded=True, places=AllowedPlaces.UPLOADS, refuses=refuses)
