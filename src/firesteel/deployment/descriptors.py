"""The protocols of a deployment target. Whoever implements both and names the factory as an entry point adds a target.

`-t` and `execution.target` name the target. Its ClusterClientFactory says so, knows which cluster a configuration means, and
makes a ClusterDescriptor, which finds clusters of this kind, starts them and ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from firesteel.client.cluster import ClusterClient
from firesteel.config import Configuration
from firesteel.deployment.effective import EffectiveConfiguration
from firesteel.errors import FiresteelError
from firesteel.jobgraph.application import ApplicationConfiguration


class ClusterDeploymentError(FiresteelError):
    """A cluster could not be deployed; nothing of it is left."""


class UnsupportedTargetError(ClusterDeploymentError):
    """The target cannot do what was asked; says which ones can."""


@dataclass(frozen=True, slots=True)
class ClusterSpecification:
    """How large the first process of a cluster is. Workers come on top, when jobs need them."""

    master_memory: str
    slots_per_engine: int

    @staticmethod
    def of(configuration: Configuration) -> ClusterSpecification:
        return ClusterSpecification(configuration.engine.memory, configuration.engine.slots)


@dataclass(frozen=True, slots=True)
class ApplicationOutcome:
    """How an application ended."""

    status: str
    """SUCCEEDED, FAILED or CANCELED."""
    exit_code: int
    failure: str = ""
    """Why it has failed, where no job says so."""


class ApplicationEndedError(ClusterDeploymentError):
    """The application was deployed before and has ended; nothing was run."""

    def __init__(self, application_id: str, outcome: ApplicationOutcome) -> None:
        self.outcome = outcome
        super().__init__(
            f"application {application_id} has already ended ({outcome.status}); nothing was run; to run it again, omit "
            "--job-id or give another one"
        )


@dataclass(frozen=True, slots=True)
class ClusterClientProvider:
    """A cluster that answers, or is about to."""

    cluster_id: str
    connect: Callable[[], ClusterClient]
    """Opens a client; the caller closes it."""
    shares_files: bool = False
    """The cluster runs on this machine, under this user: it sees the same files."""
    anew: bool = False
    """Whether it was started by the call that returned this."""
    ended: Callable[[float], bool] | None = None
    """Waits so many seconds for the end of the cluster's process; None where that cannot be seen from here."""
    outcome: Callable[[], ApplicationOutcome | None] = lambda: None
    """How the application of the cluster has ended, once that is known."""


class ClusterDescriptor(Protocol):
    """Every method may raise ClusterDeploymentError and ClusterUnreachableError, and may block."""

    def retrieve(self, cluster_id: str) -> ClusterClientProvider:
        """A cluster that runs, whatever its settings are."""
        ...

    def deploy_session(self, specification: ClusterSpecification) -> ClusterClientProvider:
        """A session cluster with the descriptor's settings, which is there once this returns."""
        ...

    def deploy_application(
        self, specification: ClusterSpecification, application: ApplicationConfiguration
    ) -> ClusterClientProvider:
        """A cluster for one application. It runs once this returns; if this fails, or the caller dies in the middle, then
        either the application runs or nothing is left."""
        ...

    def kill(self, cluster_id: str) -> None:
        """End a cluster and its jobs."""
        ...


class ClusterClientFactory(Protocol):
    """The way into one target."""

    @property
    def targets(self) -> Sequence[str]:
        """The names that `is_compatible_with` accepts, for messages."""
        ...

    @property
    def deploys_sessions(self) -> bool:
        """A command that needs a session cluster gets one deployed; otherwise it has to be there."""
        ...

    @property
    def deploys_applications(self) -> bool: ...

    def is_compatible_with(self, configuration: Configuration) -> bool:
        """Whether this is the factory for `execution.target`."""
        ...

    def cluster_id(self, configuration: Configuration) -> str | None:
        """The running cluster that the configuration means; None when there is none."""
        ...

    def descriptor(self, effective: EffectiveConfiguration) -> ClusterDescriptor: ...
