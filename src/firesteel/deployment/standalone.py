"""The target `remote`: a cluster that somebody else has started, reached by the addresses of its nodes."""

from __future__ import annotations

from typing import NoReturn

from firesteel.client.discovery import connect
from firesteel.config import Configuration
from firesteel.deployment.descriptors import (
    ClusterClientProvider,
    ClusterSpecification,
    UnsupportedTargetError,
)
from firesteel.deployment.effective import EffectiveConfiguration
from firesteel.jobgraph.application import ApplicationConfiguration

REMOTE = "remote"


class StandaloneClientFactory:
    targets = (REMOTE,)
    deploys_sessions = False
    deploys_applications = False

    def is_compatible_with(self, configuration: Configuration) -> bool:
        return configuration.execution.target == REMOTE

    def cluster_id(self, configuration: Configuration) -> str | None:
        return " ".join(configuration.client.addresses) or None

    def descriptor(self, effective: EffectiveConfiguration) -> StandaloneClusterDescriptor:
        return StandaloneClusterDescriptor(effective)


class StandaloneClusterDescriptor:
    def __init__(self, effective: EffectiveConfiguration) -> None:
        self._effective = effective

    def retrieve(self, cluster_id: str) -> ClusterClientProvider:
        return ClusterClientProvider(cluster_id, lambda: connect(self._effective.configuration))

    def deploy_session(self, specification: ClusterSpecification) -> ClusterClientProvider:
        _refuse("is started where it runs, with `firesteel node start`, and named here with -m or client.addresses")

    def deploy_application(
        self,
        specification: ClusterSpecification,
        application: ApplicationConfiguration,
    ) -> ClusterClientProvider:
        _refuse("serves many jobs: submit this one with `firesteel run`, or choose a target for applications")

    def kill(self, cluster_id: str) -> None:
        _refuse("must be ended where it was started")


def _refuse(why: str) -> NoReturn:
    raise UnsupportedTargetError(f"a cluster of the target '{REMOTE}' {why}")
