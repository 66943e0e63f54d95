"""The program of an application cluster, as its client hands it to the first process of the cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.types import JobID, parse_job_id

from .model import JobGraph


@dataclass(frozen=True, slots=True)
class ApplicationConfiguration:
    """A graph, a script, or a module of an archive, as one job graph."""

    application_id: JobID
    """Also the id of the job that the program is; ids of jobs that it submits are derived from it."""
    program: JobGraph
    priority: int = 0

    def to_json(self) -> dict[str, Any]:
        graph = json.loads(self.program.to_json())
        return {"application_id": self.application_id, "program": graph, "priority": self.priority}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ApplicationConfiguration:
        """Raises ValueError, KeyError or TypeError for what is no such program."""
        return ApplicationConfiguration(
            parse_job_id(data["application_id"]), JobGraph.model_validate(data["program"]), int(data["priority"])
        )
