"""What a job needs of the ResourceManager before it can run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from firesteel.config import Configuration
from firesteel.config.sections import Isolation
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.artifacts import JobFiles
from firesteel.jobmaster.plan import RunPlan
from firesteel.resourcemanager.gateway import SlotRequest
from firesteel.resourcemanager.offers import Placement
from firesteel.stores.job_graphs import Submission
from firesteel.types import RequiredSandbox


@dataclass(frozen=True, slots=True)
class Requirements:
    """The requirements of the jobs of one node."""

    configuration: Configuration
    files: JobFiles

    async def of(self, submission: Submission) -> SlotRequest:
        """Which engine a job needs. This may read a script, so it runs outside the event loop."""
        graph = submission.graph
        if graph.script is not None:
            graph = await self.files.localized(submission.job_id, graph)
        if graph.script is not None:
            plan = await asyncio.to_thread(RunPlan.of, graph, self.configuration)
        else:
            plan = RunPlan.of(graph, self.configuration)
        isolation = self.configuration.engine.isolation
        owner = None if isolation is Isolation.SESSION else submission.owner
        return SlotRequest(
            job_id=submission.job_id,
            engine=replace(plan.engine, owner=owner),
            classic=plan.classic,
            driver_only=plan.driver_only,
            exclusive=isolation is Isolation.JOB,
            priority=submission.priority,
            arrival=submission.submitted_at,
            placement=placement_of(graph, self.configuration),
        )


def placement_of(graph: JobGraph, configuration: Configuration) -> Placement:
    """Which workers a job may be put on: what it asks for itself, and what the cluster asks for."""
    asked = graph.settings.placement
    sandboxes = {configuration.worker.required_sandbox, asked.sandbox if asked else RequiredSandbox.ANY}
    return Placement(
        labels=frozenset(asked.labels.items()) if asked else frozenset(),
        sandboxes=frozenset(sandboxes - {RequiredSandbox.ANY}),
    )
