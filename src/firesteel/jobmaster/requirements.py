"""What a job needs of the ResourceManager before it can run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from firesteel.config import Configuration
from firesteel.config.sections import Isolation
from firesteel.jobmaster.artifacts import JobFiles
from firesteel.jobmaster.plan import RunPlan
from firesteel.resourcemanager.gateway import SlotRequest
from firesteel.stores.job_graphs import Submission


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
            exclusive=isolation is Isolation.JOB,
            priority=submission.priority,
            arrival=submission.submitted_at,
        )
