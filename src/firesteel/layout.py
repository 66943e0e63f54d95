"""Where a cluster keeps its files below `data.dir`: every path that more than one part of the product knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from firesteel.types import AttemptId, JobID

if TYPE_CHECKING:
    from firesteel.config import Configuration

CLUSTERS = "clusters"
REST_FILE = "rest.json"
"""How the nodes of this host are reached."""
APPLICATION_VARIABLE = "FIRESTEEL_APPLICATION_ID"
"""In the environment of a program: the application that it is."""
NODE_LOG, NODE_OUTPUT = "node.log", "node.out"


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """`home` is the directory of one cluster: `<data.dir>/clusters/<cluster id>`."""

    home: Path

    @staticmethod
    def of(configuration: Configuration) -> ClusterLayout:
        return ClusterLayout.below(configuration.data.dir, configuration.high_availability.cluster_id)

    @staticmethod
    def below(data_dir: Path, cluster_id: str) -> ClusterLayout:
        return ClusterLayout(data_dir / CLUSTERS / cluster_id)

    @property
    def jobs(self) -> Path:
        return self.home / "jobs"

    @property
    def mirror(self) -> Path:
        """Copies of files of attempts on other hosts."""
        return self.home / "mirror"

    @property
    def engines(self) -> Path:
        return self.home / "engines"

    @property
    def finished(self) -> Path:
        """Details of ended jobs."""
        return self.home / "finished"

    @property
    def blobs(self) -> Path:
        return self.home / "blobs"

    @property
    def rest_file(self) -> Path:
        return self.home / REST_FILE

    @property
    def application_end(self) -> Path:
        """How the application of this cluster ended."""
        return self.home / "application-end.json"

    def job(self, job_id: JobID) -> Path:
        return self.jobs / job_id


def attempts_of(jobs: Path, job_id: JobID) -> Path:
    """Below `jobs`, the directory of all jobs of a cluster."""
    return jobs / job_id / "attempts"


def attempt_directory(jobs: Path, attempt: AttemptId) -> Path:
    return attempts_of(jobs, attempt.job_id) / str(attempt.number)
